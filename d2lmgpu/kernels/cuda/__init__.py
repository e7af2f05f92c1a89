"""Readable CUDA kernels (the ``.cu`` files), and how they are launched. Nothing here needs CuPy or a GPU to import."""

from .convolution import Convolution
from .launch import Launch
from .plan import Plan, count_correct, in_parts, loss_and_grads
from .run import run
from .source import read, sources
from .stages import PRECISIONS, has_kernels

__all__ = [
    "PRECISIONS",
    "Convolution",
    "Launch",
    "Plan",
    "count_correct",
    "has_kernels",
    "in_parts",
    "loss_and_grads",
    "read",
    "run",
    "sources",
]
