"""A device has its own memory and its own queue of work.

    host program --run()--> queue of cpu(0) --> a thread     --> its arrays
                 --run()--> queue of gpu(1) --> its thread   --> its stream --> its arrays

The host program submits work and continues without waiting. Work of one device is done in the order of submission, work
of different devices at the same time. ``task.result()`` waits for a result, ``synchronize()`` for a whole device.
Functions that run *on* a device use only its own arrays: transfers between devices are started by the host program.
"""

import contextlib
import time
from collections.abc import Sequence

import numpy as np

from ..base.arguments import check_list, check_whole, shown
from .queue import Queue
from .task import wait_and_raise
from .transfer import result_to_host

MAX_BYTES = 2**50
"""The highest limit on a device's memory: a pebibyte, more than any machine has."""


class Device(Queue):
    """What ``cpu(i)`` and ``gpu(i)`` have in common: a name, memory, and a queue whose work is done by ``workers``.

    The same index always gives the same object, so devices are compared with ``is``.
    """

    kind = None
    clock_name = None  # the program's clock, or the card whose clock `clock` reads: an event, whose time is known late

    def __init__(self, index, workers):
        self.index = index
        self.main = self  # for a comm stream: the device whose memory it shares
        self.accounting = None
        self._buffers = {}
        super().__init__(workers)

    def __repr__(self):
        return f"{self.kind}({self.index})" + ("" if self.main is self else " comm stream")

    def end(self):
        """A `Task` that completes when all work submitted here so far has run, including all kernels launched."""
        return self.record()

    def synchronize(self):
        """Wait until all work submitted so far is done; raise the first error not yet raised, and forget the others."""
        wait_and_raise([self])

    def set_up(self):
        """Prepare the device for work, by its kind's `_set_up` on its thread, and return it; call this first."""
        self.submit(self._set_up).result()
        return self

    # Memory:

    def limit_memory(self, nbytes):
        """Limit the arrays made here from now on to ``nbytes`` in total; None: no limit.

        A view made from now on counts as the whole array that owns its memory, even if that is older. An array that
        would exceed the limit raises `DeviceMemoryError` on a virtual device and CuPy's OutOfMemoryError on a GPU; both
        are MemoryErrors. On a virtual device, the kernels' scratch memory is not counted.
        """
        if nbytes is not None:
            nbytes = check_whole("a limit in bytes", nbytes, most=MAX_BYTES)
        self._limit_memory(nbytes)

    def buffer(self, name, size, dtype):
        """A plain array of ``size`` elements in this device's memory, for results that are soon no longer needed.

        Calls with the same name and dtype give the same memory, which grows when needed: the contents last
        until the next such call.
        """
        key = name, np.dtype(dtype)
        buffer = self._buffers.get(key)
        if buffer is None or buffer.size < size:
            buffer = self._buffers[key] = self.empty(size, dtype)
            if self.kind == "cpu":
                buffer.fill(0)  # after an error elsewhere it may be summed unwritten: NumPy warns of garbage
        return buffer[:size]

    @contextlib.contextmanager
    def with_buffers(self, buffers):
        """Within the block, `buffer` takes its memory from ``buffers``, a dict that the caller keeps."""
        before, self._buffers = self._buffers, buffers
        try:
            yield
        finally:
            self._buffers = before

    @property
    def comm_stream(self):
        """A second queue on the same memory, for exchanging results while the device computes."""
        if "_comm_stream" not in vars(self):
            stream = self._make_comm_stream()
            stream.main, stream.accounting = self, self.accounting
            vars(self).setdefault("_comm_stream", stream.set_up())
        return self._comm_stream

    def queues(self):
        """The device's queue and any others in use: its comm stream, and that of a GPU's `Staging` (in cluster/)."""
        beside = [vars(self)[name] for name in ("_comm_stream", "_staging") if name in vars(self)]
        return [self, *(queue for other in beside for queue in other.queues())]

    # What differs between the kinds. `finish` and `mark` run in the device's queue, at their place among its work;
    # `record` and `end` submit them: on a GPU, a task of `record` is done when the kernels before it are launched, one
    # of `end` when they have run.

    def clock(self):
        """Called on this device's thread: the time when the work so far is done, on a GPU as an event."""
        return time.perf_counter()

    def finish(self):
        """Wait until what was launched here has run; on a CPU it already has."""

    def mark(self):
        """Called on this device's thread: a mark of the work so far, which makes a task's result an event to wait for.

        On a GPU it is a CUDA event; on a CPU it is None, because the work is already done.
        """


class Group(Sequence):
    """Devices that work together, in order: here those of one process.

    Its subclass `Cluster` (in cluster/) has the devices of several processes, and does more in the methods below.
    ``mine``: the devices of this process; ``size``: the number of processes; ``rank``: this process's number;
    ``first``: the number of this process's first device among all.
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
    """``devices`` if it is a `Group`, otherwise a group of these devices, after the checks of `different_devices`."""
    return devices if isinstance(devices, Group) else Group(different_devices(devices))


def different_devices(devices, least=1):
    """``devices`` as a list. Raises ValueError unless it has ``least`` (0 or 1) devices, each once, and no others."""
    devices = check_list("devices", devices, of="devices, such as [cpu(0), cpu(1)]", one=Device)
    strangers = [device for device in devices if not isinstance(device, Device)]
    if strangers:
        raise ValueError(f"devices: {shown(strangers[0])} is not a device; make one with cpu(i), gpu(i) or try_gpu(i)")
    if len(devices) < least:
        raise ValueError("devices: the list is empty; at least one device is needed")
    if len(set(devices)) < len(devices):
        raise ValueError(f"devices: {shown(devices)} names a device twice; each device holds one shard")
    return devices
