"""The minibatch queue: examples are reordered in each epoch, preprocessed, and split over the devices.

    X, y ─ shuffle(epoch) ─► minibatch 0 │ minibatch 1 │ minibatch 2 ...
                                  │ preprocess, on the host
                                  ▼
                         shard on device 0 │ shard on device 1 ...        next()

The devices work on a minibatch while the host program prepares the next.
"""

import numpy as np

from ..base.arguments import check_examples, check_flag, check_seed, check_whole, shown
from ..base.text import name_of
from ..cluster import as_cluster
from ..data.images import find_transform
from ..data.minibatches import batch_rng, epoch_order, epoch_size, to_float
from ..devices import DeviceArray
from ..devices.errors import HOST
from ..devices.records import note_transfer, span
from ..layers import Draws, check_targets
from .shards import check_loads, granule_of, put_parts, shard_bounds

SLOTS = 2
"""How many minibatches are in the devices' memory: one is in use while the next one is prepared."""


class MinibatchQueue:
    """Minibatches of X (M, C, H, W) and y (M,), each split over ``devices`` by `split_batch`.

    ``y`` may also be floats (M, ...), which are soft labels or other targets.

    In an epoch, each example goes to one device, once. ``drop_last`` leaves out the last minibatch if it has fewer than
    ``batch_size`` examples. The examples left out differ from epoch to epoch, because their order changes; it depends
    on ``seed`` and the epoch. uint8 images become float32 in 0..1. ``loads``: each device's share of every minibatch.
    ``steps`` is the number of minibatches. ``devices`` may be a `Cluster`; then each process has such a queue, which
    reads only the shards of its own devices. ``sums``: see `split_batch`.

    ``preprocess``: names in `transforms`, or a function (X, y, rng) → (X, y) that is called once for each minibatch, on
    the host, before the minibatch is split. It may change its arguments in place, which are X (n, C, H, W), floats, and
    labels y (n,). It returns NumPy arrays of the same shapes. ``rng`` is a NumPy Generator that depends on ``seed``,
    the epoch and the number of the minibatch. A function that draws random numbers only from it does the same on any
    number of devices, and in a resumed run.

    >>> queue = MinibatchQueue(X, y, [cpu(0), cpu(1)], batch_size=256)
    >>> for epoch in range(10):
    ...     queue.shuffle(epoch)
    ...     while queue.hasdata:
    ...         X_shards, y_shards = queue.next()

    To save memory allocations, virtual devices get the same arrays again and again. `next` overwrites the minibatch
    before the last one, but only after the devices have finished all work that they were given before that last one was
    requested. Copy the arrays that you want to keep.

    Raises ValueError for invalid labels, numbers or loads, and for settings that leave no minibatch.
    """

    def __init__(self, X, y, devices, batch_size, seed=0, loads=None, preprocess=None, drop_last=False, sums="float"):
        X, y = check_examples("MinibatchQueue", X, y, least=1)
        self.group = as_cluster(devices)
        self.X, self.y, self.devices = np.ascontiguousarray(X), np.ascontiguousarray(y), self.group.mine
        check_targets(self.y, len(self.X), any_shape=True)
        self.batch_size, self.seed = check_whole("batch_size", batch_size), check_seed(seed)
        self.drop_last, self.granule = check_flag("drop_last", drop_last), granule_of(sums)
        self.preprocess = find_transform(preprocess)
        self.loads = None if loads is None else check_loads(loads, len(self.group))
        self.largest = None if self.y.dtype.kind == "f" else self.y.max()  # the largest label
        self.steps = -(-epoch_size(len(X), self.batch_size, self.drop_last) // self.batch_size)
        self.reuses = all(device.kind == "cpu" for device in self.devices)
        self._slots = None
        self.shuffle(0)

    def shuffle(self, epoch, done=0):
        """Begin an ``epoch`` (counted from 0), with its own order of examples; skip the first ``done`` minibatches."""
        self.start_epoch(epoch_order(len(self.X), self.seed, epoch), epoch, done)

    def start_epoch(self, order, epoch=0, done=0):
        """Like `shuffle`, with an ``order`` of examples, indices (M,); ``epoch`` decides what `preprocess` draws."""
        self._order = order[: epoch_size(len(order), self.batch_size, self.drop_last)]
        self._epoch, self._number = check_whole("epoch", epoch, least=0), check_whole("done", done, least=0)

    @property
    def hasdata(self) -> bool:
        """Whether the epoch has another minibatch. This is the same for all devices, even if a shard is empty."""
        return self._number * self.batch_size < len(self._order)

    @property
    def size(self):
        """How many examples the next minibatch has on all devices together; 0 after the last minibatch."""
        return max(0, min(self.batch_size, len(self._order) - self._number * self.batch_size))

    @property
    def draws(self):
        """The `Draws` of the next minibatch, for a network with dropout. They depend on seed, epoch and its number."""
        return Draws(self.seed, self._epoch, self._number).after(self._bounds(self.size)[0][0])

    def next(self) -> tuple[list[DeviceArray], list[DeviceArray]]:
        """The next minibatch: (X_shards, y_shards), two lists with an array for each device.

        Raises ValueError if the epoch is over or the result of ``preprocess`` does not fit, and any error that
        ``preprocess`` raises. After an error, the next call returns the same minibatch.
        """
        part = self._part()
        bounds = self._bounds(len(part))
        mine = slice(bounds[0][0], bounds[-1][1])
        with span("data"):
            if self.preprocess is None:
                X, y = self.X[part[mine]], self.y[part[mine]]
            else:
                X, y = (whole[mine] for whole in self._preprocessed(part))
            bounds = [(start - mine.start, stop - mine.start) for start, stop in bounds]
            shards = self._fill(X, y, bounds) if self.reuses else self._copy(X, y, bounds)
        self._number += 1
        return shards

    def next_whole(self):
        """The next minibatch on the host, not split: X as floats, and y. Raises the same errors as `next`."""
        part = self._part()
        with span("data"):
            whole = self._preprocessed(part)
        self._number += 1
        return whole

    def __iter__(self):
        """Iterate over the remaining minibatches of the epoch."""
        while self.hasdata:
            yield self.next()

    def _part(self):
        """The indices of the next minibatch's examples."""
        if not self.hasdata:
            raise ValueError("MinibatchQueue: the epoch is over; begin another with shuffle(epoch)")
        start = self._number * self.batch_size
        return self._order[start : start + self.batch_size]

    def _bounds(self, n):
        """The bounds of each device's part of n examples, as pairs (start, stop)."""
        return self.group.part(shard_bounds(n, len(self.group), self.loads, self.granule))

    def _copy(self, X, y, bounds):
        """Put shards on their devices. Bytes are copied as bytes, and become floats on the devices."""
        X_shards, y_shards = put_parts(X, bounds, self.devices), put_parts(y, bounds, self.devices)
        tasks = [device.run(to_float, shard) for device, shard in zip(self.devices, X_shards, strict=True)]
        return [task.result() for task in tasks], y_shards

    def _fill(self, X, y, bounds):
        """Copy a minibatch to the next slot, which has two arrays; the devices use parts of them."""
        if self._slots is None:
            size = min(self.batch_size, len(self.X))
            places = [(size, *self.X.shape[1:]), to_float(self.X[:0]).dtype], [(size, *self.y.shape[1:]), self.y.dtype]
            self._given = [[]] * SLOTS  # for each slot, events: the devices are done with it
            self._slots = [[np.empty(*place) for place in places] for _ in range(SLOTS)]
        self._given = [*self._given[1:], [device.record() for device in self.devices]]
        for event in self._given[0]:
            event.wait()  # an error is raised where the program waits for the result
        X_shards, y_shards, slot = [], [], self._slots[0]
        for device, (start, stop) in zip(self.devices, bounds, strict=True):
            X_shard, y_shard = (place[start:stop] for place in slot)
            note_transfer(HOST, device, X_shard.nbytes)
            to_float(X[start:stop], X_shard)
            note_transfer(HOST, device, y_shard.nbytes)
            np.copyto(y_shard, y[start:stop])
            X_shards.append(DeviceArray(X_shard, device))
            y_shards.append(DeviceArray(y_shard, device))
        self._slots = [*self._slots[1:], slot]  # last: after an interrupt the same slot is filled again
        return X_shards, y_shards

    def _preprocessed(self, part):
        """These examples after preprocessing: floats, and labels or targets.

        Raises ValueError unless ``preprocess`` returns NumPy arrays of the same shapes and kinds of numbers, with
        labels within the range of the data's labels, or with finite targets: a GPU would accept wrong values silently.
        """
        X, y = to_float(self.X[part]), self.y[part]
        if self.preprocess is None:
            return X, y
        forms, dtypes = [_form(X), _form(y)], [X.dtype, y.dtype]
        result = self.preprocess(X, y, batch_rng(self.seed, self._epoch, self._number))
        if isinstance(result, tuple) and [_form(array) for array in result] == forms:
            X, y = result
            if np.isfinite(y).all() if self.largest is None else 0 <= y.min() and y.max() <= self.largest:
                return X.astype(dtypes[0], copy=False), y.astype(dtypes[1], copy=False)
        found = " and ".join(map(shown, result)) if isinstance(result, tuple) else shown(result)
        raise ValueError(
            f"preprocess function {name_of(self.preprocess)} returned {found or 'nothing'}; it should return NumPy "
            f"arrays: X of shape {forms[0][0]} with floats, and y of shape {forms[1][0]} with "
            + ("floats, all finite" if self.largest is None else f"labels from 0 to {self.largest}")
        )


def _form(array):
    """The shape of a NumPy array and its kind of numbers; None for any other object."""
    return (array.shape, array.dtype.kind.replace("u", "i")) if isinstance(array, np.ndarray) else None
