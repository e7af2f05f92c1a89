"""Virtual devices, whose BLAS uses one thread, and whose memory can be limited.

Setting one up limits BLAS to one thread in the whole process, so k devices keep k cores busy; otherwise each device's
BLAS would compete for all cores. threadpoolctl does this for the libraries that it knows. It does not know Accelerate,
which NumPy may use on Macs, and which reads an environment variable that `d2lmgpu` sets when it is imported.

A GPU has a fixed amount of memory. A virtual device can use all of the machine's, unless it is given a limit: then it
counts the bytes of its arrays, and refuses an array that would exceed the limit, as a GPU does. No memory is reserved
beforehand: it is taken as arrays are made.
"""

import contextlib
import ctypes
import threading
import weakref

import numpy as np

from .device import Device
from .discovery import count_cores
from .errors import DeviceMemoryError
from .workers import make_workers

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""The values of these constants in glibc's malloc.h."""

_workers = make_workers(count_cores())
_comm_workers = make_workers(count_cores())
"""Comm streams have workers of their own, just as a GPU has copy engines beside its multiprocessors.

With shared workers, an exchange could not begin before a worker had finished what it was computing for some device.
"""


class CPU(Device):
    """A virtual device: a queue, its NumPy arrays and one core's worth of BLAS."""

    kind = "cpu"

    def __init__(self, index, workers=None):
        super().__init__(index, workers or _workers)

    def _set_up(self):
        from threadpoolctl import threadpool_limits

        threadpool_limits(limits=1, user_api="blas")
        # A training step frees and allocates the same few megabytes again and again. If they were returned to the
        # operating system each time, about a third of its time would go into fresh pages, which the kernel must zero.
        libc("mallopt", M_MMAP_THRESHOLD, 1 << 30)
        libc("mallopt", M_TRIM_THRESHOLD, 1 << 30)

    def empty(self, shape, dtype):
        """An uninitialised plain array in this device's memory."""
        array = np.empty(shape, dtype)
        if self.accounting is not None:
            self.accounting.enter(array)
        return array

    def _limit_memory(self, nbytes):
        self.accounting = None if nbytes is None else MemoryAccounting(self, nbytes)
        vars(self).get("_comm_stream", self).accounting = self.accounting

    def _make_comm_stream(self):
        return CPU(self.index, _comm_workers)


class MemoryAccounting:
    """Counts the bytes of the live arrays of ``device``. A view counts as the array that owns its memory."""

    def __init__(self, device, limit):
        self.device, self.limit, self.used = device, limit, 0
        self._lock = threading.RLock()  # reentrant: `enter` may free another array, and so call `_leave` on this thread
        self._known = set()  # the identities of the arrays counted

    def enter(self, raw):
        """Count a plain array once. Raises DeviceMemoryError if it would exceed the limit."""
        raw = memory_of(raw)
        with self._lock:
            if id(raw) in self._known:
                return
            if self.used + raw.nbytes > self.limit:
                raise DeviceMemoryError(
                    f"{self.device} is out of memory: {raw.nbytes:,} bytes asked for, {self.used:,} of its limit of "
                    f"{self.limit:,} are in use; more devices help, a higher limit, and in training smaller minibatches"
                )
            self.used += raw.nbytes
            self._known.add(id(raw))
        weakref.finalize(raw, self._leave, id(raw), raw.nbytes)

    def _leave(self, key, nbytes):
        with self._lock:
            self._known.remove(key)
            self.used -= nbytes


def memory_of(array):
    """The plain array that owns the memory of ``array``: itself, or the one of which it is a view."""
    owner = array
    while (array := getattr(array, "base", None)) is not None:  # the first base of a strided view is not an array
        if isinstance(array, np.ndarray):
            owner = array
    return owner


def libc(function, *arguments):
    """Call a function of the C library, such as "mallopt" of glibc; do nothing where there is no such function."""
    with contextlib.suppress(OSError, TypeError, AttributeError):
        getattr(ctypes.CDLL(None), function)(*arguments)
