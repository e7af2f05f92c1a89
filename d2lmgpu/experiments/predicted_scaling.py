"""Step times of k devices, predicted from the time of one device and from messages.

    step(k) = turns · compute(n) + allreduce(k)

n           the most examples on a device: ⌈b/k⌉ for a minibatch of b
compute     seconds of a device's own part of a step, by n; measured on devices that exchange nothing
turns       ⌈k / places⌉: devices take turns if there are more of them than cores or GPUs; otherwise 1
allreduce   simulated: the algorithm's schedule on a network, see collectives/simulate.py

The effect of shared resources (memory, caches, the interpreter's lock) is included in ``compute`` if it was measured on
as many devices at the same time, each training on its own. The model ignores that all devices must wait for the slowest
in every step, and that exchanges may overlap with computation.
"""

import math
from dataclasses import asdict, dataclass

import numpy as np

from ..base.arguments import check_name, check_whole, plain, plain_numbers
from ..collectives import ALGORITHMS, simulate
from ..collectives.benchmark import fit_virtual_devices, measure_allreduce, virtual_devices

_MESSAGES = (2**12, 2**16, 2**20, 2**23)
"""The sizes, in bytes, of the messages that are timed."""


@dataclass
class ComputeTimes:
    """``seconds`` of a step without an exchange, for ascending ``sizes`` of a device's part.

    Called with n, it returns the seconds for n examples: linear from 0 through the sizes, and from the last size on in
    proportion to n.
    """

    sizes: list
    seconds: list

    def __call__(self, n):
        """Seconds for n examples."""
        n, sizes, seconds = plain((n, self.sizes, self.seconds))
        return float(np.interp(n, [0, *sizes], [0, *seconds])) * max(1, n / sizes[-1])


@dataclass
class Prediction:
    """A step with ``batch_size`` examples on ``devices`` devices; seconds are per step."""

    devices: int
    batch_size: int
    seconds_per_step: float
    compute_seconds: float
    allreduce_seconds: float
    speedup: float
    efficiency: float

    as_dict = asdict


def batch_sizes(mode, counts, batch_size):
    """Examples in a minibatch, for each number of devices. Raises ValueError for a wrong mode or batch size."""
    check_name("mode", mode, ("strong", "weak"))
    batch_size = check_whole("batch_size", batch_size)
    return {k: batch_size * k if mode == "weak" else batch_size for k in counts}


@plain_numbers
def predict_scaling(compute, counts, batch_size, elements, network, mode="strong", algorithm="ring", places=None):
    """A `Prediction` for each number of devices in ``counts``.

    ``compute``: a `ComputeTimes`, or any function of n. ``elements``: the number of elements of the gradient, which are
    float32. ``network``: what joins k devices, a function of k, as in `collectives.network`. ``mode``: "strong", with
    ``batch_size`` examples in the whole minibatch, or "weak", with ``batch_size`` examples on each device. ``places``:
    how many devices can work at the same time (None: all of them). Speed-up and efficiency compare with one device, for
    the same number of examples.
    """
    rows = []
    batches = batch_sizes(mode, counts, batch_size)
    alone = compute(batch_size)
    for k, batch in batches.items():
        computing = math.ceil(k / (places or k)) * compute(math.ceil(batch / k))
        exchanging = simulate(ALGORITHMS[algorithm](k, elements), network(k)).seconds if k > 1 else 0.0
        speedup = alone * (batch / batch_size) / (computing + exchanging)
        rows.append(Prediction(k, batch, computing + exchanging, computing, exchanging, speedup, speedup / k))
    return rows


def fit_messages(devices, counts, algorithm, places):
    """Time messages on the first k devices, for all k in ``counts``, and fit a network to the times.

    Returns (a function of k, the constants of `fit_virtual_devices`).
    """
    rows = [row for k in counts if k > 1 for row in measure_allreduce(devices[:k], [algorithm], _MESSAGES)]
    constants = fit_virtual_devices(rows, ALGORITHMS, places)
    return virtual_devices(constants, places), constants
