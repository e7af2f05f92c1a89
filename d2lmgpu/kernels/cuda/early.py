"""Launch kernels before the kernel that they follow has ended; early.cuh says what they do until it has.

CUDA calls this programmatic dependent launch; in a graph it becomes a kind of edge. CuPy can only launch as usual, so
the driver is called directly, with the kernel that CuPy has loaded.

It is done only in graphs, where a launch costs no time of the host, and on cards where a trial has shown that it works
(capture.py).
"""

import ctypes
import os

import numpy as np

SINCE = 90
"""The compute capability, times ten, from which cards can do this."""

HEADER = '#include "early.cuh"'
"""The line that is in the files whose kernels may be launched early."""

PROGRAMMATIC_STREAM_SERIALIZATION = 6
"""A value of CUlaunchAttributeID in cuda.h."""

cards = set()
"""The cards on which kernels are launched early."""


class Attribute(ctypes.Structure):
    """CUlaunchAttribute of cuda.h; its value is a union of 64 bytes, here a whole number."""

    _fields_ = [("id", ctypes.c_uint), ("pad", ctypes.c_uint), ("value", ctypes.c_int * 16)]


class Config(ctypes.Structure):
    """CUlaunchConfig of cuda.h."""

    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(Attribute)),
        ("count", ctypes.c_uint),
    ]


def driver():
    """CUDA's driver library. Raises OSError if there is none."""
    return ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")


def launch_early(kernel, grid, block, arguments):
    """``kernel(grid, block, arguments)`` in the current stream; the arguments are CuPy arrays and NumPy scalars.

    Raises RuntimeError if the driver refuses.
    """
    import cupy

    def three(sizes):
        return (ctypes.c_uint * 3)(*sizes, *[1] * (3 - len(sizes)))

    values = [_value(argument) for argument in arguments]
    pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
    attribute = Attribute(id=PROGRAMMATIC_STREAM_SERIALIZATION, value=(ctypes.c_int * 16)(1))
    stream = cupy.cuda.get_current_stream().ptr
    config = Config(three(grid), three(block), 0, stream, ctypes.pointer(attribute), 1)
    error = driver().cuLaunchKernelEx(ctypes.byref(config), ctypes.c_void_p(kernel.kernel.ptr), pointers, None)
    if error:
        raise RuntimeError(f"cuLaunchKernelEx: error {error} of CUDA's driver")


def _value(argument):
    if isinstance(argument, np.generic):
        return np.ctypeslib.as_ctypes_type(argument.dtype)(argument.item())
    return ctypes.c_void_p(argument.data.ptr)
