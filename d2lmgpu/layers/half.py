"""Half precision: numbers rounded to float16, which has 11 significant bits and ends at 65504.

Rounded numbers keep the dtype they had: the product of two float16 is exact in
float32, and sums are made in float32, so that this computes what tensor cores do.
"""

import numpy as np

from ..arguments import check_array
from ..devices import on_device


@on_device
def half(x):
    """``x`` of any shape → y, each number rounded to float16 (beyond its range: infinite), and no cache.

    Raises ValueError for what is no array.
    """
    check_array("half: x", x)
    return rounded_to_half(x), None


@on_device
def half_grad(dy, cache=None):
    """``dy`` → dx: the gradient is stored as float16, too. Raises ValueError for what is no array."""
    check_array("half_grad: dy", dy)
    return rounded_to_half(dy)


def rounded_to_half(x):
    """A plain array like ``x`` with its numbers rounded."""
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(x.dtype)
