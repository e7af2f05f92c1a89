"""Loss and gradients computed in the obvious way: forward through the layers as they are written, and back.

Forward goes through the list of layers from first to last, and keeps every layer's cache; backward goes from last to
first. All parameters of a network form one list, in order: ``[W1, b1, W2, b2, W3, b3, W4, b4]`` for LeNet.
as_written.py does the same in parts, for plans.
"""

from ..devices import array_module, on_device, zeros_in_one_buffer
from ..layers.batch_norm import batch_moments, batch_norm_fixed, make_sync_statistics
from ..layers.labels import with_right_answers
from ..spans import span
from .build import channels
from .known import LENET
from .losses import CROSS_ENTROPY


@on_device
def loss_and_grads_as_written(X, y, params, network=LENET, loss=CROSS_ENTROPY, draws=None):
    """Like `loss_and_grads`, but computed by the layers as they are written: the reference for kernels/."""
    grads = zeros_in_one_buffer(params)
    sync = make_sync_statistics(channels(network), array_module(X))
    return sums_as_written(X, y, params, network, grads, loss, draws=draws, sync=sync)[..., 0].copy(), grads


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


def sums_as_written(X, y, params, network, grads, loss, scale=1, draws=None, sync=()):
    """Write ``grads``, multiplied by ``scale``; return an array of two: the loss, and the number of right answers."""
    with span("forward"):
        outputs, caches = forward(network, X, params, draws, sync)
        found, cache = loss.forward(outputs, y)
        found = with_right_answers(found, outputs, y)
    with span("backward"):
        dy = loss.grad(cache).astype(outputs.dtype, copy=False)
        backward(network, dy if scale == 1 else dy * dy.dtype.type(scale), caches, grads)
    return found


def forward(network, x, params, draws=None, sync=()):
    """Take ``x`` through the layers → y, and the layers' caches; batch norm's moments are written to ``sync``."""
    rest, norms, caches = iter(params), iter(sync), []
    for layer in network:
        own, options = [next(rest) for _ in layer.shapes], {}
        if layer.channels:
            moments = next(norms).moments
            moments[...] = batch_moments(x)
            own.append(moments)
        if layer.random:
            options["draws"], draws = draws, draws._replace(layer=draws.layer + 1)
        x, cache = layer.forward(x, *own, **options)
        caches.append(cache)
    return x, caches


def backward(network, dy, caches, grads):
    """Go back through the layers, from the gradient of y, and write ``grads``."""
    rest = list(grads)
    while rest:  # below the first layer with parameters, no gradient is needed
        layer, cache = network[len(caches) - 1], caches.pop()
        if not layer.shapes:
            dy = layer.backward(dy, cache)
            continue
        own = [rest.pop() for _ in layer.shapes][::-1]
        dy, *values = layer.backward(dy, cache, input_grad=bool(rest))
        for grad, value in zip(own, values, strict=True):
            grad[...] = value
