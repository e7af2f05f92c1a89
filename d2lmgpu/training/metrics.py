"""Your own metrics: functions that compute, from outputs and labels, a measure of how good a network is.

    def top_3(logits, labels):                                     (n, classes), (n,)
        best = logits.argsort(axis=1)[:, -3:]
        return (best == labels[:, None]).sum()                     a number: summed over the n images

A metric gets plain NumPy or CuPy arrays for as many images as a device evaluates at a time, and returns a *sum* over
these images. The sums from all devices are added up, and the total is divided once by the number of images. If outputs
are not finite, metrics are not called; they are NaN.
"""

import math

import numpy as np

from ..base.arguments import check_function, shown
from ..devices import array_module
from ..layers.loss import answers
from ..networks.losses import as_targets, call_named, number

EXAMPLES, _TOLERANCE = 7, 1e-3
"""The number of examples with which a metric is tried, and how far its sums may be off, relative to their size."""

TAKEN = "accuracy", "loss"
"""Names that `evaluate` uses for other things."""


def check_metrics(metrics):
    """A copy of ``metrics``, a dict of functions; {} for None. Raises ValueError for anything else."""
    if metrics is None:
        return {}
    if not isinstance(metrics, dict):
        raise ValueError(f"metrics are {shown(metrics)}; give functions by their names: {{'top 3': function}}")
    for name, function in metrics.items():
        if not isinstance(name, str) or not name.strip() or not name.isprintable() or name in TAKEN:
            raise ValueError(f"{shown(name)} cannot be a metric's name; give a word or two, not {' or '.join(TAKEN)}")
        check_function(f"metric {name}", function, "outputs", "labels")
    return dict(metrics)


def try_metrics(metrics, y, outputs):
    """Runs on a device: try each metric with random outputs (n, ``outputs``) and a few labels or targets ``y``.

    Raises ValueError unless each metric returns a finite number that is a sum over the examples.
    """
    random = np.random.default_rng(0).normal(size=(len(y), outputs)).astype(np.float32)
    logits = array_module(y).array(random)
    whole = sum_metrics(metrics, logits, y, finite=True)
    each = [sum_metrics(metrics, logits[i : i + 1], y[i : i + 1], finite=True) for i in range(len(y))]
    for name, value, *parts in zip(metrics, whole, *each, strict=True):
        if abs(value - sum(parts)) > _TOLERANCE * max(map(abs, [value, *parts])):
            raise ValueError(
                f"metric {name} gives {value:.6g} for {len(y)} images, and {sum(parts):.6g} in all if each is given on "
                "its own; it should return a sum over the images (which is then divided by their number), not a mean"
            )


def sum_metrics(metrics, outputs, y, finite=False):
    """A list of the metrics, as floats, for plain arrays ``outputs`` (n, K) and targets ``y`` (n, ...), n above 0.

    Of outputs that are not finite, metrics are NaN: top_3 would take NaN for the largest of numbers.

    Raises ValueError, with the metric's name, if a metric fails or does not return a number.
    """
    y, sums = as_targets(y, outputs.dtype), []
    finite_outputs = bool(metrics) and bool((answers(outputs) >= 0).all())
    for name, function in metrics.items():
        value = call_named(f"metric {name}", function, outputs, y) if finite_outputs else math.nan
        sums.append(number(f"metric {name} returned", value, "the sum over images", finite))
    return sums
