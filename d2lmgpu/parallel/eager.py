"""Training steps one by one, as `train_batch` does them, over the minibatches of an epoch.

The host program is one step ahead: while the devices compute a step, it prepares
the next minibatch and submits the next step, so that no device waits for it.

    host      data 1 | submit 1 | data 2 | submit 2 | wait for 1 | data 3 | submit 3 | wait for 2 ...
    devices               step 1 ................... step 2 ................... step 3
"""

import numpy as np

from ..devices import synchronize
from .data import submit_step, summed_loss
from .feed import Feeder


class EagerStep:
    """Training on any devices, for each its `Replica`. ``settings`` are those of `submit_step`.

    ``loads``: the devices' shares of every minibatch. ``prefetch=False``: wait for
    each step before the next minibatch is prepared.
    """

    def __init__(self, X, y, replicas, batch_size, loads=None, prefetch=True, **settings):
        self.replicas, self.settings = replicas, settings
        self.devices = [replica.device for replica in replicas]
        self.ahead = 1 if prefetch else 0
        self.feeder = Feeder(X, y, self.devices, batch_size, loads)
        self.steps = -(-len(X) // batch_size)

    def start_epoch(self, order, lr, done=0, losses=(0.0,)):
        """Take the examples in this ``order`` (M,), with learning rate ``lr``: a number, or one for each step.

        ``done``: steps of the epoch that were done before, with the summed ``losses`` of `pause`.
        """
        self.batches = self.feeder.epoch(order, done)
        self.rates = iter(np.broadcast_to(lr, self.steps).tolist()[done:])
        self.loss = sum(losses)  # over the steps that were waited for
        self._under_way = []

    def step(self):
        """Submit the next step, and wait for the one before it; returns how many examples it has."""
        shards = next(self.batches)
        step = submit_step(*shards, self.replicas, next(self.rates), **self.settings)
        self._under_way.append(step)
        self._wait(self.ahead)
        return sum(map(len, shards[1]))

    def pause(self):
        """Wait for all steps so far; the loss summed over the epoch so far, in a list."""
        self._wait(0)
        synchronize(self.devices)
        return [self.loss]

    def scaling(self):
        """Of precision "mixed" what a checkpoint holds, the same on all devices: NumPy arrays."""
        return self.replicas[0].scaling.arrays() if self.replicas[0].mixed else []

    def set_scaling(self, arrays):
        """Take what `scaling` gave."""
        for replica in self.replicas:
            if replica.mixed:
                replica.scaling.set_arrays(*arrays)

    def _wait(self, ahead):
        while len(self._under_way) > ahead:
            self.loss += summed_loss(self._under_way.pop(0))
