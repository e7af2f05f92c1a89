"""A stand-in for the few parts of CuPy that the library uses, so that its GPU path runs without a GPU.

Arrays are NumPy arrays that know their card. It keeps the rules of CuPy and of CUDA, and is stricter than they are:
standin_driver.py says what may be called when, standin_streams.py which stream is current and who waits for whom,
standin_memory.py who may use which memory. Kernels are the real CUDA sources, run by cuda_on_cpu.py; captured work is
recorded, and done when its graph is launched.
"""

import contextlib
import ctypes
import sys
import types

import cuda_on_cpu
import numpy as np
import pytest
import standin_driver
import standin_memory
import standin_streams
from standin_driver import CUDARuntimeError, Machine, call, current_card, set_device, thread
from standin_memory import Block
from standin_streams import Event, Stream, current_stream, elapsed_milliseconds, on_stream, stream_of

from d2lmgpu.devices.workers import THREADS


class ndarray:
    """A CuPy array: no NumPy array, so that NumPy cannot take it by mistake. It holds the block of its bytes."""

    __array_priority__ = 100

    def __init__(self, values, card, block, base=None):
        self.values, self.card, self.block = values, card, block
        self.base = base  # None: no view

    def __getattr__(self, name):
        if name.startswith("__"):  # by which NumPy would take the values
            raise AttributeError(name)
        value = getattr(self.values, name)
        if name in ("reshape", "transpose", "view"):  # views launch nothing, so any thread may make them
            return lambda *args: self._view(value(*args))
        if callable(value):
            return lambda *args, **kwargs: _call(value, args, kwargs, self)
        return _result(value, [self])

    def _view(self, values):
        if values.size and not np.may_share_memory(values, self.values):  # a reshape that had to copy
            new = _new(values.shape, values.dtype)
            target = new.values
            on_stream("launchKernel", lambda: np.copyto(target, values), [self.values], [target])
            return new
        return ndarray(values, self.card, self.block, self if self.base is None else self.base)

    @property
    def __cuda_array_interface__(self):
        return {"shape": self.shape, "typestr": self.dtype.str, "version": 3, "data": (self.values.ctypes.data, False)}

    def __dlpack_device__(self):
        return DL_CUDA, self.card

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """The array itself stands for a capsule. The reader's ``stream`` waits for what is current here, as with CuPy.

        Stricter: CuPy takes any card as the current one, and copies to the host if the reader asks for that.
        """
        if type(stream) not in (int, type(None)) or stream == 0 or (stream or 0) < -1:
            raise ValueError(f"the valid stream for the DLPack protocol is -1, 1, 2, or any larger value, not {stream}")
        assert self.card == current_card() and copy is None and dl_device in (None, self.__dlpack_device__())
        if stream != -1:
            stream_of(stream or 1, self.card).wait_event(current_stream().record())
        return self

    @property
    def data(self):
        return types.SimpleNamespace(ptr=self.values.ctypes.data)

    @property
    def device(self):
        return Device(self.card)

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
            return self._view(self.values[index])
        return _call(self.values.__getitem__, (index,), {}, self)

    def __setitem__(self, index, value):
        if isinstance(value, np.ndarray) and value.ndim:
            raise TypeError("Unsupported type <class 'numpy.ndarray'>")
        _check([self, value])
        index, plain, values = _plain(index), _plain(value), self.values
        reads = [plain] if isinstance(value, ndarray) else []
        on_stream("launchKernel", lambda: values.__setitem__(index, plain), reads, [values])

    def set(self, values):
        """From the host's memory, which is read at some time until somebody waits for this stream."""
        assert values.shape == self.shape and values.dtype == self.dtype and self.flags.c_contiguous
        values, target = np.ascontiguousarray(values), self.values
        with _device(self.card, current_stream()):
            on_stream("memcpyAsync host to device", lambda: np.copyto(target, values), [], [target])
            standin_memory.copy_from_host(current_stream(), values)

    def fill(self, value):
        self[...] = value

    def get(self, out=None):
        stream = current_stream()
        source = self
        if not (self.flags.c_contiguous and (out is None or out.flags.c_contiguous)):
            assert out is None or out.flags.c_contiguous
            with stream:  # as CuPy does, which changes the current stream of who had not entered one
                source = _call(np.ascontiguousarray, (self,), {})
        with _device(self.card, stream):
            on_stream("memcpyAsync device to host", None, [source.values], [])
            stream.synchronize()
        if out is None:
            return source.values.copy()
        assert out.shape == self.shape and out.dtype == self.dtype
        np.copyto(out, source.values)
        return out

    def __bool__(self):
        return bool(self.get())


@contextlib.contextmanager
def _device(card, stream):
    """Copies with the host make the array's card current, and use the stream that was current before."""
    before, thread.card = current_card(), card
    standin_streams.stack_of(card).append(stream)
    try:
        yield
    finally:
        standin_streams.stack_of(card).pop()
        thread.card = before


def _is_view(index):
    parts = index if isinstance(index, tuple) else (index,)
    return all(part is ... or isinstance(part, (int, slice, type(None))) for part in parts)


def _operator(name):
    return lambda self, *args: _call(getattr(self.values, name), args, {}, self)


OPERATORS = "add sub mul matmul truediv pow and xor rshift eq ne lt le gt ge".split()
IN_PLACE = {f"__i{name}__" for name in OPERATORS}
for _name in OPERATORS:
    for _prefix in ("", "r", "i"):
        _dunder = f"__{_prefix}{_name}__"
        if hasattr(np.ndarray, _dunder):
            setattr(ndarray, _dunder, _operator(_dunder))
ndarray.__neg__, ndarray.__invert__ = _operator("__neg__"), _operator("__invert__")


def _check(values):
    """CuPy's ufuncs read another card's memory where they can, and warn; matrix products go wrong. Here: never."""
    for value in values:
        if isinstance(value, (list, tuple)):
            _check(value)
        elif isinstance(value, np.ndarray):
            raise TypeError("Unsupported type <class 'numpy.ndarray'>")
        elif isinstance(value, ndarray) and value.card != current_card():
            raise ValueError(f"array of card {value.card} used on card {current_card()}")


def _plain(value):
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(item) for item in value)
    return value.values if isinstance(value, ndarray) else value


def _new(shape, dtype):
    """An array in new memory of the current card, taken by the current stream."""
    dtype = np.dtype(dtype)
    pools = thread.__dict__.get("pools")
    block = Block(int(np.prod(shape)) * dtype.itemsize, current_stream(), pools[-1] if pools else None)
    return ndarray(block.array(shape, dtype), current_card(), block)


def _result(value, arrays):
    """What a NumPy function of ``arrays`` gave: a view of one of them, or something new."""
    if isinstance(value, (list, tuple)):
        return type(value)(_result(item, arrays) for item in value)
    if not isinstance(value, (np.ndarray, np.generic)):
        return value
    value = np.asarray(value)
    for array in arrays:
        if value.size and np.may_share_memory(value, array.block.values):
            return ndarray(value, array.card, array.block, array if array.base is None else array.base)
    new = _new(value.shape, value.dtype)
    new.values[...] = value
    return new


def _asarray(values, dtype=None):
    """The array itself if it is one of this type already; otherwise something new."""
    if not isinstance(values, ndarray):
        return _array(np.asarray(values, dtype))
    return values if dtype in (None, values.dtype) else values.astype(dtype)


def _call(function, args, kwargs, *more):
    """A NumPy function as one kernel. ``more``: the array whose method it is."""
    _check([*args, *kwargs.values(), *more])
    out = kwargs.get("out")
    in_place = getattr(function, "__name__", "") in IN_PLACE
    arrays = list(_arrays([*args, *kwargs.values(), *more]))
    written = out if out is not None else more[0] if in_place else None
    plain_args, plain_kwargs = _plain(list(args)), {key: _plain(value) for key, value in kwargs.items()}
    values = [array.values for array in arrays]

    def work():
        return function(*plain_args, **plain_kwargs)

    name = (
        "cublas"
        if getattr(function, "__name__", "") in ("matmul", "dot", "tensordot", "__matmul__")
        else "launchKernel"
    )
    if written is None and current_stream().capture is not None:
        return _captured(name, work, arrays)
    result = on_stream(name, work, values, [] if written is None else [written.values])
    if written is not None:
        return written
    result = _result(result, arrays)
    for new in _arrays([result]):
        if all(new.block is not array.block for array in arrays):
            on_stream("memsetAsync", None, [], [new.values])  # it is this stream that wrote it
    return result


def _captured(name, work, arrays):
    """What a NumPy function of ``arrays`` will give when it is done: a view of one of them, or a new array."""
    result = _result(work(), arrays)
    if all(result.block is not array.block for array in arrays):
        target = result.values
        on_stream(name, lambda: np.copyto(target, work()), [array.values for array in arrays], [target])
    return result


def _arrays(values):
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _arrays(value)
        elif isinstance(value, ndarray):
            yield value


class Device:
    attributes = {"MultiProcessorCount": 6}

    def __init__(self, card=None):
        self.id = current_card() if card is None else card

    def use(self):
        set_device(self.id)

    def synchronize(self):
        call("deviceSynchronize", current_stream().capture)
        standin_memory.wait_for_card(self.id)

    def __enter__(self):
        thread.__dict__.setdefault("outer_cards", []).append(current_card())
        self.use()
        return self

    def __exit__(self, *exception):
        set_device(thread.outer_cards.pop())


DL_CUDA = 2


def _from_dlpack(array):
    """As a reader of another library: the same memory, used on the current stream of its card."""
    kind, card = array.__dlpack_device__()
    assert kind == DL_CUDA
    with Device(card):
        given = array.__dlpack__(stream=current_stream().ptr or 1, max_version=(1, 0))
    return given._view(given.values)


MEMCPY_DEFAULT = 4


def _memcpy_async(target, source, nbytes, kind, stream):
    """Between any two places of the cards' memory. Without peer access it goes through the host: not in a capture."""
    assert kind == MEMCPY_DEFAULT, "the stand-in copies from card to card"
    here, there = standin_memory.card_of(target), standin_memory.card_of(source)
    direct = standin_driver.machine.reaches(current_card(), here) and standin_driver.machine.reaches(
        current_card(), there
    )
    _copy("device to device" if direct else "through the host", target, here, source, there, nbytes, stream)


def _copy(how, target, here, source, there, nbytes, stream):
    current = current_stream()
    assert stream == current.ptr, "a copy on a stream that is not the current one"
    do = ctypes.memmove
    if here != there and not standin_driver.machine.reaches(here, there):
        standin_driver.machine.staged.append((there, here, nbytes))
    elif here != there and standin_driver.machine.garbles("copies", here):
        do = lambda target, source, nbytes: ctypes.memset(target, 1, nbytes)  # noqa: E731
    work = lambda: do(target, source, nbytes)  # noqa: E731
    on_stream(f"memcpyAsync {how}", work, [(source, source + nbytes)], [(target, target + nbytes)])


class RawModule:
    """The real sources, compiled for the CPU."""

    def __init__(self, *, code, options):
        call("moduleLoad", current_stream().capture)
        self.module, self.card = cuda_on_cpu.RawModule(code=code, options=options), current_card()
        self.options = options

    def get_function(self, name):
        call("moduleGetFunction", current_stream().capture)
        kernel, card = self.module.get_function(name), self.card

        def launch(grid, block, args):
            if card != current_card():
                raise CUDARuntimeError("cudaErrorInvalidResourceHandle")
            arrays = []
            for arg in args:
                if isinstance(arg, np.ndarray):
                    raise TypeError("Unsupported type <class 'numpy.ndarray'>")
                if isinstance(arg, ndarray) and not standin_driver.machine.reaches(card, arg.card):
                    raise CUDARuntimeError("cudaErrorIllegalAddress")
                arrays.append(_plain(arg))
            pairs = [(a, p) for a, p in zip(arrays, kernel.parameters, strict=True) if p.is_pointer]
            writes = [a for a, p in pairs if not p.is_const]
            across = any(isinstance(arg, ndarray) and arg.card != card for arg in args)
            garbled = across and standin_driver.machine.garbles("kernels", card)
            work = (lambda: None) if garbled else lambda: kernel(grid, block, arrays)
            on_stream("launchKernel", work, [a for a, _ in pairs], writes)

        return launch


class MemoryPool(standin_memory.Pool):
    """Its limit is known, and not kept."""

    limit = None

    def set_limit(self, size):
        self.limit = size

    def malloc(self, size):
        raise AssertionError("the stand-in makes arrays by itself")


@contextlib.contextmanager
def _using_allocator(malloc):
    pools = thread.__dict__.setdefault("pools", [])
    pools.append(malloc.__self__)
    try:
        yield
    finally:
        assert pools.pop() is malloc.__self__


def _array(values):
    """CuPy copies it to pinned memory of its own first, so that the host's may change."""
    values = np.asarray(values)
    new = _new(values.shape, values.dtype)
    target, values = new.values, np.array(values, order="C")
    on_stream("memcpyAsync pinned to device", lambda: np.copyto(target, values), [], [target])
    return new


def _filled(value):
    def make(shape, *args):
        dtype = args[-1] if args else np.float64
        new = _new(shape, dtype)
        if value is not None or len(args) > 1:
            target, number = new.values, args[0] if len(args) > 1 else value
            on_stream("memsetAsync", lambda: target.fill(number), [], [target])
        return new

    return make


def install(monkeypatch, cards=2, **machine):
    """Let ``import cupy`` give a stand-in with this number of cards; returns its `Machine`, made with ``machine``."""
    if not THREADS:
        pytest.skip("each card has a thread")
    standin_driver.start(Machine(cards, **machine))
    standin_streams.restart()
    cupy = types.ModuleType("cupy")
    runtime = types.SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError,
        getDeviceCount=lambda: standin_driver.machine.cards,
        getDevice=current_card,
        setDevice=set_device,
        getDeviceProperties=standin_driver.properties_of,
        runtimeGetVersion=lambda: standin_driver.machine.version,
        driverGetVersion=lambda: standin_driver.machine.version,
        deviceGetPCIBusId=standin_driver.place_of,
        deviceCanAccessPeer=standin_driver.can_access_peer,
        deviceEnablePeerAccess=standin_driver.enable_peer_access,
        deviceDisablePeerAccess=standin_driver.disable_peer_access,
        memcpyAsync=_memcpy_async,
        memcpyDefault=MEMCPY_DEFAULT,
    )
    cupy.cuda = types.SimpleNamespace(
        Device=Device,
        Stream=Stream,
        Event=Event,
        runtime=runtime,
        driver=types.SimpleNamespace(CUDADriverError=standin_driver.CUDADriverError),
        get_current_stream=current_stream,
        get_elapsed_time=elapsed_milliseconds,
        Graph=standin_streams.Graph,
        MemoryPool=MemoryPool,
        using_allocator=_using_allocator,
    )
    cupy.ndarray, cupy.__version__ = ndarray, "stand-in"
    cupy.RawModule = RawModule
    cupy.RawKernel = lambda code, name: RawModule(code=code, options=()).get_function(name)
    cupy.asarray, cupy.from_dlpack = _asarray, _from_dlpack
    cupy.array = lambda values, dtype=None: (
        _call(np.array, (values, dtype), {}) if isinstance(values, ndarray) else _asarray(values, dtype)
    )
    cupy.empty, cupy.zeros, cupy.ones = _filled(None), _filled(0), _filled(1)
    cupy.full = lambda shape, value, dtype: _filled(None)(shape, value, dtype)
    cupy.lib = types.SimpleNamespace(
        stride_tricks=types.SimpleNamespace(
            as_strided=lambda x, **kwargs: _call(np.lib.stride_tricks.as_strided, (x,), kwargs)
        )
    )
    cupy.__getattr__ = _function_of_numpy
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    cupyx = types.ModuleType("cupyx")
    cupyx.empty_pinned = standin_memory.empty_pinned
    monkeypatch.setitem(sys.modules, "cupyx", cupyx)
    return standin_driver.machine


def _function_of_numpy(name):
    if name.startswith("__"):  # Python asks a module for its path, for example
        raise AttributeError(name)
    return _Function(getattr(np, name))


class _Function:
    """A NumPy function on stand-in arrays."""

    def __init__(self, function):
        self.function = function

    def __call__(self, *args, **kwargs):
        if not isinstance(self.function, np.ufunc) and self.function not in (np.arange, np.where):
            first = args[0][0] if isinstance(args[0], (list, tuple)) else args[0]
            if not isinstance(first, ndarray):  # a number is enough for NumPy's, and for ufuncs
                expected = "expected cupy._core.core._ndarray_base"
                raise TypeError(f"Argument 'array' has incorrect type ({expected}, got {type(first).__name__})")
        return _call(self.function, args, kwargs)

    def __getattr__(self, name):  # cupy.add.reduce
        return _Function(getattr(self.function, name))
