"""What this machine has. CuPy is imported only when somebody asks for GPUs."""

import os


def count_cores():
    """CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def find_gpus():
    """The number of GPUs that CuPy can use, and the reason if there is none.

    CuPy can be installed and imported without a GPU or a driver, so that only
    counting the devices tells.
    """
    try:
        import cupy
    except ImportError:
        return 0, "CuPy is not installed (pip install 'd2lmgpu[gpu]', or [gpu-cuda12] for CUDA 12)"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return 0, f"CuPy finds no GPU ({error})"
    return count, None if count else "CuPy finds no GPU"
