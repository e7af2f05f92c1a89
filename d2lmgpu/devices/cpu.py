"""Virtual devices: a queue of work on NumPy arrays that belong to it, with one core's worth of BLAS.

Setting up the first one holds BLAS to one thread in the whole process (through
threadpoolctl), so that k devices are k cores' worth of arithmetic and not k times
all cores.
"""

import ctypes

import numpy as np

from .device import Device
from .discovery import count_cores
from .memory import MemoryAccounting, check_bytes
from .workers import Workers

_workers = Workers(count_cores())
_comm_workers = Workers(count_cores())
"""Comm streams have workers of their own, as a GPU's copy engines are not its multiprocessors.

Otherwise a device's exchange would only begin when one of the devices has finished what it computes.
"""


class CPU(Device):
    """A virtual device: a queue, its NumPy arrays, one core's worth of BLAS."""

    kind = "cpu"

    def __init__(self, index, workers=None):
        super().__init__(index, workers or _workers)

    def _set_up(self):
        from threadpoolctl import threadpool_limits

        threadpool_limits(limits=1, user_api="blas")
        _keep_freed_memory()

    def empty(self, shape, dtype):
        """An uninitialised plain array in this device's memory."""
        array = np.empty(shape, dtype)
        if self.accounting is not None:
            self.accounting.enter(array)
        return array

    def limit_memory(self, nbytes):
        """Let arrays that are made here from now on take so many bytes together at most; None: as many as there are.

        More is a `DeviceMemoryError`. The kernels' scratch paper is not counted.
        """
        self.accounting = None if nbytes is None else MemoryAccounting(self, check_bytes(nbytes))

    def _make_comm_stream(self):
        return CPU(self.index, _comm_workers)


def _keep_freed_memory():
    """Ask glibc to keep freed memory instead of returning it to the operating system.

    A training step frees and allocates the same few megabytes again and again;
    fresh pages, which the kernel must zero, cost it about a third of its time.
    M_MMAP_THRESHOLD is -3 and M_TRIM_THRESHOLD -1 in malloc.h; elsewhere than on
    glibc nothing happens.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):
        return
    mallopt(-3, 1 << 30)
    mallopt(-1, 1 << 30)
