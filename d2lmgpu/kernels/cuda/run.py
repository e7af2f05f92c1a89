"""Launching kernels, each compiled when it is first used on a GPU."""

import threading

from .source import read

_thread = threading.local()


def run(how, *arguments):
    """Launch a kernel on the current stream, compiled when it is first used on this device."""
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


def current_card():
    """The number of the GPU that is current on this thread."""
    import cupy

    return cupy.cuda.runtime.getDevice()


def finish_card():
    """Wait until the current GPU has done all work, in whatever stream."""
    import cupy

    cupy.cuda.Device().synchronize()
