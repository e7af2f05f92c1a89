"""What F, B, I and W compute: a stage of a network, layer by layer, as it is written.

A stage's parameters and gradients are flat arrays, of which these functions take the parts in the layers' shapes. What
forward keeps for backward holds no weights: they are a value of their own, and backward is given them.
"""

import functools
import math

from ..devices import array_module
from ..kernels.stages import function_of
from ..layers import batch_norm, conv2d, dense, softmax_cross_entropy, softmax_cross_entropy_grad
from ..layers.labels import right_answers

BACKWARD_IN_TWO = (conv2d, dense)
"""Layers that compute the input's gradient alone, or the parameters' alone."""
WITH_WEIGHT = (*BACKWARD_IN_TWO, batch_norm)
"""Layers whose caches have the weight in the second place."""


def forward(layers, x, params, labels=None):
    """``x`` through the ``layers`` with their ``params`` → y, caches. With ``labels``, at the end, y is the loss."""
    rest, caches = iter(params), []
    for layer in layers:
        x, cache = layer.forward(x, *(next(rest) for _ in layer.shapes))
        caches.append(_without_weight(layer, cache))
    if labels is not None:
        x, cache = softmax_cross_entropy(x, labels)
        caches.append(cache)
        return x, caches
    return packed(x), caches


def count_right(caches):
    """For how many examples the largest logit was the label, from the caches of the last stage, with the loss's."""
    return right_answers(*caches[-1])


def backward(layers, dy, caches, params, is_first, grads):
    """B: → dx (None of the first stage); adds to ``grads``, arrays like ``params``. The last stage has no ``dy``."""
    dx, delta = input_backward(layers, dy, caches, params, is_first, grads)
    del delta
    return dx


def input_backward(layers, dy, caches, params, is_first, grads=None):
    """I: → dx, delta: for each layer with parameters the gradient of its output. With ``grads`` adds to them, too."""
    caches = list(caches)
    if dy is None:
        dy = softmax_cross_entropy_grad(caches.pop())
    lowest = next(i for i, layer in enumerate(layers) if layer.shapes) if is_first else -1
    places, delta = parameter_places(layers), []
    for i in reversed(range(max(lowest, 0), len(layers))):
        layer = layers[i]
        if not layer.shapes:
            dy = layer.backward(dy, caches[i])
            continue
        own = slice(*places[i])
        cache = _with_weight(layer, caches[i], params[own])
        delta.append(dy)
        if grads is not None:
            dy, *values = layer.backward(dy, cache, input_grad=i != lowest)
            _add(grads[own], values)
        elif i != lowest:
            dy, *_ = layer.backward(dy, cache, **_only(layer, "weight_grad"))
        else:
            dy = None
    return None if is_first else packed(dy), delta[::-1]


def weight_backward(layers, delta, caches, grads):
    """W: adds to ``grads`` what `input_backward` left to be done."""
    places, rest = parameter_places(layers), iter(delta)
    for i, layer in enumerate(layers):
        if layer.shapes:
            _, *values = layer.backward(next(rest), caches[i], input_grad=False)
            _add(grads[slice(*places[i])], values)


@functools.lru_cache
def parameter_places(layers):
    """For each layer where its parameters are in the stage's list of them: (start, stop)."""
    places, start = [], 0
    for layer in layers:
        places.append((start, start + len(layer.shapes)))
        start += len(layer.shapes)
    return places


def packed(x):
    """``x``, or a copy of it, whose elements follow each other in memory, in whatever order of its axes."""
    return x if x.transpose(axes_in_memory(x)).flags.c_contiguous else array_module(x).ascontiguousarray(x)


def axes_in_memory(x):
    """The axes of ``x`` in the order in which they are in memory, the slowest first."""
    return sorted(range(x.ndim), key=lambda axis: (-x.strides[axis], axis))


def _only(layer, left_out):
    return {left_out: False} if function_of(layer)[0] in BACKWARD_IN_TWO else {}


def _without_weight(layer, cache):
    if function_of(layer)[0] not in WITH_WEIGHT:
        return cache
    x, weight, *rest = cache
    xp = array_module(x)
    return (x, xp.broadcast_to(xp.empty((), x.dtype), weight.shape), *rest)  # of its shape, and of no size


def _with_weight(layer, cache, params):
    """The cache with the weight in the form in which forward has used it."""
    function = function_of(layer)[0]
    if function in (dense, batch_norm):
        return (cache[0], params[0], *cache[2:])
    if function is conv2d:
        weight = params[0]
        return (cache[0], weight.transpose(2, 3, 1, 0).reshape(math.prod(weight.shape[1:]), len(weight)), *cache[2:])
    return cache


def _add(grads, values):
    for grad, value in zip(grads, values, strict=True):
        grad += value
