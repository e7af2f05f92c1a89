"""Feeding devices: minibatches go to the devices' memory, into the same arrays again and again."""

import numpy as np

from ..data import to_float
from ..devices import DeviceArray
from ..devices.array import HOST
from ..devices.transfer import note_transfer, timed
from ..timing import span
from .data import split_batch
from .shards import most_examples, shard_bounds

SLOTS = 2
"""Minibatches that are in the devices' memory: one is worked on while the next is prepared."""


class Feeder:
    """Minibatches of X (M, C, H, W) and y (M,), split over ``devices``, as `split_batch` splits them.

    On virtual devices each has `SLOTS` places for its shard, filled in turn, so
    that feeding allocates nothing. Integer images become float32 in 0..1.
    """

    def __init__(self, X, y, devices, batch_size, loads=None):
        self.X, self.y, self.devices, self.batch_size, self.loads = X, y, devices, batch_size, loads
        self.reuses = all(device.kind == "cpu" for device in devices)
        if self.reuses:
            self.X, self.y = np.ascontiguousarray(X), np.ascontiguousarray(y)
            size = min(batch_size, len(X))
            self.chosen = np.empty((size, *X.shape[1:]), X.dtype), np.empty(size, y.dtype)  # a minibatch on the host
            most = most_examples(size, len(devices), loads)
            as_float = to_float(self.X[:0]).dtype
            self.slots = [
                [(np.empty((n, *X.shape[1:]), as_float), np.empty(n, y.dtype)) for n in most] for _ in range(SLOTS)
            ]

    def epoch(self, order, done=0):
        """Yield (X_shards, y_shards) for each minibatch of an epoch, examples in this ``order``; leave out ``done``.

        A minibatch's arrays are overwritten when the next but one is asked for: by
        then the devices must be done with it.
        """
        for number, start in list(enumerate(range(0, len(order), self.batch_size)))[done:]:
            part = order[start : start + self.batch_size]
            with span("data"):
                if self.reuses:
                    shards = self._fill(self.slots[number % SLOTS], part)
                else:
                    shards = split_batch(to_float(self.X[part]), self.y[part], self.devices, self.loads)
            yield shards

    def _fill(self, slot, order):
        images, labels = (whole[: len(order)] for whole in self.chosen)
        np.take(self.X, order, axis=0, out=images, mode="clip")  # "raise" would copy
        np.take(self.y, order, out=labels, mode="clip")
        X_shards, y_shards = [], []
        bounds = shard_bounds(len(order), len(self.devices), self.loads)
        for device, (X_place, y_place), (start, stop) in zip(self.devices, slot, bounds, strict=True):
            X, y = X_place[: stop - start], y_place[: stop - start]
            timed(note_transfer(HOST, device, X.nbytes), to_float, images[start:stop], X)
            timed(note_transfer(HOST, device, y.nbytes), np.copyto, y, labels[start:stop])
            X_shards.append(DeviceArray(X, device))
            y_shards.append(DeviceArray(y, device))
        return X_shards, y_shards
