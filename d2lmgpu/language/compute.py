"""What F, B, I and W compute: a stage of a network, layer by layer, as it is written.

A stage's parameters and gradients are flat arrays, of which these functions take the parts in the layers' shapes. What
forward keeps for backward holds no weights: they are a value of their own, and backward is given them.
"""

import functools
import itertools
import math
from typing import NamedTuple

import numpy as np

from ..devices import array_module
from ..kernels.stages import function_of
from ..layers import batch_norm, conv2d, dense
from ..layers.labels import with_right_answers
from ..networks.losses import CROSS_ENTROPY, Loss

BACKWARD_IN_TWO = (conv2d, dense)
"""Layers that compute the input's gradient alone, or the parameters' alone."""
WITH_WEIGHT = (*BACKWARD_IN_TWO, batch_norm)
"""Layers whose caches have the weight in the second place."""


class Objective(NamedTuple):
    """What the last stage ends with: the ``loss``, of targets of this ``shape``, for one example, and ``dtype``."""

    loss: Loss = CROSS_ENTROPY
    shape: tuple = ()
    dtype: str = "int64"

    @classmethod
    def of(cls, loss, y, dtype):
        """That of a `Loss` and of targets ``y`` (N, ...), where parameters have this dtype."""
        return cls(loss, y.shape[1:], np.dtype(dtype).name if y.dtype.kind == "f" else "int64")

    def zeros(self, n):
        """Targets of ``n`` examples, all zero."""
        return np.zeros((n, *self.shape), self.dtype)


CLASSES = Objective()
"""The usual one: the cross-entropy of labels."""


def forward(layers, x, params, targets=None, loss=CROSS_ENTROPY, draws=None):
    """``x`` through the ``layers`` with their ``params`` → y, caches.

    With ``targets``, at the end, y is an array of two: the loss, and for how many examples the largest output is right.
    ``draws``: of the first random layer.
    """
    rest, caches, drawing = iter(params), [], itertools.count(draws.layer if draws else 0)
    for layer in layers:
        options = {"draws": draws._replace(layer=next(drawing))} if layer.random else {}
        x, cache = layer.forward(x, *(next(rest) for _ in layer.shapes), **options)
        caches.append(_without_weight(layer, cache))
    if targets is not None:
        if len(x):
            summed, cache = loss.forward(x, targets)
            caches.append((cache, x.dtype))
        else:  # which a user's own loss need not understand
            summed, cache = 0, x.copy()
            caches.append((cache, None))
        return with_right_answers(summed, x, targets), caches
    return x, caches


def backward(layers, dy, caches, params, is_first, grads, loss=CROSS_ENTROPY, scale=1):
    """B: → dx (None of the first stage); adds to ``grads``, arrays like ``params``. The last stage has no ``dy``."""
    dx, delta = input_backward(layers, dy, caches, params, is_first, grads, loss, scale)
    del delta
    return dx


def input_backward(layers, dy, caches, params, is_first, grads=None, loss=CROSS_ENTROPY, scale=1):
    """I: → dx, delta: for each layer with parameters the gradient of its output. With ``grads`` adds to them, too.

    ``scale``: what the gradient of the loss is multiplied by.
    """
    caches = list(caches)
    if dy is None:
        cache, dtype = caches.pop()
        dy = cache if dtype is None else loss.grad(cache).astype(dtype, copy=False)
        if scale != 1:
            dy = dy * dy.dtype.type(scale)
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
    return None if is_first else dy, delta[::-1]


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
