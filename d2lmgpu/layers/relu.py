"""The rectifier: negative inputs become zero."""

from ..arguments import check_array, check_shape
from ..devices import array_module, on_device


@on_device
def relu(x):
    """``x`` of any shape → y = max(x, 0), cache. Raises ValueError for what is no array."""
    check_array("relu: x", x)
    y = array_module(x).maximum(x, 0)
    return y, y


@on_device
def relu_grad(dy, y):
    """``dy`` → dx: the gradient passes where the output was positive (at 0 it is taken as 0).

    Raises ValueError unless both have the same shape.
    """
    check_array("relu_grad: the cache, y,", y)
    check_shape("relu_grad: dy", dy, y.shape)
    return dy * (y > 0)
