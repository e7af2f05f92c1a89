"""`DeviceArray`: an array that knows which device it is on.

`DeviceArray` holds a plain NumPy or CuPy array and the device in whose memory it lies. Everything that NumPy can do
with it (operators, functions such as ``np.concatenate``, ``out=``, indexing, assignment) passes one check: *all arrays
of an operation must be in one place*, on the same device; otherwise an error is raised. The work itself is done in the
device's queue, after all work submitted before it.

The check uses NumPy's two protocols for array-like classes:
``__array_ufunc__`` (NEP 13) and ``__array_function__`` (NEP 18).
"""

import functools
import operator
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ..base.arguments import scalar
from ..base.foreign import as_numpy, is_foreign
from ..base.names import no_attribute
from .errors import HOST, DeviceMismatchError
from .records import note_transfer
from .workers import current_device, moment

F = TypeVar("F", bound=Callable)


class DeviceArray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array in the memory of ``device``, made by `put` or by work that ran there.

    ``raw`` is the plain array. It is for this package's own code, not for getting around the rules.
    """

    __slots__ = ("raw", "device", "made", "__weakref__")

    _ATTRIBUTES = frozenset("shape dtype ndim size nbytes itemsize strides flags".split())
    _METHODS = frozenset(
        "all any argmax argmin argsort astype clip copy cumsum dot fill flatten max mean min prod "
        "ravel repeat reshape round sort squeeze std sum swapaxes take transpose var view".split()
    )

    def __init__(self, raw, device):
        self.raw = raw
        self.device = device
        # When it was made, as `Task.submitted`: only later work can have spoilt it. A view's memory may be older.
        self.made = moment() if raw.base is None else 0
        if device.accounting is not None:
            device.accounting.enter(raw)

    def __getattr__(self, name) -> Any:
        if name in self._ATTRIBUTES:
            return getattr(self.raw, name)
        if name in self._METHODS:
            return functools.partial(apply_on_device, name, _call_method, name, self)
        known = hasattr(np.ndarray, name) or name in ("get", "numpy")  # of CuPy and PyTorch
        advice = "; d2l.to_host(x) copies it into a NumPy array" if known else ""
        raise no_attribute(f"a device array has no {name!r}{advice}", name)

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **kwargs):
        for value in inputs:
            if isinstance(value, (list, tuple)):  # a list is data of the host program
                raise DeviceMismatchError(ufunc.__name__, self.device, HOST, "a list")
        function = getattr(array_module(self), ufunc.__name__)
        if method != "__call__":
            function = getattr(function, method)
        if out is None:
            return apply_on_device(ufunc.__name__, function, *inputs, **kwargs)
        target = out[0] if len(out) == 1 else out  # divmod and some others have two
        apply_on_device(ufunc.__name__, function, *inputs, out=target, **kwargs)
        return target

    def __array_function__(self, function, types, args, kwargs):
        return apply_on_device(function.__name__, function, *args, **kwargs)

    def __array__(self, dtype=None, copy=None):
        # NumPy calls this where host code uses a device array as a NumPy array, without `to_host`.
        raise DeviceMismatchError("conversion to a NumPy array", HOST, self.device)

    # Another library may use a GPU's memory as it is: the data stay there. A library on the host may use no device's.

    def __dlpack_device__(self):
        if self.device.kind == "cpu":
            raise DeviceMismatchError("conversion by DLPack", HOST, self.device)
        return self.raw.__dlpack_device__()

    def __dlpack__(self, *, dl_device=None, **options):
        # CuPy lets the other library's stream wait for the stream that is current: in the queue, the device's own.
        if dl_device not in (None, self.__dlpack_device__()):
            raise DeviceMismatchError("conversion by DLPack", HOST, self.device)
        return self.device.submit(functools.partial(self.raw.__dlpack__, **options)).result()

    def __getitem__(self, index) -> "DeviceArray":
        parts = tuple(map(scalar, index if isinstance(index, tuple) else (index,)))
        if all(part is None or part is ... or isinstance(part, (int, slice)) for part in parts):
            if not any(part is ... for part in parts):
                parts += (...,)  # makes NumPy return a view, not a scalar, even of one element
            return DeviceArray(self.raw[parts], self.device)  # reads nothing, so it waits for nothing
        return apply_on_device("indexing", operator.getitem, self, index)

    def __setitem__(self, index, value):
        if isinstance(value, (list, tuple)):
            raise DeviceMismatchError("assignment", self.device, HOST, "a list")
        apply_on_device("assignment", operator.setitem, self, index, value)

    def __len__(self):
        return len(self.raw)

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    @property
    def T(self) -> "DeviceArray":
        """The transposed view."""
        return wrap(self.raw.T, self.device)

    def __deepcopy__(self, memo=None):  # `copy.copy` of an array copies its elements, too, as in NumPy
        return self.copy()

    __copy__ = __deepcopy__

    # A Python number from a one-element array: an explicit, recorded transfer.

    def item(self) -> Any:
        """The value of a one-element array as a Python number, copied to the host."""
        return read_back(self).item()

    def __float__(self):
        return float(self.item())

    def __int__(self):
        return int(self.item())

    def __bool__(self):
        return bool(self.item())

    def __round__(self, digits=None):
        return round(self.item(), digits)

    def __format__(self, spec):
        return format(self.item(), spec) if spec else str(self)

    def __repr__(self):
        return f"{read_back(self)} @{self.device}"


def read_back(x):
    """`to_host` of a device array: a copy on the host, recorded as a transfer.

    Raises the first error not yet raised by work that was submitted to its device after ``x`` was made.
    """
    note_transfer(x.device, HOST, x.nbytes)
    copy = copy_to_host(x)
    x.device.failures.raise_since(x.made)
    return copy


def copy_to_host(x):
    """A copy of the device array ``x`` as a NumPy array, made in its device's queue and not recorded."""
    return x.device.submit(x.raw.get if x.device.kind == "gpu" else x.raw.copy).result()


def array_module(x):
    """The module whose functions work on ``x``: ``numpy`` or ``cupy``.

    Layers call it, usually as ``xp = array_module(x)``, so that the same code runs on NumPy and CuPy.
    """
    raw = x.raw if isinstance(x, DeviceArray) else x
    if hasattr(raw, "__cuda_array_interface__"):
        import cupy

        return cupy
    return np


def on_device(function: F) -> F:
    """Let a function of plain arrays take device arrays too: it then runs as a whole on their device.

    The call waits for its turn in the device's queue and for the result. ``device.run(function, ...)`` does not wait.
    Without device arrays, the function is called at once, and arrays of other libraries become NumPy's.
    """

    @functools.wraps(function)
    def place(*args, **kwargs):
        if current_device() is not None:  # work that runs on a device has plain arrays
            return function(*args, **kwargs)
        args, kwargs = _map(_plain_int, (args, kwargs))
        device = first_device((args, kwargs))
        if device is None:
            args, kwargs = _map(functools.partial(as_numpy, f"{function.__name__}: an argument"), (args, kwargs))
            return function(*args, **kwargs)
        return device.run(function, *args, **kwargs).result()

    return place


def _plain_int(leaf):
    """A whole number of NumPy, such as a stride, as Python's: np.uint8(255) + 1 would be 0."""
    number = scalar(leaf)
    return number if type(number) is int else leaf


def apply_on_device(operation, function, *args, **kwargs):
    """Call ``function`` in the queue of the device on which all its arrays are; wait for the result."""
    device = first_device((args, kwargs))
    args, kwargs = unwrap((args, kwargs), device, operation)
    return device.submit(lambda: wrap(function(*args, **kwargs), device)).result()


def first_device(values):
    """The device of the first device array in ``values`` (nested lists, tuples, dicts), or None if there is none."""
    return next((leaf.device for leaf in _leaves(values) if isinstance(leaf, DeviceArray)), None)


def wrap(value, device):
    """``value`` (possibly nested) with its plain arrays and NumPy scalars turned into arrays of ``device``."""

    def wrap_leaf(leaf):
        if isinstance(leaf, np.generic):  # NumPy's sums return scalars where CuPy's return 0-d arrays
            leaf = np.asarray(leaf)
        return DeviceArray(leaf, device) if _place(leaf) is HOST else leaf

    return _map(wrap_leaf, value)


def unwrap(value, device, operation):
    """``value`` (possibly nested) with the arrays of ``device`` replaced by their plain arrays.

    Raises DeviceMismatchError if it has arrays of another device, or of the host.
    """

    def unwrap_leaf(leaf):
        place = _place(leaf)
        if place is device:
            return leaf.raw
        if place is not None:
            raise DeviceMismatchError(operation, device, place)
        return leaf

    return _map(unwrap_leaf, value)


def _place(leaf):
    """Where an array is, a device or HOST; None if it is not an array. Plain arrays are the host's, even CuPy's."""
    if isinstance(leaf, DeviceArray):
        return leaf.device
    if isinstance(leaf, np.ndarray) or is_foreign(leaf) or hasattr(leaf, "__cuda_array_interface__"):
        return HOST
    return None


def _leaves(value):
    if isinstance(value, (list, tuple, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item)
    else:
        yield value


def _map(function, value):
    """``value`` with ``function`` applied to all leaves; a list or tuple in which nothing changes is not copied."""
    if not isinstance(value, (list, tuple, dict)):
        return function(value)
    items = [_map(function, item) for item in (value.values() if isinstance(value, dict) else value)]
    if isinstance(value, dict):
        return dict(zip(value, items, strict=True))
    if all(item is old for item, old in zip(items, value, strict=True)):
        return value
    if hasattr(value, "_fields"):  # a named tuple takes its fields one by one
        return type(value)(*items)
    return type(value)(items)


def _call_method(name, raw, *args, **kwargs):
    return getattr(raw, name)(*args, **kwargs)
