"""Let training runs take turns in a scaling experiment, and compute speed-up and efficiency from their times.

A contender trains for some whole steps in its turn, while the others are idle; see base/measuring.py.

    speed-up     S(k) = seconds of one device / seconds of k devices, for the same number of examples
    efficiency   E(k) = S(k) / k, the fraction of the k devices' time that is well spent

In weak scaling, k devices do k times the work in a step, so for the same number of
examples S(k) = k · step time of one / step time of k, and E(k) is the ratio of the
step times.
"""

import statistics
import time
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ..base.measuring import seconds_of
from ..cluster import as_cluster
from ..devices import synchronize
from ..devices.timeline import Timeline
from ..networks import init_params
from ..training import Settings
from ..training.make_runner import make_runner

_LR = 0.01
"""The learning rate: so small that no run diverges, whatever its minibatch size. It affects nothing else."""


class Sample(NamedTuple):
    """``seconds`` of a turn, and how they divide into phases (see `Timeline.phases`).

    ``cores``: how many cores this program had, on average; fewer than the devices could use if other programs were
    running at the same time.
    """

    seconds: float
    phases: dict
    cores: float = 0.0


class Candidate:
    """Trains on all ``groups`` of devices at the same time. Each call continues training and returns a `Sample`.

    One group of k devices is data-parallel training as in `train`. Groups of one device each are independent training
    runs on the same machine that exchange nothing. ``batch_size``: the batch size of each group. All devices are
    synchronised before and after the steps.
    """

    def __init__(self, groups, network, batch_size, steps, data, algorithm="ring"):
        self.devices = [device for group in groups for device in group]
        self.examples = steps * batch_size
        X, y = (array[: self.examples] for array in data[:2])
        self.runners = [_runner(group, network, batch_size, X, y, algorithm) for group in groups]
        self.steps, self.rng = steps, np.random.default_rng(0)

    def __call__(self):
        for runner in self.runners:
            runner.start_epoch(self.rng.permutation(self.examples), _LR)
        with Timeline(self.devices) as timeline:
            begin = time.process_time()
            seconds = seconds_of(self._train, lambda: synchronize(self.devices))
            cores = (time.process_time() - begin) / seconds
            return Sample(seconds, timeline.phases(seconds), cores)

    def _train(self):
        for _ in range(self.steps):
            for runner in self.runners:
                runner.launch(1)
        for runner in self.runners:
            runner.pause()


def _runner(devices, network, batch_size, X, y, algorithm):
    """The runner that `train` would use."""
    everybody = as_cluster(devices)
    settings = Settings(batch_size, _LR, num_epochs=1, algorithm=algorithm, init="he")
    return make_runner(X, y, init_params(0, init="he", network=network), everybody, network, settings)


@dataclass
class Row:
    """Training on ``devices`` devices. Seconds are per epoch unless their name says otherwise.

    Each round has a time, and its ratio to the same round's time on one device; the row gives the median, the minimum
    and the maximum of each. ``phases``: the epoch's seconds in each phase, in the median round. ``cores``: the median
    number of cores that the program had. ``predicted_seconds_per_epoch``: see `predict_scaling`.
    """

    devices: int
    batch_size: int
    seconds_per_epoch: float
    seconds_per_epoch_min: float
    seconds_per_epoch_max: float
    seconds_per_step: float
    speedup: float
    speedup_min: float
    speedup_max: float
    efficiency: float
    efficiency_min: float
    efficiency_max: float
    cores: float = 0.0
    phases: dict = field(default_factory=dict)
    predicted_seconds_per_epoch: float = None


def make_rows(turns, batch_sizes, steps, epoch):
    """A `Row` for each number of devices.

    ``turns``: {devices: a `Sample` for each round}, with 1 among the keys; each turn has ``steps`` steps of
    ``batch_sizes[devices]`` examples. ``epoch``: the number of examples in an epoch.
    """
    seconds = {k: [turn.seconds / (steps * batch_sizes[k]) * epoch for turn in mine] for k, mine in turns.items()}
    return [_row(k, batch_sizes[k], seconds[k], seconds[1], turns[k], epoch) for k in turns]


def _spread(name, values):
    """The median, the minimum and the maximum of the rounds' values, by their names in a `Row`."""
    return {name: statistics.median(values), f"{name}_min": min(values), f"{name}_max": max(values)}


def _row(k, batch_size, seconds, alone, turns, epoch):
    ratios = [one / mine for one, mine in zip(alone, seconds, strict=True)]
    middle = sorted(turns, key=lambda turn: turn.seconds)[len(turns) // 2]
    median = statistics.median(seconds)
    scale = median / middle.seconds if middle.seconds else 0.0
    spreads = _spread("seconds_per_epoch", seconds) | _spread("speedup", ratios)
    spreads |= _spread("efficiency", [ratio / k for ratio in ratios])
    phases = {name: scale * value for name, value in middle.phases.items()}
    cores = statistics.median(turn.cores for turn in turns)
    per_step = median * batch_size / epoch
    return Row(k, batch_size, **spreads, seconds_per_step=per_step, cores=cores, phases=phases)
