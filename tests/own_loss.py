"""A loss of one's own, for tests."""

from d2lmgpu.devices import array_module


def huber(outputs, y):
    """A loss of one's own, for targets (n, K, 2) whose sums it takes: labels of any shape."""
    xp = array_module(outputs)
    difference = outputs - y.sum(axis=2)
    small = xp.abs(difference) < 1
    return xp.where(small, difference**2 / 2, xp.abs(difference) - 0.5).sum(), (difference, small, xp)


def huber_grad(cache):
    difference, small, xp = cache
    return xp.where(small, difference, xp.sign(difference))


HUBER = huber, huber_grad
