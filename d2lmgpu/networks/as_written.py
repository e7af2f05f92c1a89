"""Loss and gradients as one thinks of them: through the layers, as they are written, and back.

Forward goes down the list of layers and keeps every layer's cache, backward goes
up again. All parameters of a network are one list, in order: for LeNet
``[W1, b1, W2, b2, W3, b3, W4, b4]``.

Where batch norm needs sums over all images, and other devices may have some of
them, the computation pauses: it is a *generator*, which yields when its device's
share of the sums is written and goes on when the sums are complete.

    device 0    conv | share of the sums ┐     ┌ batch norm, ReLU, ... | share ┐     ┌ ...
                                         ├ add ┤                               ├ add ┤
    device 1    conv | share of the sums ┘     └ batch norm, ReLU, ... | share ┘     └ ...
"""

import itertools

from ..devices import array_module, on_device, zeros_in_one_buffer
from ..kernels.stages import to_the_end
from ..layers import batch_moments, batch_norm_sums, make_sync_statistics
from ..layers.labels import with_right_answers
from ..timing import span
from .build import channels
from .known import LENET
from .losses import CROSS_ENTROPY


@on_device
def loss_and_grads_as_written(X, y, params, network=LENET, loss=CROSS_ENTROPY, draws=None):
    """As `loss_and_grads`, computed by the layers as they are written: the reference for kernels/."""
    grads = zeros_in_one_buffer(params)
    sync_statistics = make_sync_statistics(channels(network), array_module(X))
    parts = as_written(X, y, params, network, grads, None, sync_statistics, draws=draws, loss=loss)
    sums = to_the_end(parts)
    return sums[..., 0].copy(), grads


def as_written(X, y, params, network, grads, ready=None, sync_statistics=(), scale=1.0, draws=None, loss=CROSS_ENTROPY):
    """`in_parts` as one thinks of it, without its gradients: through the layers one by one, and back."""
    rest, caches, drawing = iter(params), [], itertools.count()
    for layer, sync in zip(network, _one_each(network, sync_statistics), strict=True):
        own = [next(rest) for _ in layer.shapes]
        if layer.channels:
            with span("forward"):
                sync.moments[...] = batch_moments(X)
            yield
            own.append(sync.moments)
        with span("forward"):
            options = {"draws": draws._replace(layer=next(drawing))} if layer.random else {}
            X, cache = layer.forward(X, *own, **options)
        caches.append(cache)
    with span("forward"):
        summed, cache = loss.forward(X, y)
        sums = with_right_answers(summed, X, y)
    with span("backward"):
        dy = loss.grad(cache).astype(X.dtype, copy=False)
        if scale != 1:
            dy *= dy.dtype.type(scale)

    left = list(grads)
    first = next((i for i, layer in enumerate(network) if layer.shapes), len(network))  # none below needs a gradient
    walked = list(zip(network, caches, _one_each(network, sync_statistics), strict=True))
    for layer, cache, sync in reversed(walked[first:]):
        options = {"input_grad": layer is not network[first]} if layer.shapes else {}
        if layer.channels:
            with span("backward"):
                sync.sums[...] = batch_norm_sums(dy, cache)
            yield
            options["sums"] = sync.sums
        with span("backward"):
            if layer.shapes:
                dy, *values = layer.backward(dy, cache, **options)
                for value in reversed(values):
                    left.pop()[...] = value
            else:
                dy = layer.backward(dy, cache)
    if ready is not None:
        ready(0)
    return sums


def _one_each(network, sync_statistics):
    """Each layer's `SyncStatistics`, None for layers other than batch norm."""
    sync_statistics = iter(sync_statistics)
    return [next(sync_statistics) if layer.channels else None for layer in network]
