"""What mixed precision needs of a GPU: tensor cores that multiply float16, and the kernels of mixed_precision.cu."""

from .launch import Launch, ceil_div, macros

OLDEST = 75
"""The compute capability, times ten, from which tensor cores multiply float16 as mma.cuh does."""


def mixed_precision(name, n, interval=1):
    """A kernel of mixed_precision.cu on n numbers. ``interval``: the interval of update_scale."""
    blocks, threads = (1, 1) if name == "update_scale" else (min(ceil_div(n, 256), 1024), 256)
    return Launch("mixed_precision.cu", name, macros(INTERVAL=interval), (blocks,), (threads,))
