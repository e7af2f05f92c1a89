"""What this machine has. CuPy is imported only when somebody asks for GPUs."""

import os

from ..arguments import in_a_clone
from .errors import DeviceError
from .forks import in_forked_process

CUDA_IS_GONE = (
    "this process is a fork of one that used CUDA, which does not survive that; start processes with "
    "multiprocessing.get_context('spawn')"
)
_found = 0  # GPUs, by this process or the one that it was forked from
_forked_from_cuda = False


def count_cores():
    """CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def find_gpus():
    """The number of GPUs that CuPy can use, and the reason if there is none.

    CuPy can be installed and imported without a GPU or a driver, so that only
    counting the devices tells. Raises DeviceError in a process that was forked from
    one that has found GPUs: they cannot be used there, and CPUs in their place would
    be a surprise.
    """
    global _found
    if _forked_from_cuda:
        raise DeviceError(CUDA_IS_GONE)
    try:
        import cupy
    except ImportError:
        return 0, f"CuPy is not installed ({in_a_clone('gpu')}; for CUDA 12 [gpu-cuda12])"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return 0, f"CuPy finds no GPU ({error})"
    _found = count
    return count, None if count else "CuPy finds no GPU"


def places_of_cards():
    """Where on the machine's bus each GPU is that CuPy can use: texts such as "0000:04:00.0"."""
    count, _ = find_gpus()
    if count == 0:
        return []
    import cupy

    return [cupy.cuda.runtime.deviceGetPCIBusId(card) for card in range(count)]


@in_forked_process
def _note_fork():
    global _forked_from_cuda
    _forked_from_cuda = _forked_from_cuda or _found > 0
