"""Training steps one by one, as `train_batch` does them, over the minibatches of an epoch."""

from ..devices import synchronize
from .data import train_shards
from .feed import Feeder, ahead


class EagerStep:
    """Training on any devices. ``settings`` are those of `train_shards`: algorithm, flat, overlap."""

    def __init__(self, X, y, device_params, devices, batch_size, prefetch=True, **settings):
        self.device_params, self.devices, self.prefetch, self.settings = device_params, devices, prefetch, settings
        self.feeder = Feeder(X, y, devices, batch_size)
        self.steps = -(-len(X) // batch_size)

    def start_epoch(self, order, lr):
        """Take the examples in this ``order`` (M,), with learning rate ``lr``."""
        self.batches, self.lr, self.loss = ahead(self.feeder.epoch(order), self.prefetch), lr, 0.0

    def step(self):
        """Do the next step; returns how many examples it had."""
        (X_shards, y_shards), prepare_next = next(self.batches)
        self.loss += train_shards(
            X_shards, y_shards, self.device_params, self.devices, self.lr, meanwhile=prepare_next, **self.settings
        )
        return sum(map(len, y_shards))

    def end_epoch(self):
        """The loss summed over the epoch so far, when all work is done."""
        synchronize(self.devices)
        return self.loss
