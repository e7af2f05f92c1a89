"""What the functions of a list of layers are, and the shapes of their parameters, outputs and gradients."""

import functools
import math

import numpy as np

from ..devices import array_module
from .convolution import conv2d
from .dense import dense, flatten
from .elementwise import dropout, half, relu
from .pooling import avg_pool2d, max_pool2d

POOLS = {avg_pool2d: "average", max_pool2d: "max"}
"""Pooling layers, and the kind of each."""

EACH_BY_ITSELF = {conv2d, dense, dropout, flatten, half, relu, *POOLS}
"""Layers that treat each image separately, so that it does not matter which other images are processed with it."""


def function_of(layer):
    """The layer's forward function, and its options if it is a `functools.partial`."""
    if isinstance(layer.forward, functools.partial):
        return layer.forward.func, layer.forward.keywords
    return layer.forward, {}


def relu_and_pool(layers, largest=math.inf):
    """The ReLU and pooling that ``layers`` begin with, fused to the layer before: (size, kind, relu), and their number.

    ``relu``: whether the first layer is a ReLU. Pooling may follow, over squares of side ``size``, at most ``largest``,
    of a ``kind`` in `POOLS`; without pooling, these two are 1 and None.
    """
    has_relu = bool(layers) and function_of(layers[0])[0] is relu
    pool, options = function_of(layers[has_relu]) if len(layers) > has_relu else (None, {})
    size = options.get("size", 2)
    if pool in POOLS and size <= largest:
        return (size, POOLS[pool], has_relu), has_relu + 1
    return (1, None, has_relu), has_relu + 0


def output_shapes(layers, shape, dtype=np.float32):
    """The shape of each layer's output for one image of ``shape``: found by sending zeros through the layers."""
    x, shapes = np.zeros((1, *shape), dtype), []
    for layer in layers:
        x, _ = layer.forward(x, *(np.zeros(own, dtype) for own in layer.shapes))
        shapes.append(x.shape[1:])
    return shapes


def check_grads(grads, shapes):
    """Raise ValueError unless these are the gradients of parameters of these shapes: others might be broadcast."""
    found = [np.shape(grad) for grad in grads]
    if found != shapes:
        raise ValueError(f"a layer's backward function returned gradients of shapes {found}; they should be {shapes}")


def images_last(x):
    """A new plain array (..., N) with the elements of ``x`` (N, ...)."""
    return array_module(x).moveaxis(x, 0, -1).copy()


def with_shapes(layers, params):
    """The ``layers`` with the shapes of these ``params``, which may be parts of the layers' own."""
    rest, found = iter(params), []
    for layer in layers:
        shapes = tuple(next(rest).shape for _ in layer.shapes)
        found.append(layer._replace(shapes=shapes, channels=shapes[0][0] if layer.channels else 0))
    return tuple(found)
