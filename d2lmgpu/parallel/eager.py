"""Training steps one by one, as `train_batch` does them, over the minibatches of an epoch.

The host program is one step ahead: while the devices compute a step, it prepares
the next minibatch and submits the next step, so that no device waits for it.

    host      data 1 | submit 1 | data 2 | submit 2 | wait for 1 | data 3 | submit 3 | wait for 2 ...
    devices               step 1 ................... step 2 ................... step 3
"""

import numpy as np

from ..devices import put, synchronize
from .data import submit_step, summed_loss
from .minibatch_queue import MinibatchQueue
from .shards import most_examples


class EagerStep:
    """Training on any devices, for each its `Replica`. ``settings`` are those of `submit_step`.

    ``prefetch=False``: wait for each step before the next minibatch is prepared.
    ``loads``, ``seed``, ``preprocess`` and ``drop_last`` are those of `MinibatchQueue`.
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
        **settings,
    ):
        self.replicas, self.settings = replicas, settings
        self.devices = [replica.device for replica in replicas]
        self.ahead = 1 if prefetch else 0
        self.queue = MinibatchQueue(X, y, self.devices, batch_size, seed, loads, preprocess, drop_last)
        self.steps = self.queue.steps
        sizes = most_examples(min(batch_size, len(X)), len(self.devices), self.queue.loads)
        for replica, size in zip(replicas, sizes, strict=True):
            _warm_up(replica, size, X.shape[1:], y.dtype)

    def start_epoch(self, order, lr, done=0, losses=(0.0,), epoch=0):
        """Take the examples in this ``order`` (M,), with learning rate ``lr``: a number, or one for each step.

        ``done``: steps of the epoch that were done before, with the summed ``losses`` of `pause`.
        ``epoch`` (from 0) decides what preprocessing draws.
        """
        self.queue.start_epoch(order, epoch, done)
        self.rates = iter(np.broadcast_to(lr, self.steps).tolist()[done:])
        self.loss, self.examples = sum(losses), done * self.queue.batch_size  # of the steps that were waited for
        self._under_way = []

    @property
    def mean_loss(self):
        """Of the epoch so far per example, as far as steps were waited for; None before the first."""
        return self.loss / self.examples if self.examples else None

    def step(self):
        """Submit the next step, and wait for the one before it; returns how many examples it has."""
        shards = self.queue.next()
        step = submit_step(*shards, self.replicas, next(self.rates), **self.settings)
        examples = sum(map(len, shards[1]))
        self._under_way.append((step, examples))
        self._wait(self.ahead)
        return examples

    def several(self, most):
        """As `GraphStep.several`: eager steps go one by one."""
        return [self.step()]

    def pause(self):
        """Wait for all steps so far; the loss summed over the epoch so far, in a list."""
        self._wait(0)
        synchronize(self.devices)
        return [self.loss]

    def close(self):
        """Nothing: each device does its steps' work in its own queue."""

    def scaling(self):
        """Of precision "mixed" what a checkpoint holds, the same on all devices: NumPy arrays."""
        return self.replicas[0].precision.arrays()

    def set_scaling(self, arrays):
        """Take what `scaling` gave."""
        for replica in self.replicas:
            replica.precision.set_arrays(*arrays)

    def _wait(self, ahead):
        while len(self._under_way) > ahead:
            step, examples = self._under_way.pop(0)
            self.loss += summed_loss(step)
            self.examples += examples


def _warm_up(replica, size, shape, label_dtype):
    """Let a GPU compute gradients of ``size`` black images, so that no step's time is that of compiling kernels."""
    device = replica.device
    if device.kind == "gpu":
        X, y = np.zeros((size, *shape), replica.params[0].dtype), np.zeros(size, label_dtype)
        device.run(replica.loss_and_grads, put(X, device), put(y, device)).result()
