"""What takes turns in a scaling experiment: trainings.

A contender trains some whole steps when its turn comes, while the others rest; see measuring.py.
"""

import time
from typing import NamedTuple

import numpy as np

from ..cluster import as_cluster
from ..devices import synchronize
from ..measuring import seconds_of
from ..networks import init_params
from ..timing import Timeline
from ..training import Settings
from ..training.runner import make_runner
from ..training.together import SharedStop

LR = 0.01
"""Small enough that no run diverges, whatever its minibatch. Nothing else depends on it."""


class Turn(NamedTuple):
    """``seconds`` of a turn, and of them those in each phase, as `Timeline.phases` counts them.

    ``cores``: how many cores' time this program was given, on average. It is less
    than the devices could use where other programs want the machine, too.
    """

    seconds: float
    phases: dict
    cores: float = 0.0


class Contender:
    """Trains on each of ``groups`` of devices, all at the same time. Called, it trains on and gives a `Turn`.

    One group of k devices, or a `Cluster`, is data-parallel training as `train` does it. Groups of
    one device each are several trainings that have the machine in common and nothing
    else: they exchange nothing. ``batch_size`` is a group's, ``how``: settings by name,
    of `setup.HOW`. All devices are synchronised before and after the steps.
    """

    def __init__(self, groups, network, batch_size, steps, data, algorithm="ring", how=None):
        self.devices = [device for group in groups for device in as_cluster(group).mine]
        self.examples = steps * batch_size
        X, y = (array[: self.examples] for array in data[:2])
        self.runners = [_runner(group, network, batch_size, X, y, algorithm, how or {}) for group in groups]
        self.steps, self.rng = steps, np.random.default_rng(0)

    def __call__(self):
        for runner in self.runners:
            runner.start_epoch(self.rng.permutation(self.examples), LR)
        with Timeline(self.devices) as timeline:
            begin = time.process_time()
            seconds = seconds_of(self._train, lambda: synchronize(self.devices))
            cores = (time.process_time() - begin) / seconds
            return Turn(seconds, timeline.phases(seconds), cores)

    def _train(self):
        for _ in range(self.steps):
            for runner in self.runners:
                runner.step()
        for runner in self.runners:
            runner.pause()


def _runner(devices, network, batch_size, X, y, algorithm, how):
    """The runner that `train` would use."""
    settings, everybody = (
        Settings(batch_size, LR, num_epochs=1, algorithm=algorithm, init="he", **how),
        as_cluster(devices),
    )
    stop = SharedStop(everybody) if everybody.size > 1 else None
    return make_runner(X, y, init_params(0, init="he", network=network), everybody, network, settings, stop=stop)[0]
