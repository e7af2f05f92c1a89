"""The devices that work together: those of this process. A `Cluster` is a group of the devices of several processes."""

from collections.abc import Sequence

from ..base.arguments import check_list, shown
from .device import Device
from .transfer import result_to_host


class Group(Sequence):
    """Devices, in order. ``mine`` are those of this process, and ``size`` is the number of processes.

    ``rank``: this process's number; ``first``: the number of its first device among all.
    """

    rank, size, first = 0, 1, 0

    def __init__(self, devices):
        self.mine = self._devices = devices

    def __len__(self):
        return len(self._devices)

    def __getitem__(self, index):
        return self._devices[index]

    def part(self, items):
        """The items for this process's devices, from ``items``, a list with one for each device of the group."""
        return items[self.first : self.first + len(self.mine)]

    def across(self, algorithm):
        """The ``algorithm`` as `allreduce` takes it, for the arrays of this process's devices."""
        return algorithm

    def mean(self, numbers):
        """The mean of each of these numbers over all devices; every process waits here for all others."""
        return numbers

    def rows_later(self, batch, tasks, tell):
        """Add to a ``batch``: gather a row from each device; return a function to call when the batch is done.

        It returns the rows of all devices: the numbers that the device's task returned, and ``tell``, a number.
        """
        return lambda: [[*result_to_host(task.value.raw, task.value.device).tolist(), tell] for task in tasks]


def as_group(devices):
    """``devices`` if it is a `Group`, otherwise a group of these devices; raises as `different_devices`."""
    return devices if isinstance(devices, Group) else Group(different_devices(devices))


def different_devices(devices, least=1):
    """``devices`` as a list. Raises ValueError unless it has ``least`` devices, each once, and nothing else."""
    devices = check_list("devices", devices, of="devices, such as [cpu(0), cpu(1)]", one=Device)
    strangers = [device for device in devices if not isinstance(device, Device)]
    if strangers:
        raise ValueError(f"devices: {shown(strangers[0])} is not a device; make one with cpu(i), gpu(i) or try_gpu(i)")
    if len(devices) < least:
        raise ValueError("devices: the list is empty; at least one device is needed")
    if len(set(devices)) < len(devices):
        raise ValueError(f"devices: {shown(devices)} names a device twice; each device holds one shard")
    return devices
