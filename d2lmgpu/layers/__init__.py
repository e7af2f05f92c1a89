"""Layers: each a pair of pure functions, forward and backward, next to each other.

``y, cache = layer(x, ...)`` and ``dx, ... = layer_grad(dy, cache)``. They take
plain NumPy or CuPy arrays, float32 or float64, or the arrays of one device.
"""

from .convolution import conv2d, conv2d_grad
from .dense import dense, dense_grad, flatten, flatten_grad
from .loss import softmax_cross_entropy, softmax_cross_entropy_grad
from .pooling import avg_pool2d, avg_pool2d_grad, max_pool2d, max_pool2d_grad
from .relu import relu, relu_grad

__all__ = [
    "avg_pool2d",
    "avg_pool2d_grad",
    "conv2d",
    "conv2d_grad",
    "dense",
    "dense_grad",
    "flatten",
    "flatten_grad",
    "max_pool2d",
    "max_pool2d_grad",
    "relu",
    "relu_grad",
    "softmax_cross_entropy",
    "softmax_cross_entropy_grad",
]
