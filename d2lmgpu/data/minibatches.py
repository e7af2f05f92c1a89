"""Minibatches: each epoch takes every example once, in a new order; a smaller last minibatch may be left out."""

from collections.abc import Iterator

import numpy as np

from ..base.arguments import as_array, check_examples, check_list, check_names, check_seed, check_whole
from ..base.foreign import as_numpy
from ..base.text import several
from ..devices import array_module


def minibatches(X, y, batch_size, seed, epoch) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """An iterator over the minibatches (X, y) of an epoch, with images as float32 in 0..1.

    The order depends only on ``seed`` and ``epoch``: it differs from epoch to epoch,
    and any epoch can be repeated. The last minibatch holds the remaining examples
    (60000 mod 256 = 96).

    Raises ValueError, at once, if X and y differ in length or have no examples, and for invalid numbers.
    """
    X, y = check_examples("minibatches", X, y, least=1)
    batch_size = check_whole("batch_size", batch_size)
    order = epoch_order(len(X), seed, epoch)
    parts = (order[start : start + batch_size] for start in range(0, len(X), batch_size))
    return ((to_float(X[chosen]), y[chosen]) for chosen in parts)


def first_examples(data, limit):
    """A data set in the form that `train` takes, with only the first ``limit`` training examples (None: all of them).

    If the examples are sorted by class, as those from folders are, they are taken evenly from all classes.

    Raises ValueError unless ``limit`` is a whole number of at least 1, and each training example has a label.
    """
    limit = check_limit(limit)
    X_train, y_train, *rest = check_parts(data)
    X_train, y_train = check_examples("data", X_train, y_train)
    chosen = slice(limit)
    ordered = y_train.ndim == 1 and np.all(y_train[:-1] <= y_train[1:])
    if ordered and limit is not None and limit < len(y_train):
        chosen = np.arange(limit) * len(y_train) // limit
    return X_train[chosen], y_train[chosen], *rest


def check_parts(data, least=4):
    """A list of the parts of a data set that is in `train`'s form. Raises ValueError for a wrong number of parts."""
    parts = "X_train, y_train, X_test, y_test, and maybe the names of the classes"
    data = check_list("data", data, of=f"arrays: {parts}")
    if not least <= len(data) <= 5:
        raise ValueError(f"data: {several(len(data), 'part')} given; it should be {parts}")
    for i in range(min(4, len(data))):
        data[i] = as_array("labels", data[i]) if i % 2 else as_numpy(f"data: part {i + 1}", data[i])
    if len(data) == 5:
        data[4] = check_names("data: the names of the classes", data[4])
    return data


def check_limit(limit):
    """``limit`` as an int, or None. Raises ValueError unless it is a possible number of examples."""
    return None if limit is None else check_whole("limit", limit)


def epoch_order(n, seed, epoch):
    """A permutation of 0..n-1: the order of the examples in an epoch. Raises ValueError for invalid numbers."""
    # A spawned sequence, because [seed, 0] would be the same stream as seed, which the weights are drawn from.
    sequence = np.random.SeedSequence(check_seed(seed), spawn_key=(check_whole("epoch", epoch, least=0),))
    return np.random.default_rng(sequence).permutation(n)


def epoch_size(n, batch_size, drop_last=False):
    """How many of n examples an epoch uses: all, or with ``drop_last`` only those that fill whole minibatches.

    Raises ValueError if the batch size leaves no examples.
    """
    if drop_last and batch_size > n:
        raise ValueError(
            f"drop_last leaves nothing of {n} examples with batch_size {batch_size}; give one of at most {n}"
        )
    return n - n % batch_size if drop_last else n


def batch_rng(seed, epoch, number):
    """The NumPy Generator for everything random in minibatch ``number`` (from 0) of an epoch."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(epoch, number)))


def to_float(images, out=None):
    """Images as floats: uint8 (0..255) becomes float32 (0..1), floats stay the same. ``out`` gets the result, if given.

    The arrays are plain arrays of NumPy or CuPy, on a device or on the host.
    """
    images = as_numpy("to_float: images", images)
    if images.dtype == np.uint8:
        return array_module(images).divide(images, np.float32(255), out=out)
    if out is None:
        return images
    np.copyto(out, images)
    return out
