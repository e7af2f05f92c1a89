"""A stand-in for the few parts of CuPy that the library uses, so that its GPU path runs without a GPU.

Arrays are NumPy arrays that know their card. The rules that matter are kept:
arrays are made on the current card, mixing cards or the host is an error, a
stream belongs to the card and thread that made it current, and copies between
cards go through ``memcpyPeerAsync``. Work is done at once, but standin_streams.py
checks that it would be ordered on a GPU too: that whoever uses memory has waited
for those who used it before. Kernels are the real CUDA sources, run by
cuda_on_cpu.py; captured work is recorded, and done when its graph is launched.
"""

import contextlib
import ctypes
import sys
import types

import cuda_on_cpu
import numpy as np
import standin_streams
from standin_streams import Event, Stream, on_stream

import d2lmgpu.collectives.library as library_module

_state = standin_streams.state


class CUDARuntimeError(RuntimeError):
    pass


class ndarray:
    """A CuPy array: no NumPy array, so that NumPy cannot take it by mistake."""

    __array_priority__ = 100

    def __init__(self, values, card):
        self.values, self.card = values, card

    def __getattr__(self, name):
        value = getattr(self.values, name)
        if name in ("reshape", "transpose", "view"):  # views launch nothing, so any thread may make them
            return lambda *args: self._view(value(*args))
        if callable(value):
            return lambda *args, **kwargs: _call(value, args, kwargs, self)
        return _result(value, self.card)

    def _view(self, values):
        if values.size and not np.may_share_memory(values, self.values):  # a reshape that had to copy
            standin_streams.forget(values)
            on_stream(None, [self.values], [values])
        return ndarray(values, self.card)

    @property
    def __cuda_array_interface__(self):
        return {"shape": self.shape, "typestr": self.dtype.str, "version": 3, "data": (self.values.ctypes.data, False)}

    @property
    def data(self):
        return types.SimpleNamespace(ptr=self.values.ctypes.data)

    def __array__(self, *args, **kwargs):
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    def __array_ufunc__(self, ufunc, method, *args, **kwargs):
        return _call(getattr(ufunc, method), args, kwargs)

    def __array_function__(self, function, types, args, kwargs):
        return _call(function, args, kwargs)

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        if _is_view(index):
            return ndarray(self.values[index], self.card)
        return _call(self.values.__getitem__, (index,), {}, self)

    def __setitem__(self, index, value):
        _check([self, value])
        index, value, values = _plain(index), value, self.values
        reads = [value.values] if isinstance(value, ndarray) else []
        on_stream(lambda: values.__setitem__(index, _plain(value)), reads, [values])

    def set(self, values):
        assert values.shape == self.shape and values.dtype == self.dtype and _state.stream.capture is None
        _check([self])
        on_stream(lambda: np.copyto(self.values, values), [], [self.values])  # the host's memory is no stream's

    def fill(self, value):
        self[...] = value

    def get(self, out=None):
        _check([self])
        on_stream(None, [self.values], [])
        _state.stream.synchronize()
        if out is None:
            return self.values.copy()
        assert out.shape == self.shape and out.dtype == self.dtype and out.flags.c_contiguous
        np.copyto(out, self.values)
        return out

    def __bool__(self):
        return bool(self.get())


def _is_view(index):
    parts = index if isinstance(index, tuple) else (index,)
    return all(part is ... or isinstance(part, (int, slice, type(None))) for part in parts)


def _operator(name):
    return lambda self, *args: _call(getattr(self.values, name), args, {}, self)


OPERATORS = "add sub mul matmul truediv pow and eq ne lt le gt ge".split()
IN_PLACE = {f"__i{name}__" for name in OPERATORS}
for _name in OPERATORS:
    for _prefix in ("", "r", "i"):
        _dunder = f"__{_prefix}{_name}__"
        if hasattr(np.ndarray, _dunder):
            setattr(ndarray, _dunder, _operator(_dunder))
ndarray.__neg__, ndarray.__invert__ = _operator("__neg__"), _operator("__invert__")


def _current():
    return getattr(_state, "card", 0)


def _check(values):
    for value in values:
        if isinstance(value, (list, tuple)):
            _check(value)
        elif isinstance(value, np.ndarray):
            raise TypeError("Unsupported type <class 'numpy.ndarray'>")
        elif isinstance(value, ndarray) and value.card != _current():
            raise ValueError(f"array of card {value.card} used on card {_current()}")
        elif isinstance(value, ndarray) and _state.stream.card != _current():
            raise ValueError("the current stream is another card's")


def _plain(value):
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(item) for item in value)
    return value.values if isinstance(value, ndarray) else value


def _result(value, card):
    if isinstance(value, (np.ndarray, np.generic)):
        value = np.asarray(value)
        if value.base is None:
            standin_streams.forget(value)
        return ndarray(value, card)
    return value


def _call(function, args, kwargs, *more):
    _check([*args, *kwargs.values(), *more])
    out = kwargs.get("out")
    in_place = getattr(function, "__name__", "") in IN_PLACE
    reads = [array.values for array in _arrays([*args, *kwargs.values(), *more])]
    writes = [out.values] if out is not None else [more[0].values] if in_place else []

    def work():
        return function(*_plain(list(args)), **{key: _plain(value) for key, value in kwargs.items()})

    result = on_stream(work, reads, writes, makes_array=not writes)
    return out if out is not None else more[0] if in_place else _result(result, _current())


def _arrays(values):
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _arrays(value)
        elif isinstance(value, ndarray):
            yield value


class Device:
    pci_bus_id = "0000:01:00.0"
    mem_info = (60 * 2**30, 80 * 2**30)
    attributes = {"MultiProcessorCount": 6}

    def __init__(self, card=None):
        self.id = _current() if card is None else card

    def use(self):
        _state.card = self.id

    def __enter__(self):
        self.outer = _current()
        self.use()

    def __exit__(self, *exception):
        _state.card = self.outer


def _memcpy_peer(target, target_card, source, source_card, nbytes, stream):
    assert target_card == _current() and stream == _state.stream.ptr
    work = lambda: ctypes.memmove(target, source, nbytes)  # noqa: E731
    on_stream(work, [(source, source + nbytes)], [(target, target + nbytes)])


class RawModule:
    """The real sources, compiled for the CPU."""

    def __init__(self, *, code, options):
        self.module, self.card = cuda_on_cpu.RawModule(code=code, options=options), _current()

    def get_function(self, name):
        kernel, card = self.module.get_function(name), self.card

        def launch(grid, block, args, shared_mem=0):
            assert card == _current(), "a module of another card"
            _check(args)
            arrays = [arg.values if isinstance(arg, ndarray) else arg for arg in args]
            pairs = [(a, p) for a, p in zip(arrays, kernel.parameters, strict=True) if p.is_pointer]
            writes = [a for a, p in pairs if not p.is_const]
            on_stream(lambda: kernel(grid, block, arrays), [a for a, _ in pairs], writes)

        return launch


class MemoryPool:
    """Arrays are not made from it: only who uses which pool is known."""

    limit = None

    def set_limit(self, size):
        self.limit = size

    def malloc(self, size):
        raise AssertionError("the stand-in makes arrays by itself")


@contextlib.contextmanager
def _using_allocator(malloc):
    pools = _state.__dict__.setdefault("pools", [])
    pools.append(malloc.__self__)
    try:
        yield
    finally:
        assert pools.pop() is malloc.__self__


def install(monkeypatch, cards):
    """Let ``import cupy`` give a stand-in with this number of cards."""
    cupy = types.ModuleType("cupy")
    runtime = types.SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError,
        getDeviceCount=lambda: cards,
        getDevice=_current,
        getDeviceProperties=lambda card: {"name": b"Stand-in", "major": 9, "minor": 0},
        memcpyPeerAsync=_memcpy_peer,
    )
    cupy.cuda = types.SimpleNamespace(
        Device=Device,
        Stream=Stream,
        Event=Event,
        runtime=runtime,
        get_elapsed_time=lambda begin, end: 1000 * (end.time - begin.time),
        Graph=standin_streams.Graph,
        MemoryPool=MemoryPool,
        using_allocator=_using_allocator,
    )
    cupy.ndarray = ndarray
    cupy.RawModule = RawModule
    standin_streams.restart()
    cupy.array = lambda values: _result(np.array(values), _current())
    cupy.lib = types.SimpleNamespace(
        stride_tricks=types.SimpleNamespace(
            as_strided=lambda x, **kwargs: _call(np.lib.stride_tricks.as_strided, (x,), kwargs)
        )
    )
    cupy.__getattr__ = lambda name: _Function(getattr(np, name))
    monkeypatch.setitem(sys.modules, "cupy", cupy)


def install_nccl(monkeypatch):
    """Let ``from cupy.cuda import nccl`` give a stand-in; returns the list of calls that it gets."""
    calls = []

    class NcclCommunicator:
        def __init__(self, card):
            self.card = card

        @classmethod
        def initAll(cls, cards):
            return [cls(card) for card in cards]

        def allReduce(self, source, target, count, kind, op, stream):
            calls.append((self.card, _current(), count, kind, op))

    library = types.ModuleType("cupy.cuda.nccl")
    library.NcclCommunicator, library.NCCL_SUM = NcclCommunicator, "sum"
    library.NCCL_FLOAT16, library.NCCL_FLOAT32, library.NCCL_FLOAT64 = "float16", "float32", "float64"
    cuda = types.ModuleType("cupy.cuda")
    cuda.nccl = library
    monkeypatch.setitem(sys.modules, "cupy.cuda", cuda)
    monkeypatch.setitem(sys.modules, "cupy.cuda.nccl", library)
    communicators = library_module._communicators.__wrapped__  # not the remembered ones, which may be real
    monkeypatch.setattr(library_module, "_communicators", communicators)
    return calls


class _Function:
    """A NumPy function on stand-in arrays."""

    def __init__(self, function):
        self.function = function

    def __call__(self, *args, **kwargs):
        return _call(self.function, args, kwargs)

    def __getattr__(self, name):  # cupy.add.reduce
        return _Function(getattr(self.function, name))
