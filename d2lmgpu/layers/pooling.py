"""Pooling: each output is the mean, or the largest, of a square of inputs; squares do not overlap.

Rows and columns that fill no whole square are left out: 9 × 9 becomes 4 × 4.
"""

import functools

from ..devices import array_module, on_device


@on_device
def avg_pool2d(x, size=2):
    """``x`` (N, C, H, W) → y (N, C, H // size, W // size), cache."""
    places = _places(x, size)
    y = places[0].copy()
    for place in places[1:]:
        y += place
    y *= x.dtype.type(1 / size**2)
    return y, (x.shape, size)


@on_device
def avg_pool2d_grad(dy, cache):
    """``dy`` (N, C, H // size, W // size) → dx (N, C, H, W): every input of a square gets 1/size² of its gradient.

    Inputs that were left out get zero.
    """
    (N, C, H, W), size = cache
    xp = array_module(dy)
    dx = xp.zeros((N, H, W, C), dy.dtype).transpose(0, 3, 1, 2)  # channels last in memory, as in convolution.py
    share = dy * dy.dtype.type(1 / size**2)
    for place in _places(dx, size):
        place[...] = share
    return dx


@on_device
def max_pool2d(x, size=2):
    """``x`` (N, C, H, W) → y (N, C, H // size, W // size), the largest of each square, cache."""
    first, *others = _places(x, size)
    y = functools.reduce(array_module(x).maximum, others, first.copy())
    return y, (x, y, size)


@on_device
def max_pool2d_grad(dy, cache):
    """``dy`` (N, C, H // size, W // size) → dx (N, C, H, W): the largest input of a square gets all of the gradient.

    If several inputs are the largest, the first of them, row by row, gets the gradient. All other inputs get zero.
    """
    xp, (x, y, size) = array_module(dy), cache
    N, C, H, W = x.shape
    dx = xp.zeros((N, H, W, C), dy.dtype).transpose(0, 3, 1, 2)
    left = xp.ones(y.shape, bool)  # squares whose gradient has not been passed on yet
    for place, dplace in zip(_places(x, size), _places(dx, size), strict=True):
        found = left & (place == y)
        dplace[...] = dy * found
        left &= ~found
    return dx


def _places(x, size):
    """Views (N, C, H // size, W // size): for each position in a square, row by row, the inputs there."""
    H, W = (side // size * size for side in x.shape[2:])
    return [x[:, :, i:H:size, j:W:size] for i in range(size) for j in range(size)]
