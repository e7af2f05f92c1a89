"""Devices, each with its own memory and queue of work, the arrays that live on them, and transfers between them.

`cpu` and `gpu` (choose.py) make devices, `put` copies an array to one, ``device.run(function, ...)`` submits work. Read

1. device.py: what a device is; queue.py, task.py, workers.py, batch.py: how its work is submitted, done and waited for;
2. array.py, errors.py: arrays that refuse to be mixed with those of other devices; transfer.py: copies between devices;
3. cpu.py, gpu.py, peers.py (two cards): what the kinds of device add; choose.py, discovery.py: which ones there are;
4. records.py, timeline.py: which data moved, and where the time went; probes.py: fast methods that are tried first.
"""

from .array import DeviceArray as DeviceArray, array_module as array_module, on_device as on_device
from .batch import Batch as Batch
from .choose import (
    ENVIRONMENTS as ENVIRONMENTS,
    check_devices as check_devices,
    choose_devices as choose_devices,
    choose_indices as choose_indices,
    cpu as cpu,
    gpu as gpu,
    parse_devices as parse_devices,
    synchronize as synchronize,
    try_gpu as try_gpu,
)
from .device import Device as Device, Group as Group, as_group as as_group
from .discovery import count_cores as count_cores, device_table as device_table, find_gpus as find_gpus
from .errors import (
    DeviceError as DeviceError,
    DeviceMemoryError as DeviceMemoryError,
    DeviceMismatchError as DeviceMismatchError,
)
from .records import record_transfers as record_transfers
from .task import DONE as DONE, Failures as Failures, Task as Task, isolated_errors as isolated_errors
from .transfer import (
    parts_of as parts_of,
    put as put,
    to_host as to_host,
    zeros_in_one_buffer as zeros_in_one_buffer,
)
from .workers import current_device as current_device
