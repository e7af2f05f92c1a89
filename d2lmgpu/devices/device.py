"""A device is a place: it has its own memory and its own queue of work.

    host program --run()--> queue of cpu(0) --> a thread     --> its arrays
                 --run()--> queue of gpu(1) --> its thread   --> its stream --> its arrays

The host program submits work and goes on; work of one device happens in the
order of submission, work of different devices at the same time. A result is
waited for with ``task.result()``, a whole device with ``synchronize()``.
Functions that run *on* a device touch that device's arrays only: everything
between devices is issued by the host program.
"""

import time

import numpy as np

from ..arguments import check_whole
from .failures import synchronize
from .queue import Queue

MOST_BYTES = 2**50
"""A pebibyte, which no machine has."""


class Device(Queue):
    """What ``cpu(i)`` and ``gpu(i)`` have in common: a name, a queue, through which ``workers`` work, and memory.

    Compare devices with ``is``: the same index always gives the same object.
    """

    kind = None
    clock_name = None  # whose clock it is: the program's, or a card's
    clock_is_late = False  # whether readings of the clock are known only when the work is done
    gone = None  # why the device cannot be used any more

    def __init__(self, index, workers):
        self.index = index
        self.main = self  # of a comm stream: the device whose memory it shares
        self.accounting = None
        self._buffers = {}
        self.is_set_up = False
        super().__init__(workers)

    def __repr__(self):
        return f"{self.kind}({self.index})" + ("" if self.main is self else " comm stream")

    def end(self):
        """An event that happens when all that was submitted or launched here so far is done."""
        return self.record()

    def synchronize(self):
        """Wait until all work submitted so far is done; raise the error of a task nobody waited for."""
        synchronize([self])

    def set_up(self):
        """Have the first work of this device's thread done, unless it is; returns the device."""
        if not self.is_set_up:
            self.submit(self._set_up_once).result()
        return self

    def _set_up_once(self):
        if not self.is_set_up:
            self._set_up()
            self.is_set_up = True

    # Memory:

    def limit_memory(self, nbytes):
        """Let arrays made here from now on take ``nbytes`` together at most; None: as many as there are.

        One too many is a `DeviceMemoryError`, on a GPU CuPy's error; both are MemoryErrors. On a virtual device the
        kernels' scratch memory is not counted.
        """
        if nbytes is not None:
            check_whole("a limit in bytes", nbytes, most=MOST_BYTES)
        self._limit_memory(None if nbytes is None else int(nbytes))

    def buffer(self, name, size, dtype):
        """A plain array of ``size`` elements in this device's memory, for results that are soon used up.

        Each call with the same name and dtype gives the same memory, which grows
        when it must: the contents last until the next work that asks for it.
        """
        key = name, np.dtype(dtype)
        buffer = self._buffers.get(key)
        if buffer is None or buffer.size < size:
            buffer = self._buffers[key] = self.empty(size, dtype)
            if self.kind == "cpu":
                buffer.fill(0)  # after an error elsewhere it may be summed as it is: no garbage, of which NumPy warns
        return buffer[:size]

    @property
    def comm_stream(self):
        """A second queue on the same memory, for exchanging results while the device computes."""
        if "_comm_stream" not in vars(self):
            stream = self._make_comm_stream()
            stream.main, stream.accounting = self, self.accounting
            vars(self).setdefault("_comm_stream", stream)
        return self._comm_stream.set_up()

    # What differs between the kinds:

    def _set_up(self):
        """First work of the thread."""

    def start_clock(self):
        """Called on this device's thread: what `read_clock` needs."""

    def clock(self):
        """Called on this device's thread: a reading that says when the work so far is done."""
        return time.perf_counter()

    def finish(self):
        """Wait until what was launched here is done, which on a CPU it is."""

    def mark(self):
        """Called on this device's thread: a mark of the work done so far; a CPU needs none."""

    def await_mark(self, mark):
        """Called on this device's thread: what follows happens after another device's mark."""
