"""A module in the place of CuPy that writes down the kernels that it is asked for: see record.py.

It knows as much of CuPy as the package uses on the way to a captured step. tests/standin_cupy.py is the strict one,
which runs kernels and finds mistakes; this one asks for nothing, so that it is quick for any number of images.
"""

import contextlib
import ctypes
import itertools
import threading
import types
from typing import NamedTuple

import numpy as np

from .recorded_arrays import Array, Function


class Launch(NamedTuple):
    """A launch of a kernel of the source ``code``; ``shared_bytes``: of dynamic shared memory."""

    name: str
    code: str
    options: tuple[str, ...]
    block: tuple[int, ...]
    shared_bytes: int


class Recorder:
    """The module, and what it wrote down: ``launches`` since the beginning, ``captured`` of the last capture."""

    def __init__(self, cards):
        self.cards, self.launches, self.captured = cards, [], []
        self.thread = threading.local()
        self.streams = itertools.count(1)
        self.module = _make_module(self)

    @property
    def card(self):
        return getattr(self.thread, "card", 0)

    @property
    def stream(self):
        if not hasattr(self.thread, "stream"):
            self.thread.stream = Stream(self)
        return self.thread.stream


class Stream:
    def __init__(self, recorder, *args, **kwargs):
        self.recorder, self.ptr = recorder, next(recorder.streams)

    def use(self):
        self.recorder.thread.stream = self
        return self

    def __enter__(self):
        self.outer = self.recorder.stream
        return self.use()

    def __exit__(self, *exception):
        self.recorder.thread.stream = self.outer

    def record(self, event=None):
        return event or Event()

    def wait_event(self, event):
        pass

    def synchronize(self):
        pass

    def begin_capture(self, mode=None):
        self.first = len(self.recorder.launches)

    def end_capture(self):
        self.recorder.captured = self.recorder.launches[self.first :]
        return types.SimpleNamespace(upload=lambda *args: None, launch=lambda *args: None)


class Event:
    def record(self, stream=None):
        pass

    def synchronize(self):
        pass


class _Kernel:
    def __init__(self, recorder, code, options, name):
        self.recorder, self.code, self.options, self.name = recorder, code, tuple(options), name

    def __call__(self, grid, block, args, *, shared_mem=0):
        self.recorder.launches.append(Launch(self.name, self.code, self.options, tuple(block), shared_mem))


def _make_module(recorder):
    class RawModule:
        def __init__(self, *, code, options=(), **kwargs):
            self.code, self.options = code, options

        def get_function(self, name):
            return _Kernel(recorder, self.code, self.options, name)

    class Device:
        def __init__(self, card=None):
            self.id = recorder.card if card is None else card
            self.attributes = {"MultiProcessorCount": 132}
            self.compute_capability, self.pci_bus_id, self.mem_info = "90", "0000:01:00.0", (60 << 30, 80 << 30)

        def use(self):
            recorder.thread.card = self.id

        def __enter__(self):
            self.outer = recorder.card
            self.use()

        def __exit__(self, *exception):
            recorder.thread.card = self.outer

        def synchronize(self):
            pass

    def copy(target, source, nbytes, *rest):
        ctypes.memmove(target, source, nbytes)

    runtime = types.SimpleNamespace(
        CUDARuntimeError=type("CUDARuntimeError", (RuntimeError,), {}),
        getDeviceCount=lambda: recorder.cards,
        getDevice=lambda: recorder.card,
        setDevice=lambda card: setattr(recorder.thread, "card", card),
        runtimeGetVersion=lambda: 13000,
        getDeviceProperties=lambda card: {"name": b"recorder", "major": 9, "minor": 0, "multiProcessorCount": 132},
        memcpyPeerAsync=lambda target, card, source, other, nbytes, *rest: copy(target, source, nbytes),
        memcpyAsync=copy,
        memcpyDefault=4,
        deviceCanAccessPeer=lambda card, other: 1,
        deviceEnablePeerAccess=lambda card: None,
    )
    cuda = types.ModuleType("cupy.cuda")
    cuda.__dict__.update(runtime=runtime, Device=Device)
    cuda.Stream = lambda *args, **kwargs: Stream(recorder)
    cuda.Event = lambda *args, **kwargs: Event()
    cuda.get_current_stream = lambda *args: recorder.stream
    cuda.get_elapsed_time = lambda begin, end: 0.0
    cuda.using_allocator = lambda *args: contextlib.nullcontext()
    cuda.MemoryPool = lambda *args: types.SimpleNamespace(set_limit=lambda **kwargs: None, malloc=None)
    module = types.ModuleType("cupy")
    module.__dict__.update(cuda=cuda, ndarray=Array, RawModule=RawModule)
    module.__getattr__ = lambda name: Function(getattr(np, name))
    return module
