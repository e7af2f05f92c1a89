"""Types with fewer bits than float32, in which tensor cores multiply."""

from .launch import Launch, ceil_div, macros

TYPES = {"tf32": 0, "float16": 1, "bfloat16": 2}
"""The type that factors are rounded to. float16 needs compute capability 7.5, the others 8.0."""

OLDEST = {"tf32": 80, "float16": 75, "bfloat16": 80}
"""The compute capability, times ten, from which on a type can be multiplied."""


def mixed_precision(name, n, interval=1):
    """A kernel of mixed_precision.cu on n numbers. ``interval``: the interval of update_scale."""
    blocks, threads = (1, 1) if name == "update_scale" else (min(ceil_div(n, 256), 1024), 256)
    return Launch("mixed_precision.cu", name, macros(INTERVAL=interval), (blocks,), (threads,))
