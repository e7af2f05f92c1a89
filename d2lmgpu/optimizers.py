"""Optimisers: plain functions on one device's parameters, and on the optimiser's state, if it has any.

Each takes one step of training, in place. Gradients are sums over the examples of
the whole batch, all devices' together; ``batch_size`` is that full batch's size,
not a shard's, and g = grad / batch_size the mean gradient.
"""

import threading
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .arguments import check_array, check_number, shown
from .devices import array_module, on_device
from .timing import span

PIECE = 2**18
"""Elements that a CPU updates at a time."""

_thread = threading.local()


@on_device
def sgd(params, grads, lr, batch_size):
    """Minibatch stochastic gradient descent: param -= lr · g.

    Raises ValueError for gradients that are not like the parameters, a rate that is not finite, a batch size of 0.
    """
    _check(params, grads, lr, batch_size)
    xp = array_module(params[0])
    with span("update"):
        for param, grad, change in _pieces(params, grads):
            xp.multiply(grad, param.dtype.type(lr / batch_size), out=change)
            xp.subtract(param, change, out=param)


@on_device
def momentum(params, grads, velocities, lr, batch_size, decay=0.9):
    """SGD with momentum (Polyak 1964), as in PyTorch: velocity = decay · velocity + g; param -= lr · velocity.

    ``velocities``: arrays like ``params``, zeros at first.
    """
    xp = array_module(params[0])
    with span("update"):
        for param, grad, velocity, change in _pieces(params, grads, velocities):
            number = param.dtype.type
            xp.multiply(velocity, number(decay), out=velocity)
            xp.multiply(grad, number(1 / batch_size), out=change)
            xp.add(velocity, change, out=velocity)
            xp.multiply(velocity, number(lr), out=change)
            xp.subtract(param, change, out=param)


@on_device
def adam(params, grads, means, squares, step, lr, batch_size, beta1=0.9, beta2=0.999, epsilon=1e-8):
    """Adam (Kingma and Ba 2015): running means of g and g², both corrected for their start at zero.

    ``means`` and ``squares``: arrays like ``params``, zeros at first. ``step``
    counts from 1. param -= lr · m / (√v + epsilon), where m = mean / (1 - beta1^step)
    and v = square / (1 - beta2^step).
    """
    xp = array_module(params[0])
    with span("update"):
        for param, grad, mean, square, change in _pieces(params, grads, means, squares):
            number = param.dtype.type
            xp.multiply(mean, number(beta1), out=mean)
            xp.multiply(grad, number((1 - beta1) / batch_size), out=change)
            xp.add(mean, change, out=mean)
            xp.multiply(square, number(beta2), out=square)
            xp.multiply(grad, number((1 - beta2) ** 0.5 / batch_size), out=change)
            xp.multiply(change, change, out=change)
            xp.add(square, change, out=square)
            xp.multiply(square, number(1 / (1 - beta2**step)), out=change)
            xp.sqrt(change, out=change)
            xp.add(change, number(epsilon), out=change)
            xp.divide(mean, change, out=change)
            xp.multiply(change, number(lr / (1 - beta1**step)), out=change)
            xp.subtract(param, change, out=param)


class Optimizer(NamedTuple):
    """An optimiser by name: ``update(params, grads, *state, step, lr, batch_size)``.

    Its state are ``states`` lists like ``params``, zeros at first. ``in_graphs``: whether there is a CUDA kernel that
    does the same.
    """

    name: str
    update: Callable
    states: int
    in_graphs: bool = True


def _without_step(update):
    return lambda params, grads, *rest: update(params, grads, *rest[:-3], *rest[-2:])


SGD, MOMENTUM = Optimizer("sgd", _without_step(sgd), 0), Optimizer("momentum", _without_step(momentum), 1)
OPTIMIZERS = {optimizer.name: optimizer for optimizer in (SGD, MOMENTUM, Optimizer("adam", adam, 2))}


def make_optimizer(settings):
    """The `Optimizer` for the settings of a run."""
    optimizer = OPTIMIZERS[settings.optimizer]
    return decaying(optimizer, settings.weight_decay) if settings.weight_decay else optimizer


def decaying(optimizer, weight_decay):
    """The `Optimizer` with g + weight_decay · param for g, as in PyTorch: of the loss + weight_decay/2 · ‖params‖²."""

    def update(params, grads, *rest):
        batch_size = rest[-1]
        with span("update"):
            for param, grad, product in _pieces(params, grads):
                xp = array_module(param)
                xp.multiply(param, param.dtype.type(weight_decay * batch_size), out=product)
                xp.add(grad, product, out=grad)
        optimizer.update(params, grads, *rest)

    return optimizer._replace(update=update, in_graphs=False)


def _pieces(*lists):
    """For each array of ``lists``, which are alike, the arrays and one more of their size, for passing results.

    On a CPU in pieces that stay in the cache, and with the same memory each time.
    """
    for arrays in zip(*lists, strict=True):
        first = arrays[0]
        if array_module(first) is not np or not all(array.flags.c_contiguous for array in arrays):
            yield *arrays, array_module(first).empty_like(first)
            continue
        memory = getattr(_thread, "memory", None)
        if memory is None or memory.dtype != first.dtype or memory.size < PIECE:
            memory = _thread.memory = np.empty(PIECE, first.dtype)
        flat = [array.reshape(-1) for array in arrays]
        for start in range(0, first.size, PIECE):
            pieces = [array[start : start + PIECE] for array in flat]
            yield *pieces, memory[: len(pieces[0])]


def _check(params, grads, lr, batch_size):
    """Raise ValueError unless ``grads`` is a list of arrays like ``params``, and the numbers are some."""
    check_number("lr", lr)
    check_number("batch_size", batch_size, above=0)
    if not isinstance(params, (list, tuple)) or not params:
        raise ValueError(f"params: {shown(params)} should be a list of arrays")
    for i, param in enumerate(params):
        check_array(f"params: number {i}", param, kinds="f")
    if not isinstance(grads, (list, tuple)) or len(grads) != len(params):
        raise ValueError(f"grads: {shown(grads)} should be a list of {len(params)} arrays, like params")
    for i, (grad, param) in enumerate(zip(grads, params, strict=True)):
        if getattr(grad, "shape", None) != param.shape or getattr(grad, "dtype", None) != param.dtype:
            raise ValueError(f"grads: number {i} is {shown(grad)}; it should be {shown(param)}, like params")
