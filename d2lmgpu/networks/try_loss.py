"""Test your own loss before training, because an error in it would affect every step."""

import numpy as np

from ..base.arguments import is_number, shown
from ..base.text import one_line
from ..devices import array_module
from .losses import as_targets, on_host

STEP, TOLERANCE = 1e-5, 1e-3
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
    if abs(value - sum(parts)) > TOLERANCE * max(map(abs, [value, *parts])):
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
    if error.max() > TOLERANCE * max(np.abs(numeric).max(), np.abs(grad).max(), STEP):
        n, k = np.unravel_index(error.argmax(), error.shape)
        raise ValueError(
            f"grad gives {grad[n, k]:.6g} for output {k} of example {n}, but the numerical derivative of the loss "
            f"is {numeric[n, k]:.6g}; grad should return the gradient"
        )


def _forward(loss, outputs, y, xp):
    given = xp.array(outputs)
    result = called("forward", loss.forward, given, xp.array(y))
    if not isinstance(result, tuple) or len(result) != 2:
        raise ValueError(f"forward returned {shown(result)}; it should return the loss and a cache for grad")
    if not (on_host(given) == outputs).all():
        raise ValueError("forward changed its outputs in place; it should work on a copy")
    return number("forward returned", result[0], "the loss, summed over examples"), result[1]


def _gradient(loss, cache, shape):
    grad = called("grad", loss.grad, cache)
    if getattr(grad, "shape", None) != shape or getattr(getattr(grad, "dtype", None), "kind", "") != "f":
        raise ValueError(f"grad returned {shown(grad)}; it should be an array of floats {shape}, like the outputs")
    grad = on_host(grad).astype(float)
    if not np.isfinite(grad).all():
        raise ValueError("grad returned numbers that are not finite")
    return grad


def called(name, function, *arguments):
    """The result of ``function``. If it raises any error, raise a ValueError with its ``name``."""
    try:
        return function(*arguments)
    except (Exception, SystemExit, GeneratorExit) as error:  # the latter two would end the program silently
        raise ValueError(f"{name} failed: {one_line(error)}") from error


def number(what, value, wanted, finite=True):
    """The ``value``, a number or a 0-d array, as a float. Raises ValueError for any other object."""
    if not is_number(on_host(value)):
        raise ValueError(f"{what} {shown(value)}; it should be a number: {wanted}")
    value = float(on_host(value))
    if finite and not np.isfinite(value):
        raise ValueError(f"{what} {value}; it should be finite: {wanted}")
    return value
