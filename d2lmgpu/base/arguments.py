"""Checks of arguments: every error says in one line what was given, what is allowed and what to do.

Public functions check their arguments with these functions. They raise ValueError (`check_arguments` raises TypeError),
and none of them looks at the elements of an array, which would take time. ``name`` and ``what`` are for the message.

Numbers may be NumPy's, but what is computed, printed and kept must not depend on that: ``np.uint8(200) + 100`` is 44,
and JSON takes no ``np.int64(3)``. So the checks return what they checked as Python's own numbers, lists and strings,
and functions of numbers that check nothing are decorated with `plain_numbers`.
"""

import contextlib
import functools
import inspect
import math
import numbers
import operator
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

import numpy as np

from .foreign import as_numpy, is_foreign
from .names import perhaps_meant
from .text import shown

MAX_WHOLE = 10**9
"""The largest whole number that an argument may be, except for seeds and numbers of bytes."""

MAX_SEED = 2**64 - 1

_P = ParamSpec("_P")
T = TypeVar("T")

MAX_DEVICES = 2**12
"""The most devices of a kind. Each has its own parameters and arrays, so far fewer already fill a machine's memory."""


def plain(value):
    """A setting in a form that JSON can hold: numbers of NumPy and other libraries, even in lists, become Python's own.

    A history, a checkpoint and a sweep's file hold only such values. Anything that is not a number stays as it is.
    """
    value = as_numpy("an argument", value)
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if type(value) in (list, tuple, range):  # but not a `Network`, which is also a tuple
        return [plain(part) for part in value]
    if type(value) is dict:
        return {name: plain(part) for name, part in value.items()}
    for kinds, python in ((bool, bool), (numbers.Integral, int), (numbers.Real, float)):
        if isinstance(value, kinds):
            return python(value)
    return value


def plain_numbers(function: Callable[_P, T]) -> Callable[_P, T]:
    """Wrap a function of numbers, lists of them and objects, so that it gets them `plain`."""

    @functools.wraps(function)
    def call(*args: _P.args, **named: _P.kwargs) -> T:
        return function(*map(plain, args), **{name: plain(value) for name, value in named.items()})

    return call


def check_name(what, name, known, also=""):
    """Raise ValueError, listing the ``known`` names and the most similar one, unless ``name`` is among them."""
    if not isinstance(name, str) or name not in known:
        meant = perhaps_meant(name, known) if isinstance(name, str) else ""
        raise ValueError(f"{what} {shown(name)} is unknown; choose from {', '.join(known)}{also}{meant}")


def check_arguments(function, named, known):
    """Raise TypeError unless all ``named`` arguments are ``known``; ``function`` is the function's name."""
    for name in named:
        if name not in known:
            raise TypeError(f"{function}: there is no argument {shown(name)}{perhaps_meant(name, known)}")


def check_whole(name, value, least=1, most=MAX_WHOLE):
    """``value`` as an int. Raises ValueError unless it is a whole number from ``least`` to ``most``."""
    whole = as_whole(value)
    if whole is None or whole < least:
        raise ValueError(f"{name} is {shown(value)}; it should be a whole number, at least {least}")
    if whole > most:
        raise ValueError(f"{name} is {shown(value)}; it should be a whole number, at most {most:,}")
    return whole


def as_whole(value):
    """A whole number of any library as an int; None for anything else, and for bools."""
    try:
        return None if isinstance(scalar(value), bool) else operator.index(value)
    except Exception:  # other libraries raise their own errors
        return None


def scalar(value):
    """A number or bool of NumPy, even in a 0-d array, as Python's own; anything else as it is."""
    return value.item() if isinstance(value, (np.generic, np.ndarray)) and value.ndim == 0 else value


def check_seed(seed):
    """``seed`` as an int. Raises ValueError unless it can seed random numbers."""
    return check_whole("seed", seed, least=0, most=MAX_SEED)


def check_number(name, value, least=-math.inf, above=-math.inf, most=math.inf, below=math.inf):
    """``value`` as an int or a float. Raises ValueError unless it is a finite number within these limits."""
    finite = is_number(value) and math.isfinite(value)
    if not (finite and above < float(value) < below and least <= float(value) <= most):
        limits = [(f"above {above:g}", above), (f"at least {least:g}", least)]
        limits += [(f"at most {most:g}", most), (f"below {below:g}", below)]
        said = " and ".join(text for text, limit in limits if abs(limit) < math.inf)
        raise ValueError(f"{name} is {shown(value)}; it should be a finite number{said and ', ' + said}")
    return plain(value)


def is_number(value):
    """Whether ``value`` is a real number within the range of floats; bools do not count, but 0-d arrays do."""
    value = scalar(value)
    try:
        return isinstance(value, numbers.Real) and not isinstance(value, bool) and float(value) is not None
    except OverflowError:
        return False


def check_flag(name, value):
    """``value`` as a bool. Raises ValueError unless it is True or False (or 1 or 0), as other values count as True."""
    if not isinstance(scalar(value), bool) and as_whole(value) not in (0, 1):
        raise ValueError(f"{name} is {shown(value)}; it should be True or False")
    return bool(value)


def check_text(name, value):
    """Raise ValueError unless ``value`` is a string."""
    if not isinstance(value, str):
        raise ValueError(f"{name} is {shown(value)}; it should be a string")


def check_function(name, value, *arguments):
    """Raise ValueError unless ``value`` is a function, not a class, of these ``arguments``, given by their names."""
    try:
        fits = callable(value) and not isinstance(value, type) and inspect.signature(value).bind(*arguments)
    except TypeError:
        fits = False
    except ValueError:  # not every built-in function has a signature
        fits = True
    if not fits:
        raise ValueError(f"{name} is {shown(value)}; it should be a function of {', '.join(arguments)}")


def check_list(name, value, of, length=None, one=()):
    """``value`` as a list; it may be any iterable but a string or a dict, or an array with one axis, of any library.

    ``of`` says what it should hold. A value of the type ``one``, or of one of these types, becomes a list of one.
    """
    value = [value] if isinstance(value, one) else as_numpy(name, value)
    if isinstance(value, np.ndarray) and value.ndim == 1:
        value = value.tolist()
    if isinstance(value, (str, bytes, dict)) or not isinstance(value, Iterable) or hasattr(value, "dtype"):
        raise ValueError(f"{name}: {shown(value)} should be a list of {of}")
    value = list(value)
    if length is not None and len(value) != length:
        raise ValueError(f"{name}: {len(value)} given; it should be a list of {length}, of {of}")
    return value


def check_names(name, value, length=None):
    """``value``, names in any form that `check_list` takes, as a list of strings."""
    return [str(each) for each in check_list(name, value, of="names", length=length)]


def check_array(name, value, ndim=None, shape="", kinds="biuf"):
    """``value`` after `as_numpy`. Raises ValueError unless it is an array of numbers, with ``ndim`` axes if given.

    ``shape`` describes the axes in the error message.
    """
    value = as_numpy(name, value)
    fits = hasattr(value, "shape") and hasattr(value, "dtype") and value.dtype.kind in kinds
    if not fits or (ndim is not None and value.ndim not in (ndim if isinstance(ndim, tuple) else (ndim,))):
        what = "numbers" if "f" in kinds else "whole numbers"
        raise ValueError(f"{name} is {shown(value)}; it should be an array {shape and shape + ' '}of {what}")
    return value


def as_array(name, value, kinds="biuf"):
    """Like `check_array`, but ``value`` may also be a list that NumPy can convert to an array."""
    if not hasattr(value, "dtype") and not is_foreign(value):
        with contextlib.suppress(TypeError, ValueError, OverflowError):  # a ragged list, a number beyond all dtypes
            converted = np.asarray(value)
            if converted.dtype.kind in kinds:
                return converted
        raise ValueError(f"{name} is {shown(value)}; it should be an array of numbers")
    return check_array(name, value, kinds=kinds)


def check_path(name, value):
    """Raise ValueError unless ``value`` names a file or a folder."""
    if not (isinstance(value, str) or hasattr(value, "__fspath__")) or not str(value) or "\0" in str(value):
        raise ValueError(f"{name} is {shown(value)}; it should be the name of a file, not empty and without NUL")


def check_examples(function, X, y, least=0):
    """``X`` and ``y``, arguments of a ``function``, as arrays.

    Raises ValueError unless each example in X has a label in y, and unless there are ``least`` examples (0 or 1).
    """
    X, y = as_array(f"{function}: X", X), as_array(f"{function}: y", y)
    if not X.ndim or X.shape[:1] != y.shape[:1]:
        raise ValueError(f"{function}: X of shape {X.shape} and y of shape {y.shape}; each example needs a label")
    if len(X) < least:
        raise ValueError(f"{function}: there are no examples; it needs at least one")
    return X, y


def check_input_shape(input_shape):
    """``input_shape`` as a tuple of ints. Raises ValueError unless it can be a shape of images, (C, H, W)."""
    sides = check_list("input_shape", input_shape, of="numbers (C, H, W)", length=3)
    return tuple(check_whole("input_shape: a number of (C, H, W)", side, most=2**16) for side in sides)
