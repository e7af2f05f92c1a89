"""Losses: those with a name, and those of one's own, a pair of functions (forward, grad).

As those of layers/loss.py, for outputs (n, K) of the network and targets (n, ...), plain arrays of NumPy or CuPy:

    loss, cache = forward(outputs, targets)    loss: summed over the n examples, a number or a 0-d array
    doutputs = grad(cache)                     (n, K), the gradient of the loss with respect to the outputs

Targets are what the data have as labels: whole numbers (n,), or floats (n, ...).
"""

from collections.abc import Callable
from typing import NamedTuple

from ..arguments import shown
from ..layers import (
    check_targets,
    softmax_cross_entropy,
    softmax_cross_entropy_grad,
    squared_error,
    squared_error_grad,
)
from ..words import name_of


class Loss(NamedTuple):
    """A loss: its name, and the two functions."""

    name: str
    forward: Callable
    grad: Callable

    @property
    def is_own(self):
        """Whether it is none of `LOSSES`."""
        return self not in LOSSES.values()

    def check(self, y, n, outputs=None):
        """Raise ValueError unless ``y`` can be the targets of n images, see `check_targets`."""
        check_targets(y, n, outputs, any_shape=self.is_own)

    def with_grad(self, outputs, y):
        """The loss, and its gradient with respect to the outputs, in their dtype."""
        loss, cache = self.forward(outputs, y)
        return loss, self.grad(cache).astype(outputs.dtype, copy=False)

    def for_kernels(self, y):
        """What kernels call: `with_grad`, or None for the cross-entropy of labels, which is theirs."""
        return None if self is CROSS_ENTROPY and y.ndim == 1 else self.with_grad


CROSS_ENTROPY = Loss("cross_entropy", softmax_cross_entropy, softmax_cross_entropy_grad)
SQUARED_ERROR = Loss("squared_error", squared_error, squared_error_grad)
LOSSES = {loss.name: loss for loss in (CROSS_ENTROPY, SQUARED_ERROR)}


def find_loss(loss):
    """The `Loss` of a name, or of a pair of functions (forward, grad).

    Raises ValueError for anything else.
    """
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, str) and loss in LOSSES:
        return LOSSES[loss]
    if isinstance(loss, (list, tuple)) and len(loss) == 2 and all(map(callable, loss)):
        name = name_of(loss[0])
        return Loss(f"own {name}" if name in LOSSES else name, *loss)
    raise ValueError(
        f"loss {shown(loss)} is unknown; choose from {', '.join(LOSSES)}, or give a pair of functions (forward, grad)"
    )


def missing_loss(name):
    """A `Loss` of somebody's own, of which only the name is known: to compute it raises a ValueError that says so."""

    def forward(outputs, y):
        raise ValueError(
            f"the loss {name} is a function of somebody's own, which no file holds: give "
            f"load_model(FILE, loss=({name}, its gradient))"
        )

    return Loss(name, forward, forward)


def as_targets(y, dtype):
    """Targets as losses and metrics get them: floats in this dtype, whole labels as they are. Plain arrays."""
    return y.astype(dtype, copy=False) if y.dtype.kind == "f" else y
