"""A module in the place of CuPy that writes down what it is asked for: see launches.py.

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


class Node(NamedTuple):
    """A kernel, a copy, or a NumPy-like operation ("elementwise") of one stream.

    ``after``: the numbers of the nodes that it waits for. A kernel has ``code``,
    ``options``, ``grid``, ``block``, ``shared_bytes`` (dynamic) and ``arguments``:
    `Memory` or NumPy scalars. Others have ``nbytes``.
    """

    kind: str
    name: str
    card: int
    after: tuple[int, ...]
    code: str = ""
    options: tuple[str, ...] = ()
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    shared_bytes: int = 0
    arguments: tuple = ()
    nbytes: int = 0


class Memory(NamedTuple):
    """An array among a kernel's arguments: where it is, and if it holds whole numbers these, as they are now."""

    address: int
    nbytes: int
    card: int
    values: object


class Recorder:
    """The module, and what it wrote down: ``nodes`` since the beginning, ``captured`` of the last capture."""

    def __init__(self, cards):
        self.cards, self.nodes, self.captured = cards, [], []
        self.thread = threading.local()
        self.addresses, self.free = {}, 0x10000
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

    def add(self, kind, name, **fields):
        stream = self.stream
        self.nodes.append(Node(kind, name, self.card, tuple(sorted(stream.last)), **fields))
        stream.last = {len(self.nodes) - 1}

    def place(self, values):
        """(address, card). As a real allocator: each array that owns its memory begins at a multiple of 512 bytes."""
        base = values
        while isinstance(base.base, np.ndarray):
            base = base.base
        key = base.ctypes.data
        if key not in self.addresses:
            self.addresses[key] = self.free, base, self.card  # kept, so that no other array gets this place
            self.free += -(-max(1, base.nbytes) // 512) * 512
        return self.addresses[key][0] + values.ctypes.data - key, self.addresses[key][2]

    def memory(self, argument):
        if not isinstance(argument, Array):
            return argument
        values = argument.values
        address, card = self.place(values)
        whole = values.dtype.kind in "iu" and values.dtype.itemsize == 4
        return Memory(address, values.nbytes, card, values if whole else None)


class Stream:
    def __init__(self, recorder, *args, **kwargs):
        self.recorder, self.ptr, self.last = recorder, next(recorder.streams), set()

    def use(self):
        self.recorder.thread.stream = self
        return self

    def __enter__(self):
        self.outer = self.recorder.stream
        return self.use()

    def __exit__(self, *exception):
        self.recorder.thread.stream = self.outer

    def record(self, event=None):
        event = event or Event(self.recorder)
        event.last = set(self.last)
        return event

    def wait_event(self, event):
        self.last |= event.last

    def synchronize(self):
        pass

    def begin_capture(self, mode=None):
        self.first, self.last = len(self.recorder.nodes), set()

    def end_capture(self):
        recorder, first = self.recorder, self.first
        nodes = recorder.nodes[first:]
        recorder.captured = [
            node._replace(after=tuple(number - first for number in node.after if number >= first)) for node in nodes
        ]
        return types.SimpleNamespace(upload=lambda *args: None, launch=lambda *args: None)


class Event:
    def __init__(self, recorder, *args, **kwargs):
        self.recorder, self.last = recorder, set()

    def record(self, stream=None):
        (stream or self.recorder.stream).record(self)

    def synchronize(self):
        pass


class _Kernel:
    def __init__(self, recorder, code, options, name):
        self.recorder, self.code, self.options, self.name = recorder, code, tuple(options), name

    def __call__(self, grid, block, args, *, shared_mem=0):
        fields = {"code": self.code, "options": self.options, "grid": tuple(grid), "block": tuple(block)}
        arguments = tuple(self.recorder.memory(argument) for argument in args)
        self.recorder.add("kernel", self.name, shared_bytes=shared_mem, arguments=arguments, **fields)


def _make_module(recorder):
    Array.recorder = recorder

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
        recorder.add("copy", "copy", nbytes=nbytes)

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
    cuda.Event = lambda *args, **kwargs: Event(recorder)
    cuda.get_current_stream = lambda *args: recorder.stream
    cuda.get_elapsed_time = lambda begin, end: 0.0
    cuda.using_allocator = lambda *args: contextlib.nullcontext()
    cuda.MemoryPool = lambda *args: types.SimpleNamespace(set_limit=lambda **kwargs: None, malloc=None)
    module = types.ModuleType("cupy")
    module.__dict__.update(cuda=cuda, ndarray=Array, RawModule=RawModule)
    module.__getattr__ = lambda name: Function(getattr(np, name))
    return module
