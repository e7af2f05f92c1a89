"""What does the steps of a run: the interface that the training loop uses.

    textbook_steps.py   the textbook's step                     whatever needs no plan, on any devices
    plan_step.py        a plan                                  splits, micro-batches, overlap
    graph_step.py       one CUDA graph                          data parallelism on the GPUs of one process

make_runner.py chooses one of them. `StepsAhead` is what the first two have in common.
"""

import functools
from typing import Protocol

import numpy as np

from ..cluster import as_cluster
from ..devices import synchronize
from ..networks import LENET, find_loss
from ..networks.checks import is_random
from ..networks.losses import as_targets
from ..parallel import MinibatchQueue
from .evaluation import SplitTestSet, TestSet
from .monitor import Stop
from .resume import START
from .settings import Settings
from .splits import limits_of, plan_of

AHEAD = 8
"""How many steps may be under way at once if a device is a GPU."""


class Runner(Protocol):
    """The steps of a run, and its state. On a `Cluster`, each process has one, and all call its methods together.

    - ``settings``: those that it uses, with the loads that were measured
    - ``steps``: the number of steps in an epoch
    - ``peak_memory``: the most bytes on each device, if they are predicted, otherwise None
    - ``stop``: whoever wants the run to end says so there; when any process wants to stop, all learn of it after the
      same step

    For each epoch, call ``start_epoch``, then ``launch`` repeatedly, and finally ``pause``.
    """

    settings: Settings
    steps: int
    peak_memory: list[int] | None
    stop: Stop

    def start_epoch(self, order, rates, position=START):
        """Begin an epoch, or go on with it from a `Position`.

        ``order``: the examples, indices (M,); ``rates``: the learning rate of each step, or of all.
        """

    def launch(self, most) -> list[int]:
        """Begin the next step, or up to ``most`` of them; return how many examples each has."""

    def pause(self) -> tuple[list[float], int]:
        """Wait for all steps so far; return the epoch's summed losses and its number of right answers up to here.

        The losses are a list, as in `Position`, whose sum is the loss.
        """

    def so_far(self) -> tuple[float | None, float | None]:
        """The loss per example and the fraction of right answers in the epoch's steps known to be done, if any."""

    def copies(self) -> list[tuple[list, list]]:
        """Parameters and running statistics on each of this process's devices; just one if a split divides them."""

    def statistics(self) -> list[list]:
        """Batch norm's running means and variances for each device of all processes, on the host."""

    def set_statistics(self, statistics):
        """Set the running statistics of all devices to this one list."""

    def state(self) -> tuple[dict[str, list], int]:
        """What a checkpoint stores: lists of NumPy arrays by name, and how many steps the optimiser has done."""

    def set_state(self, arrays, steps):
        """Restore what `state` returned, also if it was that of another runner."""

    def make_test_set(self, X, y, metrics) -> TestSet:
        """The test set, on the devices on which the run leaves room for it."""

    def close(self):
        """The run is over; whatever the devices are given from now on comes after its steps."""


class StepsAhead:
    """What runners have in common whose steps are submitted one ahead of the devices.

    The host program is one step ahead: while the devices compute a step, it prepares the next minibatch and submits the
    next step, so that no device waits for it.

        host      data 1 | submit 1 | data 2 | submit 2 | wait for 1 | data 3 | submit 3 | wait for 2 ...
        devices               step 1 ................... step 2 ................... step 3

    On GPUs it may be several steps ahead. Reading one step's loss there means waiting for everything that was launched,
    so the losses of several steps are read at once.

    ``under_way``: those that are not finished; ``known``: how many steps of the epoch are done, their loss, and the
    number of right answers. Each kind of runner has two methods: ``submit(n, lr, draws)`` submits a step with the
    queue's next minibatch, of n examples; ``finish(step)`` waits for it, and returns its loss, its right answers, and
    whether any process wants to stop.
    """

    def __init__(self, X, y, dtype, group, network, settings):
        self.y, self.loss = as_targets(np.asarray(y), dtype), find_loss(settings.loss)
        self.group, self.devices, self.network, self.settings = group, group.mine, network, settings
        self.is_data = settings.split in (None, "data")  # then each device has all parameters
        self.stop, self.random, self.under_way = Stop(group), is_random(network), []
        self.limited = any(limits_of(group))  # memory for one minibatch at a time, and not for the test set
        self.on_gpu = any(device.kind == "gpu" for device in self.devices)
        self.ahead = 0 if self.limited or not settings.prefetch else AHEAD if self.on_gpu else 1
        options = {name: getattr(settings, name) for name in ("loads", "preprocess", "drop_last", "seed", "sums")}
        self.queue = MinibatchQueue(X, self.y, group, settings.batch_size, **options)
        self.steps = self.queue.steps

    @classmethod
    def of(cls, X, y, params, devices, network=LENET, **settings):
        """The steps of `train` on ``devices``, a list or a `Cluster`; ``settings``: fields of `Settings`, by name."""
        group = as_cluster(devices)
        return cls(X, y, params, group, network, Settings(**settings).on(group))

    @functools.cached_property
    def plan(self):
        """The steps as a plan, which says how much memory they need; the textbook's steps do what plan "data" does."""
        return plan_of(self.settings, len(self.group), self.network, self.group)

    def start_epoch(self, order, rates, position=START):
        self.rates, self.number = np.broadcast_to(rates, self.steps).tolist(), position.steps
        self.known = position.steps, sum(position.losses), position.correct or 0
        self.queue.start_epoch(order, position.epoch, position.steps)

    def launch(self, most):
        """Submit one step, and wait while too many are under way."""
        n, draws = self.queue.size, self.queue.draws if self.random else None
        self.under_way.append(self.submit(n, self.rates[self.number], draws))
        self.number += 1
        self._wait(self.ahead)
        return [n]

    def pause(self):
        self._wait(0)
        synchronize(self.devices)
        _, loss, correct = self.known
        return [loss], correct

    def so_far(self):
        done, loss, correct = self.known
        n = min(done * self.settings.batch_size, len(self.y))
        return (loss / n, correct / n) if n else (None, None)

    def make_test_set(self, X, y, metrics):
        about = self.loss, metrics, self.settings.sums
        if self.limited or not self.is_data:
            return SplitTestSet(X, y, self.plan, self.group, self.settings.batch_size, *about)
        return TestSet(X, y, self.group, self.network, *about)

    def close(self):
        """Each device does its steps' work in its own queue."""

    def _wait(self, ahead):
        """If more than ``ahead`` steps are under way, wait until only this many are; on GPUs, wait for all of them."""
        if len(self.under_way) <= ahead:
            return
        while len(self.under_way) > (0 if self.on_gpu else ahead):
            loss, right, told = self.finish(self.under_way.pop(0))
            done, before, correct = self.known
            self.known = done + 1, before + loss, correct + right
            if told:
                self.stop.agreed = True
