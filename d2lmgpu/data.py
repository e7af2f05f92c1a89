"""Minibatches: shuffled anew each epoch, each example once, the ragged rest included or not."""

import numpy as np

from .devices import array_module


def minibatches(X, y, batch_size, seed, epoch):
    """Yield (X, y) for each minibatch of an epoch, images as float32 in 0..1.

    The order follows from ``seed`` and ``epoch`` alone: every epoch has another,
    and any epoch can be repeated. The last minibatch holds what is left
    (60000 mod 256 = 96 examples).
    """
    order = epoch_order(len(X), seed, epoch)
    for start in range(0, len(X), batch_size):
        chosen = order[start : start + batch_size]
        yield to_float(X[chosen]), y[chosen]


def first_examples(data, limit):
    """A data set as `train` takes it, of which the first ``limit`` training examples; all if it is None.

    Raises ValueError unless it is a whole number, at least 1.
    """
    check_limit(limit)
    X_train, y_train, *rest = data
    return X_train[:limit], y_train[:limit], *rest


def check_limit(limit):
    """Raise ValueError unless there can be a first ``limit`` examples."""
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise ValueError(f"limit is {limit!r}; it should be a whole number, at least 1")


def check_whole(name, value, least=1):
    """Raise ValueError unless ``value`` is a whole number, at least ``least``; ``name`` says of what."""
    if not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name} is {value!r}; it should be a whole number, at least {least}")


def epoch_order(n, seed, epoch):
    """A permutation of 0..n-1: the order of the examples in an epoch."""
    # A spawned sequence: [seed, 0] would be the same stream as seed, from which the weights are drawn.
    sequence = np.random.SeedSequence(seed, spawn_key=(epoch,))
    return np.random.default_rng(sequence).permutation(n)


def epoch_size(n, batch_size, drop_last=False):
    """How many of n examples an epoch has: all, or with ``drop_last`` as many as fill whole minibatches.

    Raises ValueError for a batch size that is none, or leaves nothing.
    """
    check_whole("batch_size", batch_size)
    if drop_last and batch_size > n:
        raise ValueError(
            f"drop_last leaves nothing of {n} examples with batch_size {batch_size}; give one of at most {n}"
        )
    return n - n % batch_size if drop_last else n


def batch_rng(seed, epoch, number):
    """The NumPy Generator of minibatch ``number`` (from 0) of an epoch, for whatever is random about it."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(epoch, number)))


def to_float(images, out=None):
    """uint8 images (0..255) as float32 (0..1), float images as they are; written to ``out`` if it is given.

    Plain arrays, of a device or the host's.
    """
    if images.dtype == np.uint8:
        return array_module(images).divide(images, np.float32(255), out=out)
    if out is None:
        return images
    np.copyto(out, images)
    return out
