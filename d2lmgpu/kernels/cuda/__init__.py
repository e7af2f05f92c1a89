"""Readable CUDA kernels (the ``.cu`` files), and how they are launched. Nothing here needs CuPy or a GPU to import."""

from .convolution import Convolution
from .launch import Launch
from .plan import Plan, count_correct, loss_and_grads
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
    "loss_and_grads",
    "read",
    "run",
    "sources",
]
