"""Short runs of training, as tests of several rooms make them."""

import itertools

import numpy as np
import pytest

import d2lmgpu as d2l
from d2lmgpu.networks import BatchNorm, Conv2d, Dense, Flatten, ReLU, sequential
from d2lmgpu.training.graph_step import GraphStep
from d2lmgpu.training.plan_step import PlanStep
from d2lmgpu.training.textbook_steps import TextbookSteps

TINY = sequential((1, 8, 8), Conv2d(3, 3), BatchNorm(), ReLU(), Flatten(), Dense(4))
"""Of 466 parameters, and with batch norm."""
PLAIN = sequential((1, 8, 8), Conv2d(3, 3), ReLU(), Flatten(), Dense(4))
"""Whose images know nothing of each other, so that any number of devices learns the same."""


def bright_rows(n, seed):
    """Images (n, 1, 8, 8) as uint8, of which two rows are brighter than the others, and which they are: 0 to 3."""
    rng = np.random.default_rng(seed)
    X, y = rng.integers(0, 100, (n, 1, 8, 8)), rng.integers(0, 4, n)
    X += 120 * (np.arange(8)[:, None] // 2 == y[:, None, None, None])
    return X.astype(np.uint8), y


DATA = *bright_rows(60, 1), *bright_rows(20, 2)
"""What `TINY` learns in a few steps: training and test set."""


def cpus(k):
    return [d2l.cpu(i) for i in range(k)]


def quick(devices, data, **settings):
    settings = {"batch_size": 64, "lr": 0.1, "num_epochs": 2, "init": "he", "progress": False, **settings}
    return d2l.train(devices, data=data, **settings)


def brief(devices, data=DATA, **settings):
    """Train `TINY`, six steps an epoch, in some hundredths of a second."""
    return quick(devices, data, **{"network": TINY, "batch_size": 10} | settings)


class Stopped(Exception):
    """What ends `run_until`'s run."""


def run_until(monkeypatch, steps, devices, data, train=quick, **settings):
    """Train, and end in an exception before step number ``steps``, counted over all epochs."""
    done = itertools.count()

    def counted(launch):
        def try_launch(self, most):
            if next(done) == steps:
                raise Stopped
            return launch(self, most)

        return try_launch

    with monkeypatch.context() as patch, pytest.raises(Stopped):
        for runner in (PlanStep, GraphStep, TextbookSteps):
            patch.setattr(runner, "launch", counted(runner.launch))
        train(devices, data, **settings)
