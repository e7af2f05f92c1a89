"""Layers that treat each number separately: ReLU, dropout, and rounding to half precision.

**Dropout**: in training, each input is dropped with probability p, independently each time (Srivastava et al. 2014).
The others are divided by 1 - p ("inverted" dropout). This keeps the mean, so dropout need do nothing when the trained
network is used. `Draws`, not the devices, decide which inputs are dropped: k devices drop the same inputs as one.

**Half precision**: numbers are rounded to float16, which has 11 significant bits and a largest number of 65504. Rounded
numbers keep their dtype. The product of two float16 numbers is exact in float32, and sums are computed in float32, so
the results are those of tensor cores.
"""

import numpy as np

from ..devices import array_module, on_device
from .draws import random_bits


@on_device
def relu(x):
    """``x`` of any shape → y = max(x, 0), cache."""
    y = array_module(x).maximum(x, 0)
    return y, y


@on_device
def relu_grad(dy, y):
    """``dy`` → dx: the gradient passes where the output was positive (at 0 the derivative is taken as 0)."""
    return dy * (y > 0)


@on_device
def dropout(x, p, draws=None):
    """``x`` (N, C, H, W) or (N, D) → y = x · mask, cache; mask is 0 with probability ``p``, and otherwise 1 / (1 - p).

    ``draws``: the `Draws` that decide the mask. Without them y is x, as after training.
    """
    if draws is None:
        return x, None
    bits = random_bits(draws, x.shape, array_module(x))
    mask = (bits >= np.uint32(p * 2**32)).astype(np.result_type(x.dtype, np.float32))
    mask *= mask.dtype.type(1 / (1 - p))
    return x * mask, mask


@on_device
def dropout_grad(dy, mask):
    """``dy`` like y → dx = dy · mask, or dy if there is no mask."""
    return dy if mask is None else dy * mask


@on_device
def half(x):
    """``x`` of any shape → y, each number rounded to float16 (infinite beyond its range), and no cache."""
    return rounded_to_half(x), None


@on_device
def half_grad(dy, cache=None):
    """``dy`` → dx: the gradient is rounded to float16, too."""
    return rounded_to_half(dy)


def rounded_to_half(x):
    """A plain array like ``x``, with each number rounded to float16."""
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(x.dtype)
