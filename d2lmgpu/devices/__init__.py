"""Devices, each with its own memory and queue of work, the arrays that live on them, and transfers between them."""

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
from .failures import Failures as Failures, isolated_errors as isolated_errors
from .records import record_transfers as record_transfers
from .task import DONE as DONE, Task as Task
from .transfer import (
    parts_of as parts_of,
    put as put,
    to_host as to_host,
    zeros_in_one_buffer as zeros_in_one_buffer,
)
from .workers import current_device as current_device
