"""Labels and other targets: how they are checked, and how correct answers are counted."""

import math

import numpy as np

from ..arguments import as_array
from ..devices import DeviceArray, array_module


def check_labels(y, n, classes=None):
    """Raise ValueError unless ``y`` (n,) has a whole number from 0 to ``classes`` - 1 for each of n images.

    Without ``classes``, labels may be any whole numbers from 0 up. For an array on a device (a `DeviceArray` or a CuPy
    array), only shape and type are checked, since reading the values would mean waiting for the device. On the host,
    the check takes a few microseconds.
    """
    y = as_array("labels", y)
    if y.ndim == 1 and len(y) != n:
        raise ValueError(f"{n} images and {len(y)} labels; each image needs one")
    if y.shape != (n,):
        raise ValueError(f"labels of shape {y.shape}; they should be of shape ({n},), one for each image")
    if n == 0:
        return
    wanted = "from 0 on" if classes is None else f"from 0 to {classes - 1}"
    if y.dtype.kind not in "iu":
        raise ValueError(f"labels of type {y.dtype}; they should be whole numbers {wanted}, of a type such as int64")
    if isinstance(y, DeviceArray) or not isinstance(y, np.ndarray):
        return
    low, high = int(y.min()), int(y.max())
    if low < 0 or (classes is not None and high >= classes):
        advice = "; if they count from 1, give y - 1" if (low, high) == (1, classes) else ""
        raise ValueError(f"labels from {low} to {high}; they should be whole numbers {wanted}{advice}")


def check_targets(y, n, outputs=None, any_shape=False):
    """Raise ValueError unless ``y`` has a label for each of n images (see `check_labels`), or floats (n, outputs).

    Such floats are one-hot or soft labels, or numbers to be learned. With ``any_shape``, their shape may be (n, ...),
    for your own loss. Without ``outputs``, there may be any number of outputs. For an array on a device, only shape and
    type are checked, as in `check_labels`.
    """
    y = as_array("labels", y)
    of_floats, floats = y.dtype.kind == "f", f"floats of shape ({n}, {'outputs' if outputs is None else outputs})"
    if of_floats and y.shape == (n,) and outputs == 1:
        raise ValueError(f"targets of shape ({n},); they should be {floats}: give y[:, None]")
    if not of_floats or y.ndim < 2:
        try:
            check_labels(y, n, outputs)
        except ValueError as error:
            fits = len(y) == n if y.ndim else False
            raise ValueError(f"{error}, or {floats}" if fits and (of_floats or y.ndim > 1) else str(error)) from None
        return
    if len(y) != n:
        raise ValueError(f"{n} images and {len(y)} targets; each image needs one")
    if not any_shape and (y.ndim > 2 or outputs not in (None, y.shape[1])):
        raise ValueError(
            f"targets of shape {y.shape}; they should be labels, whole numbers of shape ({n},), or {floats}"
        )
    if isinstance(y, np.ndarray) and not np.isfinite(y).all():
        raise ValueError(f"targets of shape {y.shape} that are not all finite; give numbers")


def classes_of(y):
    """Plain labels (N,), unchanged; for one-hot or soft labels, or other targets, the index of each largest number."""
    return y if y.ndim == 1 else y.reshape(len(y), math.prod(y.shape[1:])).argmax(axis=1)


def answers(outputs):
    """The class (N,) that each row of plain ``outputs`` (N, K) says: that of the largest number, the first of equals.

    It is -1, no class at all, where the largest number is not finite, as in a row with NaN.
    """
    xp = array_module(outputs)
    return xp.where(xp.isfinite(outputs.max(axis=1)), outputs.argmax(axis=1), -1)


def right_answers(logits, y):
    """In how many rows of plain ``logits`` (N, K) the answer is the label: 0-d."""
    return (answers(logits) == classes_of(y)).sum()


def with_right_answers(loss, logits, y):
    """A new array of two numbers: the ``loss``, given as a number or a 0-d array, and the `right_answers`."""
    xp = array_module(logits)
    return xp.stack([xp.asarray(loss, logits.dtype), right_answers(logits, y).astype(logits.dtype)])
