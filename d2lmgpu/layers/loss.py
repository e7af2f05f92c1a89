"""Losses: they measure how far outputs are from their targets. And targets: checked, and compared with answers.

Softmax and cross-entropy form one layer, because together they are simpler and more accurate.

Losses are *summed* over examples, not averaged. So the sums of the shards add up to the sum of the batch, whatever the
sizes of the shards, and `sgd` divides once by the size of the full batch.
"""

import math

import numpy as np

from ..base.arguments import as_array
from ..devices import DeviceArray, array_module, on_device


@on_device
def softmax_cross_entropy(logits, y):
    """``logits`` (N, K), labels ``y`` (N,) in 0..K-1 → the loss summed over examples (0-d), cache.

    The loss is Σ_n (log Σ_k exp(logits[n, k]) - logits[n, y[n]]). Each row's own maximum is subtracted from the row
    first: this changes nothing, and keeps exp from overflowing.

    ``y`` may also be floats (N, K), the probability of each class: one-hot or soft labels. The loss is then
    Σ_n Σ_k y[n, k] · (log Σ_j exp(logits[n, j]) - logits[n, k]), as in PyTorch.

    Raises ValueError for other labels (see `check_targets`): used as indices, they would silently give wrong results.
    """
    check_targets(y, *logits.shape)
    xp = array_module(logits)
    logits = logits - logits.max(axis=1, keepdims=True)
    exp = xp.exp(logits)
    total = exp.sum(axis=1, keepdims=True)
    if y.ndim == 2:
        y = y.astype(logits.dtype, copy=False)
        loss = (y * (xp.log(total) - logits)).sum()
    else:
        rows = xp.arange(len(y))
        loss = (xp.log(total[:, 0]) - logits[rows, y]).sum()
    return loss, (exp / total, y)


@on_device
def softmax_cross_entropy_grad(cache):
    """→ dlogits (N, K): the probabilities, minus 1 for the label's class."""
    probabilities, y = cache
    if y.ndim == 2:
        return probabilities * y.sum(axis=1, keepdims=True) - y
    xp = array_module(probabilities)
    dlogits = probabilities.copy()
    dlogits[xp.arange(len(y)), y] -= 1
    return dlogits


@on_device
def squared_error(outputs, y):
    """``outputs`` (N, K), targets ``y``, floats (N, K) → the loss summed over examples (0-d), cache.

    The loss is Σ_n 1/K · Σ_k (outputs[n, k] - y[n, k])²: for each example, this is the *mean* over its outputs, so
    loss / N is the result of PyTorch's ``nn.MSELoss()``. Labels ``y`` (N,) in 0..K-1 count as one-hot.

    Raises ValueError for other targets (see `check_targets`).
    """
    check_targets(y, *outputs.shape)
    if y.ndim == 2:
        difference = outputs - y.astype(outputs.dtype, copy=False)
    else:
        difference = outputs.copy()
        difference[array_module(outputs).arange(len(y)), y] -= 1
    return (difference**2).sum() / outputs.shape[1], (difference,)


@on_device
def squared_error_grad(cache):
    """→ doutputs (N, K): 2/K · (outputs - y)."""
    (difference,) = cache
    return difference * difference.dtype.type(2 / difference.shape[1])


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
        wanted = f"labels, whole numbers of shape ({n},), or {floats}"
        raise ValueError(f"targets of shape {y.shape}; they should be {wanted}")
    if isinstance(y, np.ndarray) and not np.isfinite(y).all():
        raise ValueError(f"targets of shape {y.shape} that are not all finite; give numbers")


def answers(outputs):
    """The class (N,) that each row of plain ``outputs`` (N, K) says: that of the largest number, the first of equals.

    It is -1, no class at all, where the largest number is not finite, as in a row with NaN.
    """
    xp = array_module(outputs)
    return xp.where(xp.isfinite(outputs.max(axis=1)), outputs.argmax(axis=1), -1)


def right_answers(logits, y):
    """In how many rows of plain ``logits`` (N, K) the answer is the label: 0-d.

    Of one-hot or soft labels, or other targets, it is the index of each largest number.
    """
    labels = y if y.ndim == 1 else y.reshape(len(y), math.prod(y.shape[1:])).argmax(axis=1)
    return (answers(logits) == labels).sum()


def with_right_answers(loss, logits, y):
    """A new array of two numbers: the ``loss``, given as a number or a 0-d array, and the `right_answers`."""
    xp = array_module(logits)
    return xp.stack([xp.asarray(loss, logits.dtype), right_answers(logits, y).astype(logits.dtype)])
