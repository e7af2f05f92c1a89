"""Computing gradients where devices need each other's numbers on the way: synchronised batch norm.

Every device's work is cut where it writes its share of a sum (networks/as_written.py);
between two parts the shares are added up like gradients.
"""

import functools

from ..collectives import allreduce
from ..devices.array import unwrap


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
        task.asked = True  # an error comes up again in the last part, for which somebody waits
    return tasks


class _Work:
    """One device's work in parts."""

    def __init__(self, replica, X_shard, y_shard):
        self.replica, self.device = replica, replica.device
        arrays = unwrap((X_shard, y_shard), self.device, "loss_and_grads")
        self.begin = functools.partial(replica.in_parts, *arrays)
        self.parts = self.error = None

    def advance(self):
        """Runs on the device: the next part. The last returns the result; after an error all further ones raise it."""
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
