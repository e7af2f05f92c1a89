"""The arrays of recorder.py: NumPy's, with what the package uses of CuPy's."""

import types

import numpy as np


class Array:
    """NumPy's array, hidden, so that NumPy cannot take it by mistake."""

    __array_priority__ = 100

    def __init__(self, values):
        self.values = values

    def __getattr__(self, name):
        value = getattr(self.values, name)
        if not callable(value):
            return Array(value) if isinstance(value, np.ndarray) else value
        return lambda *args, **kwargs: _call(name, value, args, kwargs)

    @property
    def data(self):
        return types.SimpleNamespace(ptr=self.values.ctypes.data)

    @property
    def __cuda_array_interface__(self):
        return {"shape": self.shape, "typestr": self.dtype.str, "version": 3, "data": (self.data.ptr, False)}

    def __array_ufunc__(self, ufunc, method, *args, **kwargs):
        return _call(ufunc.__name__, getattr(ufunc, method), args, kwargs)

    def __array_function__(self, function, types, args, kwargs):
        return _call(function.__name__, function, args, kwargs)

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        result = self.values[_plain(index)]
        return Array(result if isinstance(result, np.ndarray) else np.asarray(result))

    def __setitem__(self, index, value):
        self.values[_plain(index)] = _plain(value)

    def set(self, values, stream=None):
        np.copyto(self.values, values)

    def get(self, stream=None, out=None, **kwargs):
        if out is None:
            return self.values.copy()
        np.copyto(out, self.values)
        return out

    def fill(self, value):
        self.values.fill(_plain(value))

    def __bool__(self):
        return bool(self.values)


def _operator(name):
    def do(self, *args):
        result = _call(name, getattr(self.values, name), args, {})
        return self if name.startswith("__i") else result

    return do


for _name in "add sub mul matmul truediv pow and eq ne lt le gt ge".split():
    for _dunder in (f"__{_name}__", f"__r{_name}__", f"__i{_name}__"):
        if hasattr(np.ndarray, _dunder):
            setattr(Array, _dunder, _operator(_dunder))
Array.__neg__, Array.__invert__ = _operator("__neg__"), _operator("__invert__")


def _plain(value):
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(item) for item in value)
    return value.values if isinstance(value, Array) else value


def _call(name, function, args, kwargs):
    if name.startswith("empty"):  # so that nothing depends on what was in the memory before
        function, args = np.zeros, [args[0].shape, args[0].dtype] if name == "empty_like" else args
    with np.errstate(all="ignore"):
        result = function(*_plain(list(args)), **{key: _plain(value) for key, value in kwargs.items()})
    if isinstance(result, np.generic):
        result = np.asarray(result)
    return kwargs["out"] if "out" in kwargs else Array(result) if isinstance(result, np.ndarray) else result


class Function:
    """A function of NumPy's, for arrays of this module."""

    def __init__(self, function):
        self.function = function

    def __call__(self, *args, **kwargs):
        return _call(self.function.__name__, self.function, args, kwargs)

    def __getattr__(self, name):
        return Function(getattr(self.function, name))
