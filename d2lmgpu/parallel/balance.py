"""Loads by measurement: devices of different speed should finish their shards at the same time.

All devices compute the gradients of their shards of a few minibatches, at the same
time as in training. A device that took long gets fewer examples. A device's time need not
be in proportion to its examples (some of it is spent whatever their number), so
that this is done a few times over, each time with the loads found before. At last
they must show, against equal parts, that they are worth it: no two measurements are
the same, also of devices that are.
"""

import functools

import numpy as np

from ..data import to_float
from ..layers import Draws
from ..measuring import repeated, seconds_of, take_rounds
from .data import split_batch
from .shards import shard_bounds

ROUNDS = 3
STEPS = 3
"""Minibatches in a round: the median of their times counts; one before them, which may compile kernels, does not."""

TRIALS = 7
"""Pairs of steps with equal parts and with the loads found, of which five must agree; after one that may compile."""

GAIN = 0.05
"""The part of a step's time that loads must save, or the parts stay equal."""


def measure_loads(X, y, replicas, batch_size):
    """Loads by which minibatches of ``X`` and ``y`` should be split: each device's share, all together 1.

    They are equal unless others save `GAIN` of a step's time. Parameters and statistics
    stay as they are. A device's share is never less than one example of a minibatch,
    since it could not be measured again.
    """
    k = len(replicas)
    replicas = [replica.with_draws(Draws(0)) for replica in replicas]  # dropout takes time, too
    batch = to_float(X[:batch_size]), y[:batch_size]
    n = len(batch[1])
    loads = np.full(k, 1 / k)
    for _ in range(ROUNDS):
        seconds = np.median(repeated(functools.partial(_seconds, *batch, replicas, loads), STEPS), axis=0)
        examples = np.array([stop - start for start, stop in shard_bounds(n, k, loads)])
        speeds = np.maximum(examples, 1) / seconds
        loads = np.maximum(speeds / speeds.sum(), 1 / n)
        loads /= loads.sum()
    return (loads if _saved(*batch, replicas, loads) > GAIN else np.full(k, 1 / k)).tolist()


def _saved(X, y, replicas, loads):
    """The part of a step's time, until the last device is done, that ``loads`` save against equal parts: most times."""
    parts = {"equal": None, "found": loads}
    tries = {name: functools.partial(_seconds, X, y, replicas, part) for name, part in parts.items()}
    tries = take_rounds(tries, TRIALS)
    saved = sorted(1 - max(found) / max(equal) for equal, found in zip(tries["equal"], tries["found"], strict=True))
    return saved[TRIALS // 3]


def _seconds(X, y, replicas, loads):
    """How long each device works on its shard, all at the same time."""
    shards = split_batch(X, y, [replica.device for replica in replicas], loads)
    tasks = [
        replica.device.run(_timed, replica, X_shard, y_shard)
        for replica, X_shard, y_shard in zip(replicas, *shards, strict=True)
    ]
    return [task.result() for task in tasks]


def _timed(replica, X, y):
    """Runs on the device."""
    return seconds_of(lambda: replica.loss_and_grads(X, y), replica.device.finish)
