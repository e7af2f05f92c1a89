"""Losses: those with a name, and your own, which are pairs of functions (forward, grad).

The functions work like those of layers/loss.py, on the network's outputs (n, K) and targets (n, ...), which are plain
NumPy or CuPy arrays:

    loss, cache = forward(outputs, targets)    the loss, summed over the n examples, is a number or a 0-d array
    doutputs = grad(cache)                     (n, K), the gradient of the loss with respect to the outputs

Targets are the labels of the data: whole numbers (n,), or floats (n, ...).

Your own loss is tested before training (try_loss.py).
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..base.arguments import check_function, check_name
from ..base.text import name_of
from ..devices import array_module
from ..layers import check_targets, softmax_cross_entropy, softmax_cross_entropy_grad, squared_error, squared_error_grad


class Loss(NamedTuple):
    """A loss: its name, and the two functions."""

    name: str
    forward: Callable
    grad: Callable

    def __repr__(self):
        return f"<Loss {self.name}>"

    @property
    def is_own(self):
        """Whether this is a loss of your own, not one of `LOSSES`."""
        return self not in LOSSES.values()

    def check(self, y, n, outputs=None):
        """Raise ValueError unless ``y`` can be the targets of n images; see `check_targets`."""
        check_targets(y, n, outputs, any_shape=self.is_own)

    def with_grad(self, outputs, y):
        """The loss, and its gradient with respect to the outputs, in the dtype of the outputs."""
        loss, cache = self.forward(outputs, y)
        return loss, self.grad(cache).astype(outputs.dtype, copy=False)

    def for_kernels(self, y):
        """The function for kernels to call: `with_grad`, or None for labels' cross-entropy, which kernels compute."""
        return None if self is CROSS_ENTROPY and y.ndim == 1 else self.with_grad


CROSS_ENTROPY = Loss("cross_entropy", softmax_cross_entropy, softmax_cross_entropy_grad)
SQUARED_ERROR = Loss("squared_error", squared_error, squared_error_grad)
LOSSES = {loss.name: loss for loss in (CROSS_ENTROPY, SQUARED_ERROR)}


def find_loss(loss):
    """The `Loss` with this name, or with this pair of functions (forward, grad).

    Raises ValueError for any other argument.
    """
    if isinstance(loss, Loss):
        return loss if loss.is_own else LOSSES[loss.name]  # the same object, even for a loss from a pickle
    if isinstance(loss, (list, tuple)) and len(loss) == 2 and all(map(callable, loss)):
        name = name_of(loss[0])
        check_function(f"loss {name}", loss[0], "outputs", "targets")
        check_function(f"the gradient of loss {name}", loss[1], "cache")
        return Loss(f"own {name}" if name in LOSSES else name, *loss)
    check_name("loss", loss, LOSSES, also=", or give a pair of functions (forward, grad)")
    return LOSSES[loss]


def missing_loss(name):
    """A stand-in for your own `Loss` if only its name is known: computing with it raises a ValueError that says so."""
    return Loss(name, *[functools.partial(_missing, name)] * 2)


def _missing(name, *arguments):
    raise ValueError(
        f"the loss {name} is a function of your own, which a file cannot hold: call "
        f"load_model(FILE, loss=({name}, its gradient))"
    )


def as_targets(y, dtype):
    """The targets, a plain array, as losses and metrics get them: floats in this dtype, whole labels unchanged."""
    return y.astype(dtype, copy=False) if y.dtype.kind == "f" else y


def on_host(array):
    """A plain array as a NumPy array; numbers are returned unchanged."""
    return array if array_module(array) is np else array.get()
