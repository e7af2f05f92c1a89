"""Preprocessing: a function of one's own, called on the host for each whole minibatch, before it is split."""

import numpy as np

from ..words import name_of


def preprocess_batch(preprocess, X, y, rng, largest):
    """What ``preprocess(X, y, rng)`` makes of X (n, C, H, W), floats, and labels y (n,): arrays of these dtypes.

    Raises ValueError unless it returns NumPy arrays of the same shapes and kinds of
    number, and labels from 0 to ``largest``, or finite targets: a GPU would take others without a word.
    """
    forms, dtypes = [_form(X), _form(y)], [X.dtype, y.dtype]
    result = preprocess(X, y, rng)
    if isinstance(result, tuple) and [_form(array) for array in result] == forms:
        X, y = result
        if np.isfinite(y).all() if largest is None else 0 <= y.min() and y.max() <= largest:
            return X.astype(dtypes[0], copy=False), y.astype(dtypes[1], copy=False)
    raise ValueError(
        f"preprocess function {name_of(preprocess)} returned {_described(result)}; it should return NumPy arrays: "
        f"X of shape {forms[0][0]} with floats, and y of shape {forms[1][0]} with "
        + ("floats, all finite" if largest is None else f"labels from 0 to {largest}")
    )


def largest_label(y):
    """The largest of labels (n,); None of targets that are floats."""
    return None if y.dtype.kind == "f" else y.max()


def _form(array):
    """The shape and the kind of numbers of an array; None of anything else."""
    return (array.shape, array.dtype.kind.replace("u", "i")) if isinstance(array, np.ndarray) else None


def _described(value):
    if isinstance(value, tuple):
        return " and ".join(map(_described, value)) or "an empty tuple"
    if not isinstance(value, np.ndarray):
        return f"a {type(value).__name__}"
    span = f" from {value.min()} to {value.max()}" if value.dtype.kind in "iu" and value.size else ""
    return f"{value.dtype}{span} of shape {value.shape}"
