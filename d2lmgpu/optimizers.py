"""Optimisers: plain functions on one device's parameters."""

import threading

import numpy as np

from .devices import array_module, on_device
from .timing import span

_thread = threading.local()


@on_device
def sgd(params, grads, lr, batch_size):
    """One step of minibatch stochastic gradient descent, in place: param -= lr / batch_size · grad.

    Gradients are sums over the examples of the whole batch, all devices'
    together; ``batch_size`` is that full batch's size, not a shard's.
    """
    with span("update"):
        for param, grad in zip(params, grads, strict=True):
            xp = array_module(param)
            change = xp.multiply(grad, param.dtype.type(lr / batch_size), out=_memory_like(grad))
            xp.subtract(param, change, out=param)


def _memory_like(array):
    """An array like ``array`` with any contents: on a CPU the same each time, from CuPy's pool on a GPU."""
    xp = array_module(array)
    if xp is not np:
        return xp.empty_like(array)
    memory = getattr(_thread, "memory", None)
    if memory is None or memory.nbytes < array.nbytes:
        memory = _thread.memory = np.empty(array.nbytes, np.uint8)
    return memory[: array.nbytes].view(array.dtype).reshape(array.shape)
