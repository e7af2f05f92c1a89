"""What does the steps of a run, as the training loop asks for it: the interface of plans and of CUDA graphs."""

import numpy as np

from ..cluster import gather
from ..devices import to_host

AHEAD_ON_GPU = 8
"""Steps that may be under way where a device is a GPU."""


class Step:
    """What does the steps of a run.

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
