"""What F, B, I and W do on a device where a stage is computed layer by layer, as the layers are written.

And what they have in common with stages that kernels compute (compute.py): what becomes of their results.
"""

from ...layers.functions import check_grads, images_last
from ...networks import plain


def forward_as_written(store, action):
    """F."""
    s, m = action.stage, action.micro_batch
    layers, moments = store.layers[s], store.new_moments(s)
    y, cache = plain.forward(layers, store.x(s, m), store.params(s), store.draws(s, m), moments)
    cache = plain.without_weights(layers, cache)
    add_moments(store, s, moments)
    if store.is_last(s):
        y, of_loss = plain.loss_forward(y, store.minibatch.y[m], store.loss)
        cache.append(of_loss)
    else:
        y = images_last(y)
    store.set("cache", s, m, cache)
    hand_on(store, action, y)


def backward_as_written(store, action):
    """B."""
    dx, grads = _back(store, action)
    _add_grads(store, action, grads)
    hand_back(store, action, dx)


def inputs_as_written(store, action):
    """I: what W needs later is kept as delta."""
    dx, delta = _back(store, action, weight_grad=False)
    store.set("delta", action.stage, action.micro_batch, delta)
    hand_back(store, action, dx)


def weights_as_written(store, action):
    """W."""
    s, m = action.stage, action.micro_batch
    delta, cache = store.values["delta", s, m], store.values["cache", s, m]
    _add_grads(store, action, plain.backward_weights(store.layers[s], delta, cache[: len(store.layers[s])]))


def _back(store, action, weight_grad=True):
    """Go back through the layers → dx, or None before the first stage, and the list that `plain.backward` returns."""
    s, m = action.stage, action.micro_batch
    layers, cache, dy = store.layers[s], store.values["cache", s, m], store.dy(s, m)
    if dy is None:
        dy = plain.loss_backward(cache[-1], store.loss, store.precision.scale)
    caches = plain.with_weights(layers, cache[: len(layers)], store.params(s))
    dx, found = plain.backward(layers, dy, caches, s > 0, weight_grad)
    return images_last(dx) if s else None, found


def _add_grads(store, action, values):
    grads = store.views(store.flat_of(action.target), action.stage)
    check_grads(values, [grad.shape for grad in grads])
    add_to_each(zip(grads, values, strict=True))


def hand_on(store, action, y):
    """Keep what F has computed: at the end the loss and the number of right answers, otherwise y."""
    s, m = action.stage, action.micro_batch
    if store.is_last(s):
        store.minibatch.sums[m] = y
    else:
        store.set("y", s, m, y)


def hand_back(store, action, dx):
    """Keep what B and I have computed for the stage before, if there is one."""
    if action.stage:
        store.set("dy", action.stage - 1, action.micro_batch, dx)


def add_moments(store, s, moments):
    """Add a micro-batch's moments to those of the stage."""
    add_to_each(zip(store.moments[s], moments, strict=True))


def add_to_each(pairs):
    """For pairs of a gradient and a term, add the term to the gradient."""
    for grad, term in pairs:
        grad += term
