"""Optimisers: plain functions on one device's parameters."""

import threading

import numpy as np

from .devices import array_module, on_device
from .timing import span

PIECE = 2**18
"""Elements that a CPU updates at a time."""

_thread = threading.local()


@on_device
def sgd(params, grads, lr, batch_size):
    """One step of minibatch stochastic gradient descent, in place: param -= lr / batch_size · grad.

    Gradients are sums over the examples of the whole batch, all devices'
    together; ``batch_size`` is that full batch's size, not a shard's.
    """
    rate = params[0].dtype.type(lr / batch_size)
    with span("update"):
        for param, grad in zip(params, grads, strict=True):
            if array_module(param) is np and param.flags.c_contiguous and grad.flags.c_contiguous:
                _update_in_pieces(param.reshape(-1), grad.reshape(-1), rate)
            else:
                param -= rate * grad


def _update_in_pieces(param, grad, rate):
    """``param -= rate · grad`` for flat arrays, without an array for the product: its pieces stay in the cache."""
    memory = getattr(_thread, "memory", None)
    if memory is None or memory.dtype != grad.dtype:
        memory = _thread.memory = np.empty(PIECE, grad.dtype)
    for start in range(0, param.size, PIECE):
        piece = slice(start, start + PIECE)
        change = np.multiply(grad[piece], rate, out=memory[: len(grad[piece])])
        np.subtract(param[piece], change, out=param[piece])
