"""Minibatches: shuffled anew each epoch, each example once, the ragged rest included."""

import numpy as np


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
    """X_train, y_train, X_test, y_test, of which the first ``limit`` training examples; all if it is None.

    Raises ValueError unless it is a whole number, at least 1.
    """
    check_limit(limit)
    X_train, y_train, X_test, y_test = data
    return X_train[:limit], y_train[:limit], X_test, y_test


def check_limit(limit):
    """Raise ValueError unless there can be a first ``limit`` examples."""
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise ValueError(f"limit is {limit!r}; it should be a whole number, at least 1")


def epoch_order(n, seed, epoch):
    """A permutation of 0..n-1: the order of the examples in an epoch."""
    # A spawned sequence: [seed, 0] would be the same stream as seed, from which the weights are drawn.
    sequence = np.random.SeedSequence(seed, spawn_key=(epoch,))
    return np.random.default_rng(sequence).permutation(n)


def to_float(images, out=None):
    """uint8 images (0..255) as float32 (0..1), float images as they are; written to ``out`` if it is given."""
    if images.dtype == np.uint8:
        return np.divide(images, np.float32(255), out=out)
    if out is None:
        return images
    np.copyto(out, images)
    return out
