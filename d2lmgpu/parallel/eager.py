"""Training steps one by one, as `train_batch` does them, over the minibatches of an epoch.

The host program is one step ahead: while the devices compute a step, it prepares
the next minibatch and submits the next step, so that no device waits for it.

    host      data 1 | submit 1 | data 2 | submit 2 | wait for 1 | data 3 | submit 3 | wait for 2 ...
    devices               step 1 ................... step 2 ................... step 3

On GPUs it may be several steps ahead. To read one step's loss there is to wait for all that was launched, so the losses
of several steps are read at once.
"""

import numpy as np

from ..cluster import gather
from ..devices import put, synchronize, to_host
from ..layers import Draws
from ..networks import is_random
from .data import loss_and_correct
from .minibatch_queue import MinibatchQueue
from .variants import submit_step

AHEAD_ON_GPU = 8
"""Steps that may be under way where a device is a GPU."""


class Step:
    """What does the steps of a run, as the training loop asks for it: eager steps, CUDA graphs, a plan.

    ``replicas``: of this process's devices; ``steps`` of an epoch. An epoch is ``start_epoch(order, lr, …)``, then
    ``several(most)`` time after time, and ``pause()``; then ``correct`` says how many examples were right.
    """

    peak_memory = None  # bytes, which only plans count
    known = None  # of whole steps, when other processes hang: see training/saving.py

    @property
    def mean_loss(self):
        """The mean loss per example of the epoch's steps that were waited for; None before the first."""
        return self.loss / self.examples if self.examples else None

    @property
    def accuracy(self):
        """As `mean_loss`, the fraction of examples that were `correct`."""
        return self.correct / self.examples if self.examples else None

    def close(self):
        """Nothing: each device does its steps' work in its own queue."""

    def statistics(self, everybody):
        """Batch norm's statistics of each device of a `Cluster`, whose processes all call this: NumPy arrays."""
        mine = [list(map(to_host, replica.statistics)) for replica in self.replicas]
        if everybody.size == 1:
            return mine
        if not mine[0]:
            return [[] for _ in everybody]
        rows = gather(everybody, [np.concatenate([*arrays, ()]) for arrays in mine])
        ends = np.cumsum([len(array) for array in mine[0]])
        return [
            [part.astype(array.dtype) for part, array in zip(np.split(row, ends), mine[0], strict=False)]
            for row in rows
        ]

    def set_state(self, params, optimizer_state, statistics, steps):
        """Take what a checkpoint has: NumPy arrays, ``statistics`` those of each of this process's devices."""
        for replica, arrays in zip(self.replicas, statistics, strict=True):
            replica.set_params(params)
            replica.set_state(optimizer_state, arrays, steps)

    def scaling(self):
        """What a checkpoint holds of precision "mixed", the same on all devices: NumPy arrays."""
        return []

    def set_scaling(self, arrays):
        """Take what `scaling` gave."""

    def _wait(self, ahead):
        """Of steps that are submitted one by one: wait until no more than ``ahead`` are under way; on GPUs for all."""
        if len(self._under_way) <= ahead:
            return
        while len(self._under_way) > (0 if self.on_gpu else ahead):
            step, examples = self._under_way.pop(0)
            loss, correct = self.sums(step)
            self.loss, self.correct, self.examples = self.loss + loss, self.correct + correct, self.examples + examples
            if self.known is not None:
                self.known = self.known[0] + 1, self.loss, self.correct


class EagerStep(Step):
    """Training on any devices, for each its `Replica`. ``settings`` are those of `submit_step`.

    ``prefetch=False``: wait for each step before the next minibatch is prepared.
    ``loads``, ``seed``, ``preprocess`` and ``drop_last`` are those of `MinibatchQueue`, and so is ``everybody``: the
    `Cluster` with all devices, if other processes have some.
    """

    def __init__(
        self,
        X,
        y,
        replicas,
        batch_size,
        loads=None,
        prefetch=True,
        seed=0,
        preprocess=None,
        drop_last=False,
        everybody=None,
        **settings,
    ):
        self.replicas, self.settings = replicas, settings
        self.devices = [replica.device for replica in replicas]
        self.on_gpu = any(device.kind == "gpu" for device in self.devices)
        self.ahead = (AHEAD_ON_GPU if self.on_gpu else 1) if prefetch else 0
        self.queue = MinibatchQueue(X, y, everybody or self.devices, batch_size, seed, loads, preprocess, drop_last)
        self.steps = self.queue.steps
        self.random = is_random(replicas[0].network)
        for replica, size in zip(replicas, self.queue.most, strict=True):
            _warm_up(replica, size, X.shape[1:], y)

    def start_epoch(self, order, lr, done=0, losses=(0.0,), epoch=0, correct=0):
        """Take the examples in this ``order`` (M,), with learning rate ``lr``: a number, or one for each step.

        ``done``: steps of the epoch that were done before, with the summed ``losses`` of `pause`, and ``correct``.
        ``epoch`` (from 0) decides what preprocessing and dropout draw.
        """
        self.queue.start_epoch(order, epoch, done)
        self.rates = iter(np.broadcast_to(lr, self.steps).tolist()[done:])
        self.loss, self.examples = sum(losses), done * self.queue.batch_size  # of the steps that were waited for
        self.known = done, self.loss, correct  # of as many steps of the epoch: read by other threads, and so in one
        self.correct = correct  # examples with their label as the largest logit, when their step computed it
        self._under_way = []

    def step(self):
        """Submit the next step, and wait until not too many are under way; returns how many examples it has."""
        draws, examples = self.queue.draws if self.random else None, self.queue.size
        step = self.submit(*self.queue.next(), next(self.rates), draws=draws, batch_size=examples)
        self._under_way.append((step, examples))
        self._wait(self.ahead)
        return examples

    def submit(self, X_shards, y_shards, lr, **minibatch):
        """Submit a step on a minibatch that is split; returns it as `sums` takes it."""
        return submit_step(X_shards, y_shards, self.replicas, lr, **minibatch, **self.settings)

    def sums(self, step):
        """Wait for a step; its summed loss, and how many examples were right."""
        return loss_and_correct(step)

    def several(self, most):
        """As `GraphStep.several`: eager steps go one by one."""
        return [self.step()]

    def pause(self):
        """Wait for all steps so far; the loss summed over the epoch so far, in a list."""
        self._wait(0)
        synchronize(self.devices)
        return [self.loss]

    def scaling(self):
        """As `Step.scaling`."""
        return self.replicas[0].precision.arrays()

    def set_scaling(self, arrays):
        """Take what `scaling` gave."""
        for replica in self.replicas:
            replica.precision.set_arrays(*arrays)


def _warm_up(replica, size, shape, labels):
    """Let a GPU compute gradients of ``size`` black images, so that no step's time is that of compiling kernels."""
    device = replica.device
    if device.kind == "gpu":
        X, y = np.zeros((size, *shape), replica.params[0].dtype), np.zeros((size, *labels.shape[1:]), labels.dtype)
        device.run(replica.with_draws(Draws(0)).loss_and_grads, put(X, device), put(y, device)).result()
