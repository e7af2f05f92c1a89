"""Measure loads so that devices of different speeds finish their shards at the same time.

All devices compute the gradients of their shards of a few minibatches, all at the same time, as in training. A device
that took longer then gets fewer examples. A device's time need not be proportional to the number of its examples,
because some of it is fixed. So this is repeated a few times, each time with the loads found before. At the end, the
loads must prove to be better than equal parts, because measured times differ even between equal devices.
"""

import functools

import numpy as np

from ..base.arguments import check_examples, check_whole
from ..base.measuring import repeated, seconds_of, take_rounds
from ..data.minibatches import to_float
from ..devices import check_devices
from ..layers import Draws
from ..networks import CROSS_ENTROPY, LENET, loss_and_grads
from .shards import shard_bounds
from .step import get_params, split_batch

ROUNDS = 3
STEPS = 3
"""The number of minibatches in a round, of which the median time counts.

An untimed minibatch, which may compile kernels, comes first.
"""

TRIALS = 7
"""The number of pairs of steps, one with equal parts and one with the loads found; five pairs must agree.

An untimed pair comes first.
"""

GAIN = 0.05
"""The fraction of a step's time that loads must save; if they save less, the parts stay equal."""


def measure_loads(X, y, params, devices, batch_size, network=LENET, loss=CROSS_ENTROPY):
    """Loads for splitting minibatches of ``X`` and ``y``: the devices' shares, which add up to 1.

    ``params``: host arrays, as from `init_params`. The loads are equal unless others save more than `GAIN` of a step's
    time. A device's share is at least one example per minibatch; without any, the device could not be measured again.

    Raises ValueError unless each example has a label.
    """
    X, y = check_examples("measure_loads", X, y, least=1)
    batch_size, devices = check_whole("batch_size", batch_size), check_devices(devices)
    k = len(devices)
    copies = [get_params(params, device) for device in devices]
    batch = to_float(X[:batch_size]), y[:batch_size]
    n = len(batch[1])
    loads = np.full(k, 1 / k)
    measure = functools.partial(_seconds, *batch, copies, devices, network, loss)
    for _ in range(ROUNDS):
        seconds = np.median(repeated(functools.partial(measure, loads), STEPS), axis=0)
        examples = np.array([stop - start for start, stop in shard_bounds(n, k, loads)])
        speeds = np.maximum(examples, 1) / seconds
        loads = np.maximum(speeds / speeds.sum(), 1 / n)
        loads /= loads.sum()
    return (loads if _saved(measure, loads) > GAIN else np.full(k, 1 / k)).tolist()


def _saved(measure, loads):
    """The fraction of a step's time, until the last device is done, that ``loads`` usually save over equal parts."""
    parts = {"equal": None, "found": loads}
    tries = take_rounds({name: functools.partial(measure, part) for name, part in parts.items()}, TRIALS)
    saved = sorted(1 - max(found) / max(equal) for equal, found in zip(tries["equal"], tries["found"], strict=True))
    return saved[TRIALS // 3]


def _seconds(X, y, copies, devices, network, loss, loads):
    """The seconds that each device needs for its shard while all devices work at the same time."""

    def timed(X, y, params, finish):
        """Runs on the device, with dropout, which also takes time."""
        return seconds_of(lambda: loss_and_grads(X, y, params, network, draws=Draws(0), loss=loss), finish)

    each_device = zip(devices, *split_batch(X, y, devices, loads), copies, strict=True)
    tasks = [device.run(timed, *arguments, device.finish) for device, *arguments in each_device]
    return [task.result() for task in tasks]
