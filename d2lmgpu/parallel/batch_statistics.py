"""The statistics of a network's batch norm layers on one device."""

import numpy as np

from ..devices import put
from ..layers import SyncStatistics, track_statistics
from ..networks import channels, init_statistics


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
