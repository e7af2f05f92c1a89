"""Readable CUDA kernels (the ``.cu`` files), and how they are launched. Nothing here needs CuPy or a GPU to import."""

from .convolution import Convolution
from .launch import Launch
from .source import read, sources

__all__ = ["Convolution", "Launch", "read", "sources"]
