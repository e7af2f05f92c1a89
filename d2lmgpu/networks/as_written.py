"""Loss and gradients computed in the obvious way: forward through the layers as they are written, and back.

Forward goes through the list of layers from first to last, and keeps every layer's cache; backward goes from last to
first. All parameters of a network form one list, in order: ``[W1, b1, W2, b2, W3, b3, W4, b4]`` for LeNet. Caches hold
no weights: backward is given the parameters again.

Batch norm needs sums over all images, and other devices may have some of these images. So the computation pauses there.
It is a *generator*, which yields when its device's share of the sums is written, and continues when the sums are
complete.

    device 0    conv | share of the sums ┐     ┌ batch norm, ReLU, ... | share ┐     ┌ ...
                                         ├ add ┤                               ├ add ┤
    device 1    conv | share of the sums ┘     └ batch norm, ReLU, ... | share ┘     └ ...
"""

import functools
import itertools

from ..kernels.stages import check_grads, timed
from ..layers.batch_norm import batch_moments, batch_norm, batch_norm_sums
from ..layers.convolution import conv2d, conv2d_grad
from ..layers.dense import dense, dense_grad
from ..layers.functions import function_of
from ..layers.labels import with_right_answers
from ..spans import span
from .losses import CROSS_ENTROPY

BACKWARD_IN_TWO = (conv2d_grad, dense_grad)
"""Backward functions that can compute only the gradient of the input, or only the gradients of the parameters."""
WITH_WEIGHT = (conv2d, dense, batch_norm)
"""Layers whose caches have the weight as their second element."""


def as_written(X, y, params, network, grads, sync_statistics=(), scale=1.0, draws=None, loss=CROSS_ENTROPY):
    """A generator: `loss_and_grads` in the obvious way, through the layers one by one and back, into ``grads``.

    It pauses where ``sync_statistics`` must be summed: in forward from the first batch norm layer to the last, then in
    backward from the last to the first. It returns an array of two numbers: the loss, and the number of images whose
    label has the largest logit.
    """
    outputs, caches = yield from timed("forward", forward_in_parts(network, X, params, sync_statistics, draws))
    sums, cache = loss_forward(outputs, y, loss)
    for grad in grads:
        grad[...] = 0
    dy = loss_backward(cache, loss, scale)
    yield from timed("backward", backward_in_parts(network, dy, caches, params, grads, sync_statistics))
    return sums


def forward_in_parts(layers, x, params, sync_statistics=(), draws=None):
    """A generator: take ``x`` through the ``layers`` with their ``params`` → y, caches.

    ``draws``: the `Draws` of the first random layer.
    """
    rest, sync, caches, drawing = iter(params), iter(sync_statistics), [], itertools.count(draws.layer if draws else 0)
    for layer in layers:
        own, options = [next(rest) for _ in layer.shapes], {}
        if layer.channels:
            moments = next(sync).moments
            moments[...] = batch_moments(x)
            yield
            own.append(moments)
        if layer.random:
            options["draws"] = draws._replace(layer=next(drawing))
        x, cache = layer.forward(x, *own, **options)
        caches.append(_without_weight(layer, cache))
    return x, caches


def loss_forward(outputs, y, loss):
    """→ an array of two numbers, the loss and the number of examples whose largest output is right; and a cache."""
    with span("forward"):
        summed, cache = loss.forward(outputs, y)
        return with_right_answers(summed, outputs, y), (cache, outputs.dtype)


def loss_backward(cache, loss, scale=1):
    """The gradient of the loss, multiplied by ``scale``, with respect to the outputs."""
    with span("backward"):
        cache, dtype = cache
        dy = loss.grad(cache).astype(dtype, copy=False)
        return dy if scale == 1 else dy * dy.dtype.type(scale)


def backward_in_parts(layers, dy, caches, params, grads, sync_statistics=(), input_grad=False):
    """A generator: go back through the layers → dx, delta. It adds to ``grads``, a list of arrays like ``params``.

    ``input_grad``: whether to compute dx, which is otherwise None. If ``grads`` is None, computing them is left to
    `weight_backward`, and ``delta`` lists the gradient of the output of each layer with parameters; otherwise ``delta``
    is empty.
    """
    lowest = -1 if input_grad else next((i for i, layer in enumerate(layers) if layer.shapes), len(layers))
    places, delta, sync = parameter_places(tuple(layers)), [], list(sync_statistics)
    for i in reversed(range(max(lowest, 0), len(layers))):
        layer, options = layers[i], {}
        if layer.channels and sync:
            own = sync.pop()
            own.sums[...] = batch_norm_sums(dy, caches[i])
            yield
            options["sums"] = own.sums
        if not layer.shapes:
            dy = layer.backward(dy, caches[i])
            continue
        own = slice(*places[i])
        cache = _with_weight(layer, caches[i], params[own])
        if grads is not None:
            dy, *values = layer.backward(dy, cache, input_grad=i != lowest, **options)
            _add(grads[own], values)
            continue
        delta.append(dy)
        if i != lowest:
            alone = {"weight_grad": False} if layer.backward in BACKWARD_IN_TWO else {}
            dy, *_ = layer.backward(dy, cache, **alone)
    return dy if input_grad else None, delta[::-1]


def weight_backward(layers, delta, caches, grads):
    """Add to ``grads`` the gradients that `backward_in_parts` left out."""
    places, rest = parameter_places(tuple(layers)), iter(delta)
    with span("backward"):
        for i, layer in enumerate(layers):
            if layer.shapes:
                _, *values = layer.backward(next(rest), caches[i], input_grad=False)
                _add(grads[slice(*places[i])], values)


@functools.lru_cache
def parameter_places(layers):
    """For each layer, the position (start, stop) of its parameters in the list of all parameters."""
    ends = list(itertools.accumulate((len(layer.shapes) for layer in layers), initial=0))
    return list(itertools.pairwise(ends))


def _without_weight(layer, cache):
    if function_of(layer)[0] not in WITH_WEIGHT:
        return cache
    x, _, *rest = cache
    return (x, None, *rest)


def _with_weight(layer, cache, params):
    """The cache, completed with the weight in the form in which forward used it."""
    function = function_of(layer)[0]
    if function not in WITH_WEIGHT:
        return cache
    x, _, *rest = cache
    weight = params[0]
    if function is conv2d:
        weight = weight.transpose(2, 3, 1, 0).reshape(x.shape[1], len(weight))
    return (x, weight, *rest)


def _add(grads, values):
    check_grads(values, [grad.shape for grad in grads])
    for grad, value in zip(grads, values, strict=True):
        grad += value
