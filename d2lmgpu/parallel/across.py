"""Training steps on the devices of several processes: each does its own devices' part of the same step.

    minibatch    0 1 2 3 4 5 6 7                    every process knows which examples are in it
    rank 0       0 1 │ 2 3        cpu(0), cpu(1)    and reads those of its own devices
    rank 1                4 5 │ 6 7

Gradients are summed over all devices by an allreduce across the cluster, so that every process updates its parameters
in the same way. After it each device sends its loss and its right answers to all processes, which add up the same
numbers in the same order, as one process would with all the devices.
"""

import functools

import numpy as np

from ..cluster import add_gather, rows_of
from .data import loss_and_correct
from .eager import EagerStep
from .variants import submit_step


class ClusterStep(EagerStep):
    """`EagerStep` for the ``replicas`` of one process; ``everybody`` is the `Cluster`, with several processes.

    ``stop.wanted``: whether this process wants training to stop. When any process does, all call ``stop.agree()``
    after the same step.
    """

    def __init__(self, X, y, replicas, *, everybody, stop, algorithm, **settings):
        across = everybody.across(algorithm)
        super().__init__(X, y, replicas, everybody=everybody, algorithm=across, **settings)
        self.everybody, self.stop = everybody, stop

    def submit(self, X_shards, y_shards, lr, **minibatch):
        """As `EagerStep.submit`."""
        told = Told(self.everybody, self.stop.wanted)
        step = submit_step(X_shards, y_shards, self.replicas, lr, around=told.around, **minibatch, **self.settings)
        return step, told

    def sums(self, step):
        """As `EagerStep.sums`, over all processes."""
        step, told = step
        loss_and_correct(step)  # or the error of a device
        losses, correct, wanted = rows_of(told.arrays, self.everybody).T.tolist()
        if any(wanted):
            self.stop.agree()
        return sum(losses), int(sum(correct))


class Told:
    """What each device sends to all processes in a step, after the exchange of gradients: three numbers."""

    def __init__(self, everybody, wanted):
        self.everybody, self.wanted = everybody, wanted

    def around(self, compute, exchange):
        """A way to compute and one to exchange gradients, as in data.py, around these."""

        def compute_noting(*arguments):
            self.tasks = compute(*arguments)
            return self.tasks

        def exchange_telling(batch, replicas, algorithm):
            exchange(batch, replicas, algorithm)
            makers = [functools.partial(_told, task, self.wanted) for task in self.tasks]
            self.arrays = add_gather(batch, self.everybody, 3, makers)

        return compute_noting, exchange_telling


def _told(task, wanted):
    """Runs on a device, after the ``task`` that has computed gradients."""
    if task.error:
        return 0, 0, wanted
    sums = task.value[0].raw
    return *(sums if isinstance(sums, np.ndarray) else sums.get()), wanted
