"""A plan that runs in several processes: each does the actions of its own devices, and messages carry the data.

    rank 0, device 0    F 0 ─ send y 0 ─┐                       every process knows the whole plan, and so
                                        │ a message             knows the order of all messages; each
    rank 1, device 1                    └─► receive y 0 ─ F 0   message has a number, its MPI tag

Before the first step, the processes check that their plans and parameters agree. step_across.py carries out a step.
"""

import hashlib

import numpy as np

from ..cluster import Across, add_gather, agree
from ..cluster.communicator import most_tags
from ..collectives import ALGORITHMS, schedules_of

GATHER = "recursive_doubling"
"""The allreduce algorithm that devices use to exchange single numbers."""


class AcrossProcesses:
    """The part of an `Execution` that is needed only on a `Cluster` of several processes.

    ``actions``: all the plan's actions in order. ``params``: the initial parameters, which the processes compare.
    ``first_tags``: for each action that needs messages between processes, its number and the first of its tags.
    """

    def __init__(self, plan, everybody, actions, params):
        self.everybody, self.progress = everybody, everybody.progress
        if self.progress.error is not None:
            raise ValueError("a step across processes has failed in this process; restart all processes")
        self.count, self.first_tags, tags = len(actions) + 2, {}, 0
        for number, action in enumerate(actions):
            if len({everybody.owners[i] for i in action.devices}) > 1:
                self.first_tags[number] = tags
                tags += sum(map(len, action.schedule)) or 1
        self.tags, m = {}, 2 * plan.micro_batches + 1  # tags for the numbers that devices exchange in a step
        for what, numbers in ("gradients", 1), ("results", m):
            self.tags[what] = tags
            tags += sum(map(len, ALGORITHMS[GATHER](len(everybody), numbers * len(everybody))))
        if tags > most_tags(self.progress.comm):
            raise ValueError(
                f"the plan has {tags:,} messages between processes, but this MPI allows no more than "
                f"{most_tags(self.progress.comm):,}; use fewer micro-batches"
            )
        written = plan._replace(network=None)  # functions in the network would show their addresses
        self._to_compare = {"the plan's checksum": _checksum(written), "the parameters'": _checksum(*params)}

    def compare(self):
        """Before the first step, raise ValueError in all processes if their plans or parameters differ."""
        if self._to_compare and self.everybody.world is not None:
            agree(self.everybody.world, self._to_compare, self.everybody.patience, "the first step of a plan")
        self._to_compare = None

    def add_gather(self, step, what, m, makers):
        """Like `cluster.add_gather`, at the end of a step or after its gradients; ``what``: a key of `tags`."""
        order = (step.steps + 1) * self.count - (2 if what == "gradients" else 1)
        messages = self.progress, order, self.tags[what]
        across = Across(self.everybody, what, schedules_of(GATHER), messages, step.do)
        return add_gather(step.batch, self.everybody, m, makers, across)


def _checksum(*what):
    """A checksum of arrays or plans that is the same in every process."""
    digest = hashlib.sha256()
    for item in what:
        digest.update(np.ascontiguousarray(item) if isinstance(item, np.ndarray) else repr(item).encode())
    return digest.hexdigest()[:16]
