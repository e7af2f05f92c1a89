"""MPI's own allreduce, beside the schedules and under the same name."""

import contextlib
import ctypes

import numpy as np

from ..timing import span

M_ARENA_MAX = -8
"""In glibc's malloc.h."""


def share_one_heap():
    """Ask glibc to let threads that begin from now on take memory from the heap of the main thread.

    MPI takes as much as an array has for each allreduce. On a heap of their own other threads get that from the
    operating system anew each time, and allreduces of 64 MB took 2.5 times as long.
    """
    with contextlib.suppress(OSError, TypeError, AttributeError):  # of what is no glibc
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def all_reduce(flat, communicator):
    """Sum flat plain arrays of this process's virtual devices, and of all other processes', in place, by MPI_Allreduce.

    Runs on one of the devices. Which algorithm MPI takes is its own choice, and so is the order of the additions.

    Raises ValueError for a dtype that MPI does not add.
    """
    from mpi4py import MPI

    total = flat[0]
    if total.dtype.char not in "fdbhilqBHILQ":
        raise ValueError(f"allreduce 'mpi': MPI does not add {total.dtype}; use 'ring'")
    with span("allreduce"), np.errstate(invalid="ignore"):
        for array in flat[1:]:
            np.add(total, array, out=total)
        communicator.begin()
        communicator.wait_in("MPI_Allreduce", communicator.comm.Allreduce, MPI.IN_PLACE, total, MPI.SUM)
        for array in flat[1:]:
            np.copyto(array, total)
