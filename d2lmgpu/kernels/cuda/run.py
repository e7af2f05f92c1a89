"""Kernels, from their source text to their launch: each is compiled when it is first used on a GPU.

The CUDA files are installed with the package.
"""

import re
import threading
from importlib import resources

import numpy as np

_thread = threading.local()


def run(how, *arguments):
    """Launch a kernel on the current stream; it is compiled when it is first used on this device."""
    kernels = _thread.__dict__.setdefault("kernels", {})
    key = (current_card(), how.file, how.options, how.name)
    if key not in kernels:
        kernels[key] = _module(how.file, how.options).get_function(how.name)
    kernels[key](how.grid, how.block, arguments)


def _module(file, options):
    import cupy

    modules = _thread.__dict__.setdefault("modules", {})
    key = (current_card(), file, options)
    if key not in modules:
        modules[key] = cupy.RawModule(code=read(file), options=("-std=c++17", *options))
    return modules[key]


def empty(shape, dtype=np.float32):
    """A new array on the current GPU, with arbitrary contents."""
    import cupy

    return cupy.empty(shape, dtype)


def current_card():
    """The number of the GPU that is current on this thread."""
    import cupy

    return cupy.cuda.runtime.getDevice()


def finish_card():
    """Wait until the current GPU has done all work, in all streams."""
    import cupy

    cupy.cuda.Device().synchronize()


def read(name):
    """The text of a CUDA file, for ``cupy.RawModule(code=...)``. Raises FileNotFoundError if there is no such file.

    Each ``#include "..."`` of a file in this folder is replaced by the file's text, because a compiler that is given
    text instead of a file does not know where to look.
    """
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    return re.sub(r'^#include "(.+)"$', lambda line: read(line[1]), text, flags=re.MULTILINE)
