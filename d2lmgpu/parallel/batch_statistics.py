"""The statistics of a network's batch norm layers: on one device, and how they become those of all images.

Where they are synchronised, devices need each other's numbers on the way: each device's work is cut where it writes
its share of a sum (networks/as_written.py); between two parts the shares are added up like gradients.
"""

import functools

import numpy as np

from ..collectives import allreduce
from ..devices import put
from ..devices.array import unwrap
from ..layers import SyncStatistics, track_statistics
from ..networks import channels, init_statistics

BATCH_STATISTICS = ("local", "aggregated", "synchronised")
"""Over which images batch norm takes mean and variance.

local: each device over its own, in training and for the running statistics (the textbook).
aggregated: each over its own in training, but the running statistics are of all images (MATLAB's guide).
synchronised: over all devices' images, so that k devices equal one.
"""


def with_statistics(exchange):
    """An exchange of gradients, as in data.py, and after it that of the sums from which statistics are taken."""

    def exchange_both(batch, replicas, algorithm):
        exchange(batch, replicas, algorithm)
        for layer in zip(*(replica.batch_norm.sync for replica in replicas), strict=True):
            allreduce([sync.moments for sync in layer], algorithm, batch)

    return exchange_both


class BatchStatistics:
    """``running``: mean and variance of each batch norm layer, in one list; ``sync``: each layer's `SyncStatistics`.

    Both are device arrays; ``running`` begins as it is given, or as `init_statistics` makes it.
    """

    def __init__(self, network, device, dtype, running=None):
        self.running = [put(array, device) for array in running or init_statistics(network, dtype)]
        self.sync = [
            SyncStatistics(put(np.zeros((3, C)), device), put(np.zeros((2, C)), device)) for C in channels(network)
        ]
        self.plain_sync = [SyncStatistics(moments.raw, sums.raw) for moments, sums in self.sync]

    def track(self):
        """Runs on the device: move the running statistics towards those of the step's images."""
        raws = [array.raw for array in self.running]
        for mean, variance, sync in zip(raws[::2], raws[1::2], self.plain_sync, strict=True):
            track_statistics(mean, variance, sync.moments)


def loss_and_grads_synchronised(batch, X_shards, y_shards, replicas, algorithm):
    """As `loss_and_grads_on_each` (data.py), in parts; returns each device's last task, with (loss, grads)."""
    works = [_Work(*own) for own in zip(replicas, X_shards, y_shards, strict=True)]
    layers = range(len(replicas[0].batch_norm.sync))
    for number in layers:
        _advance(batch, works)
        allreduce([replica.batch_norm.sync[number].moments for replica in replicas], algorithm, batch)
    for number in reversed(layers):
        _advance(batch, works)
        allreduce([replica.batch_norm.sync[number].sums for replica in replicas], algorithm, batch)
    return _advance(batch, works)


def _advance(batch, works):
    tasks = [batch.run(work.device, work.advance) for work in works]
    for task in tasks:
        task.asked = True  # an error comes up again in the last part, which is waited for
    return tasks


class _Work:
    """One device's work in parts."""

    def __init__(self, replica, X_shard, y_shard):
        self.replica, self.device = replica, replica.device
        arrays = unwrap((X_shard, y_shard), self.device, "loss_and_grads")
        self.begin = functools.partial(replica.in_parts, *arrays)
        self.parts = self.error = None

    def advance(self):
        """Runs on the device: the next part. The last returns the result; after an error all later ones raise it."""
        if self.error:
            raise self.error
        try:
            self.parts = self.parts or self.begin()  # now: what it computes with depends on the step before
            with self.replica.precision.quiet():
                next(self.parts)
        except StopIteration as end:
            return end.value
        except BaseException as error:
            self.error = error
            raise
