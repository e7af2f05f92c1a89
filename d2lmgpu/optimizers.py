"""Optimisers: plain functions on one device's parameters."""

from .devices import on_device


@on_device
def sgd(params, grads, lr, batch_size):
    """One step of minibatch stochastic gradient descent, in place: param -= lr / batch_size · grad.

    Gradients are sums over the examples of the whole batch, all devices'
    together; ``batch_size`` is that full batch's size, not a shard's.
    """
    for param, grad in zip(params, grads, strict=True):
        param -= param.dtype.type(lr / batch_size) * grad
