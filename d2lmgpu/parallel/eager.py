"""Training steps one by one, as `train_batch` does them, over the minibatches of an epoch.

The host program is one step ahead: while the devices compute a step, it prepares
the next minibatch and submits the next step, so that no device waits for it.

    host      data 1 | submit 1 | data 2 | submit 2 | wait for 1 | data 3 | submit 3 | wait for 2 ...
    devices               step 1 ................... step 2 ................... step 3
"""

from ..devices import synchronize
from .data import Buffers, submit_step, summed_loss
from .feed import Feeder


class EagerStep:
    """Training on any devices. ``settings`` are those of `submit_step`: algorithm, flat, overlap.

    ``prefetch=False``: wait for each step before the next minibatch is prepared.
    """

    def __init__(self, X, y, device_params, devices, batch_size, prefetch=True, **settings):
        self.device_params, self.devices, self.settings = device_params, devices, settings
        self.ahead = 1 if prefetch else 0
        self.buffers = [Buffers(params, device) for params, device in zip(device_params, devices, strict=True)]
        self.feeder = Feeder(X, y, devices, batch_size)
        self.steps = -(-len(X) // batch_size)

    def start_epoch(self, order, lr):
        """Take the examples in this ``order`` (M,), with learning rate ``lr``."""
        self.batches, self.lr = self.feeder.epoch(order), lr
        self.loss = 0.0  # summed over the steps that were waited for
        self._under_way = []

    def step(self):
        """Submit the next step, and wait for the one before it; returns how many examples it has."""
        shards = next(self.batches)
        step = submit_step(*shards, self.device_params, self.devices, self.lr, buffers=self.buffers, **self.settings)
        self._under_way.append(step)
        self._wait(self.ahead)
        return sum(map(len, shards[1]))

    def end_epoch(self):
        """The loss summed over the epoch so far, when all work is done."""
        self._wait(0)
        synchronize(self.devices)
        return self.loss

    def _wait(self, ahead):
        while len(self._under_way) > ahead:
            self.loss += summed_loss(self._under_way.pop(0))
