"""Devices, each with its own memory and queue of work, the arrays that live on them, and transfers between them."""

from .array import DeviceArray, array_module, on_device
from .batch import Batch
from .choose import (
    ENVIRONMENTS,
    MOST_DEVICES,
    can_use_gpu,
    check_devices,
    choose_devices,
    choose_indices,
    cpu,
    gpu,
    num_gpus,
    parse_devices,
    try_all_gpus,
    try_gpu,
)
from .device import Device
from .discovery import count_cores, device_table, find_gpus
from .errors import DeviceError, DeviceMemoryError, DeviceMismatchError
from .failures import Failures, nothing_left_behind, synchronize
from .flat import parts_of, zeros_in_one_buffer
from .forks import in_forked_process
from .records import record_transfers
from .task import HAPPENED, Task
from .transfer import put, to_host
from .workers import current_device
