"""A plan across processes: each carries out the actions of its own devices, and what they send travels as messages.

    rank 0, device 0    F 0 ─ send y 0 ─┐                       every process knows the whole plan, and so
                                        │ a message             which messages come, and in which order;
    rank 1, device 1                    └─► receive y 0 ─ F 0   each has its number, the tag of MPI's

Before the first step the processes compare their plans and parameters; step_across.py carries out a step. Arrays of
which each process has a part are gathered in all of them.
"""

import hashlib

import numpy as np

from ..cluster import Across, HangError, add_gather, agree
from ..cluster.communicator import most_tags
from ..cluster.exchange import Exchange
from ..cluster.part import ProcessPart
from ..cluster.staging import endpoint
from ..collectives import ALGORITHMS, schedules_of
from ..collectives.program import compile_schedule
from ..devices.records import nothing_noted
from ..language.actions import Transfer

GATHER = "recursive_doubling"
"""The allreduce by which devices tell each other numbers."""


class AcrossProcesses:
    """What an `Execution` on a `Cluster` of several processes has beside its own devices.

    ``events``: all of the plan's, in the order of the plan. ``params``: with which it begins, to be compared.
    ``first_tags``: the first tag of each event, by number, of which messages go from one process to another.
    """

    def __init__(self, execution, everybody, events, params):
        self.execution, self.everybody, self.progress = execution, everybody, everybody.progress
        if isinstance(self.progress.error, HangError):  # which says what to do
            raise self.progress.error
        if self.progress.error is not None:
            raise ValueError("a step across processes has failed in this one; start all processes anew")
        self.count, self.first_tags = len(events) + 2, {}
        owners, tags, under_way = everybody.owners, 0, {}
        for number, event in enumerate(events):
            action = event.action
            if action.what == "collective" and len({owners[i] for i in event.devices}) > 1:
                self.first_tags[number] = tags
                tags += sum(map(len, action.schedule))
            elif action.what == "send" and owners[event.devices[0]] != owners[action.peer]:
                self.first_tags[number] = under_way[action.value, event.devices[0], action.peer] = tags
                tags += 1
            elif action.what == "receive" and owners[event.devices[0]] != owners[action.peer]:
                self.first_tags[number] = under_way[action.value, action.peer, event.devices[0]]
        self.tags, m = {}, 2 * execution.plan.micro_batches + 1  # of what devices tell each other in a step
        for what, numbers in ("gradients", 1), ("results", m):
            self.tags[what] = tags
            tags += sum(map(len, ALGORITHMS[GATHER](len(everybody), numbers * len(everybody))))
        if tags > most_tags(self.progress.comm):
            raise ValueError(
                f"the plan has {tags:,} messages between processes, and this MPI knows no more than "
                f"{most_tags(self.progress.comm):,}; take fewer micro-batches"
            )
        plan = execution.plan._replace(network=None)  # functions, whose names tell where they are in memory
        self._to_compare = {"the plan's checksum": _checksum(plan), "the parameters'": _checksum(*params)}

    def compare(self):
        """Before the first step: raise ValueError, in all processes, if they are about to do different things."""
        if self._to_compare and self.everybody.world is not None:
            agree(self.everybody.world, self._to_compare, self.everybody.patience, "the first step of a plan")
        self._to_compare = None

    def add_gather(self, step, what, m, makers):
        """As `cluster.add_gather`, at the end of a step or of its gradients: ``what``, of `tags`."""
        order = (step.steps + 1) * self.count - (2 if what == "gradients" else 1)
        messages = self.progress, order, self.tags[what]
        across = Across(self.everybody, what, schedules_of(GATHER), messages, step.do)
        return add_gather(step.batch, self.everybody, m, makers, across)

    def completed(self, arrays, name):
        """Flat host arrays, one for each stage, in which each process has what its own devices hold: all of them whole.

        ``name``: "params" or "state", of which the layout says what each device holds. All processes call it: each gets
        from the others what its own devices lack.

            layout      stage 0 on device 0, of rank 0; stage 1 on device 1, of rank 1
            rank 0      has stage 0 ──► rank 1
            rank 1      has stage 1 ──► rank 0
        """
        everybody = self.everybody
        ranks, rank, device = tuple(range(everybody.size)), everybody.rank, endpoint(everybody.mine[0])
        schedule = _completing(self.execution.plan, name, everybody.owners, ranks)
        part = ProcessPart(compile_schedule(schedule, len(ranks)), ranks, rank)
        places, whole = [everybody.places[everybody.owners.index(r)] for r in ranks], np.concatenate(arrays)
        communicator = everybody.communicator(everybody.mine[:1])
        with nothing_noted():
            exchange = Exchange(lambda _: f"the sharing of {name}", part, places, [device], whole.dtype, communicator)
        device.submit(exchange.run, [whole]).result()
        return np.split(whole, np.cumsum([len(array) for array in arrays])[:-1])


def _completing(plan, name, owners, ranks):
    """Between processes, of all stages' elements, one stage after the other: from the first device that has them."""
    transfers, begin = [], 0
    for s, stage in enumerate(plan.stages):
        parts = [
            (getattr(part, name), owners[i]) for i, own in enumerate(plan.layout) for part in own if part.stage == s
        ]
        edges = sorted({0, stage.params, *(edge for bounds, _ in parts for edge in bounds)})
        for start, stop in zip(edges, edges[1:], strict=False):
            have = [rank for (first, last), rank in parts if first <= start and stop <= last]
            lack = [rank for rank in ranks if rank not in have]
            transfers += [Transfer(have[0], rank, begin + start, begin + stop, "copy") for rank in lack]
        begin += stage.params
    return [transfers]


def _checksum(*what):
    """Of arrays or plans, the same in every process."""
    digest = hashlib.sha256()
    for item in what:
        digest.update(np.ascontiguousarray(item) if isinstance(item, np.ndarray) else repr(item).encode())
    return digest.hexdigest()[:16]
