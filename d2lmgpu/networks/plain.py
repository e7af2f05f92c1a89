"""Loss and gradients computed in the obvious way: forward through the layers as they are written, and back.

Forward goes through the list of layers from first to last, and keeps every layer's cache; backward goes from last to
first. All parameters of a network form one list, in order: ``[W1, b1, W2, b2, W3, b3, W4, b4]`` for LeNet.

Plans do this stage by stage, and some divide backward in two: the gradients of inputs, and `backward_weights`.
"""

from ..devices import array_module, on_device, zeros_in_one_buffer
from ..devices.records import span
from ..layers import zero_moments
from ..layers.batch_norm import batch_moments, batch_norm, batch_norm_fixed
from ..layers.convolution import conv2d, conv2d_grad
from ..layers.dense import dense, dense_grad
from ..layers.functions import check_grads, function_of
from ..layers.loss import with_right_answers
from .build import channels
from .known import LENET
from .losses import CROSS_ENTROPY

BACKWARD_IN_TWO = (conv2d_grad, dense_grad)
"""Backward functions that can compute only the gradient of the input, or only the gradients of the parameters."""

WITH_WEIGHT = (conv2d, dense, batch_norm)
"""Layers whose caches have the weight as their second element."""


@on_device
def loss_and_grads_as_written(X, y, params, network=LENET, loss=CROSS_ENTROPY, draws=None):
    """Like `loss_and_grads`, but computed by the layers as they are written: the reference for kernels/."""
    grads = zeros_in_one_buffer(params)
    moments = zero_moments(channels(network), array_module(X))
    return sums_as_written(X, y, params, network, grads, loss, draws=draws, moments=moments)[..., 0].copy(), grads


def logits_as_written(X, params, network=LENET, statistics=()):
    """Like `logits`, but computed by the layers as they are written, with plain arrays: the reference for kernels/."""
    rest, fixed = iter(params), iter(statistics)
    for layer in network:
        own = [next(rest) for _ in layer.shapes]
        if layer.channels and statistics:
            X = batch_norm_fixed(X, *own, next(fixed), next(fixed))
        else:
            X, _ = layer.forward(X, *own)
    return X


def sums_as_written(X, y, params, network, grads, loss, scale=1, draws=None, moments=()):
    """Write ``grads``, multiplied by ``scale``; return an array of two: the loss, and the number of right answers."""
    outputs, caches = forward(network, X, params, draws, moments)
    found, cache = loss_forward(outputs, y, loss)
    _, values = backward(network, loss_backward(cache, loss, scale), caches)
    check_grads(values, [grad.shape for grad in grads])
    for grad, value in zip(grads, values, strict=True):
        grad[...] = value
    return found


def forward(layers, x, params, draws=None, moments=()):
    """Take ``x`` through the layers → y, and the layers' caches; batch norm's moments are written to ``moments``."""
    rest, norms, caches = iter(params), iter(moments), []
    with span("forward"):
        for layer in layers:
            own, options = [next(rest) for _ in layer.shapes], {}
            if layer.channels:
                own.append(next(norms))
                own[-1][...] = batch_moments(x)
            if layer.random:
                options["draws"], draws = draws, draws._replace(layer=draws.layer + 1)
            x, cache = layer.forward(x, *own, **options)
            caches.append(cache)
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


def backward(layers, dy, caches, input_grad=False, weight_grad=True):
    """Go back through the layers → dx, and a list of the parameters' gradients.

    ``input_grad``: whether to compute dx, which is otherwise None. With ``weight_grad=False``, which only plans need,
    the list is delta, from which `backward_weights` computes the gradients: for each layer with parameters, the
    gradient of its outputs.
    """
    left, found = sum(bool(layer.shapes) for layer in layers), []
    with span("backward"):
        for layer, cache in reversed([*zip(layers, caches, strict=True)]):
            if not (left or input_grad):  # below the first layer with parameters, no gradient is needed
                break
            if not layer.shapes:
                dy = layer.backward(dy, cache)
                continue
            left -= 1
            own, is_wanted = [dy], input_grad or left > 0
            if weight_grad:
                dy, *own = layer.backward(dy, cache, input_grad=is_wanted)
            elif is_wanted:
                alone = {"weight_grad": False} if layer.backward in BACKWARD_IN_TWO else {}
                dy, *_ = layer.backward(dy, cache, **alone)
            found = own + found
    return dy if input_grad else None, found


# What only plans need:


def backward_weights(layers, delta, caches):
    """A list of the gradients that `backward` left out, with the ``delta`` that it returned."""
    rest, grads = iter(delta), []
    with span("backward"):
        for layer, cache in zip(layers, caches, strict=False):
            if layer.shapes:
                _, *own = layer.backward(next(rest), cache, input_grad=False)
                grads += own
    return grads


def without_weights(layers, caches):
    """The caches as plans keep them: without weights, which a device may not hold until backward."""
    return [
        (cache[0], None, *cache[2:]) if function_of(layer)[0] in WITH_WEIGHT else cache
        for layer, cache in zip(layers, caches, strict=True)
    ]


def with_weights(layers, caches, params):
    """The caches, completed with the weights in the form in which forward used them."""
    rest, found = iter(params), []
    for layer, cache in zip(layers, caches, strict=False):
        own, function = [next(rest) for _ in layer.shapes], function_of(layer)[0]
        if function in WITH_WEIGHT:
            x, _, *others = cache
            weight = own[0]
            if function is conv2d:
                weight = weight.transpose(2, 3, 1, 0).reshape(x.shape[1], len(weight))
            cache = (x, weight, *others)
        found.append(cache)
    return found
