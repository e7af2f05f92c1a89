"""Losses: those with a name, and your own, which are pairs of functions (forward, grad).

The functions work like those of layers/loss.py, on the network's outputs (n, K) and targets (n, ...), which are plain
NumPy or CuPy arrays:

    loss, cache = forward(outputs, targets)    the loss, summed over the n examples, is a number or a 0-d array
    doutputs = grad(cache)                     (n, K), the gradient of the loss with respect to the outputs

Targets are the labels of the data: whole numbers (n,), or floats (n, ...).

Your own loss is tested before training, because an error in it would affect every step (`try_loss`).
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..base.arguments import check_function, check_name, is_number, shown
from ..base.text import name_of, one_line
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


STEP, _TOLERANCE = 1e-5, 1e-3
"""The step of numerical derivatives, in float64, and the error allowed for gradients, relative to the largest one."""

EXAMPLES = 3
"""The number of examples in the test: few, because numerical derivatives need two calls per example and output."""


def try_loss(loss, y, K):
    """Test a `Loss` with random outputs (n, K) and a few targets ``y`` (n, ...), a plain array, on the device of ``y``.

    Raises ValueError unless the loss is a finite number, summed over the examples, and its ``grad`` agrees with
    numerical derivatives in float64.
    """
    xp, y = array_module(y), as_targets(on_host(y), np.float64)
    outputs = np.random.default_rng(0).normal(size=(len(y), K))
    try:
        _try(loss, outputs, y, xp)
    except ValueError as error:
        raise ValueError(f"loss {loss.name}, tried with outputs {outputs.shape}, targets {y.shape}: {error}") from error


def _try(loss, outputs, y, xp):
    value, cache = _forward(loss, outputs, y, xp)
    parts = [_forward(loss, outputs[i : i + 1], y[i : i + 1], xp)[0] for i in range(len(y))]
    if abs(value - sum(parts)) > _TOLERANCE * max(map(abs, [value, *parts])):
        raise ValueError(
            f"forward gives {value:.6g}, and {sum(parts):.6g} in all if each example is given on its own; the loss "
            "should be summed over examples (a step divides by their number)"
        )
    grad = _gradient(loss, cache, outputs.shape)
    numeric = np.empty_like(outputs)
    for place in np.ndindex(outputs.shape):
        above, below = outputs.copy(), outputs.copy()
        above[place] += STEP
        below[place] -= STEP
        numeric[place] = (_forward(loss, above, y, xp)[0] - _forward(loss, below, y, xp)[0]) / (2 * STEP)
    error = np.abs(grad - numeric)
    if error.max() > _TOLERANCE * max(np.abs(numeric).max(), np.abs(grad).max(), STEP):
        n, k = np.unravel_index(error.argmax(), error.shape)
        raise ValueError(
            f"grad gives {grad[n, k]:.6g} for output {k} of example {n}, but the numerical derivative of the loss "
            f"is {numeric[n, k]:.6g}; grad should return the gradient"
        )


def _forward(loss, outputs, y, xp):
    given = xp.array(outputs)
    result = call_named("forward", loss.forward, given, xp.array(y))
    if not isinstance(result, tuple) or len(result) != 2:
        raise ValueError(f"forward returned {shown(result)}; it should return the loss and a cache for grad")
    if not (on_host(given) == outputs).all():
        raise ValueError("forward changed its outputs in place; it should work on a copy")
    return as_number("forward returned", result[0], "the loss, summed over examples"), result[1]


def _gradient(loss, cache, shape):
    grad = call_named("grad", loss.grad, cache)
    if getattr(grad, "shape", None) != shape or getattr(getattr(grad, "dtype", None), "kind", "") != "f":
        raise ValueError(f"grad returned {shown(grad)}; it should be an array of floats {shape}, like the outputs")
    grad = on_host(grad).astype(float)
    if not np.isfinite(grad).all():
        raise ValueError("grad returned numbers that are not finite")
    return grad


def call_named(name, function, *arguments):
    """The result of ``function``. If it raises any error, raise a ValueError with its ``name``."""
    try:
        return function(*arguments)
    except (Exception, SystemExit, GeneratorExit) as error:  # the latter two would end the program silently
        raise ValueError(f"{name} failed: {one_line(error)}") from error


def as_number(what, value, wanted, finite=True):
    """The ``value``, a number or a 0-d array, as a float. Raises ValueError for any other object."""
    if not is_number(on_host(value)):
        raise ValueError(f"{what} {shown(value)}; it should be a number: {wanted}")
    value = float(on_host(value))
    if finite and not np.isfinite(value):
        raise ValueError(f"{what} {value}; it should be finite: {wanted}")
    return value
