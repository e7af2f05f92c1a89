"""The rectifier: negative inputs become zero."""

from ..devices import array_module, on_device


@on_device
def relu(x):
    """``x`` of any shape → y = max(x, 0), cache."""
    y = array_module(x).maximum(x, 0)
    return y, y


@on_device
def relu_grad(dy, y):
    """``dy`` → dx: the gradient passes where the output was positive (at 0 it is taken as 0)."""
    return dy * (y > 0)
