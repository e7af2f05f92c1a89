"""From a schedule to what each device does: which parts it reads, writes, and waits for.

A schedule says what happens in a step; devices run on their own, and wait only
where they must. The rules, from which `compile_schedule` derives the waiting:

1. Who reads an array waits until its owner has written what earlier steps put there.
2. Who writes to its array waits until others have read what earlier steps take from there.
3. Within a step all reads come before all writes. Where a step overwrites what
   it also reads, the message is *fetched* into a staging buffer first, and
   *applied* in a second phase; otherwise the reader adds or copies it directly.
"""

import functools
from typing import NamedTuple


class Action(NamedTuple):
    """A part of a device's work: "direct" and "fetch" read from ``source``, "direct" and "apply" write here.

    ``stage`` is the place of the message in the staging buffer, in elements;
    ``number`` counts the transfers of the schedule.
    """

    kind: str
    source: int
    start: int
    stop: int
    op: str
    stage: int
    number: int


class Phase(NamedTuple):
    """What a device does in one go: wait for others, then act.

    ``waits`` are pairs (device, count): go on when that device has done ``count`` phases.
    """

    waits: tuple
    actions: tuple


class Program(NamedTuple):
    """What k devices do.

    ``order`` lists all phases, as pairs (device, phase), in an order in which one
    thread may do them. ``readers[i]`` are the devices that read from device i since
    it last waited for them, so that its next work must come after theirs.
    ``stage_sizes[i]`` are the elements of its staging buffer. ``transfers`` are
    those of the schedule, less the empty ones.
    """

    order: list
    readers: list
    stage_sizes: list
    transfers: list


@functools.lru_cache(maxsize=256)
def compile_algorithm(algorithm, k, n, stage_all):
    """`compile_schedule` of ``algorithm(k, n)``, remembered: training asks for the same few again and again."""
    return compile_schedule(algorithm(k, n), k, stage_all)


def compile_schedule(schedule, k, stage_all=False):
    """The `Program` of a schedule; with ``stage_all`` every message goes through a staging buffer."""
    compiler = _Compiler(k)
    for step in schedule:
        transfers = [t for t in step if t.stop > t.start]  # an empty chunk need not be sent
        fetches, writes = {}, {}
        filled = [0] * k
        for t in transfers:
            number = len(compiler.transfers)
            compiler.transfers.append(t)
            if stage_all or _is_overwritten(t, transfers):
                stage = filled[t.destination]
                filled[t.destination] += t.size
                fetch = Action("fetch", t.source, t.start, t.stop, t.op, stage, number)
                fetches.setdefault(t.destination, []).append(fetch)
                writes.setdefault(t.destination, []).append(fetch._replace(kind="apply"))
            else:
                direct = Action("direct", t.source, t.start, t.stop, t.op, 0, number)
                writes.setdefault(t.destination, []).append(direct)
        compiler.stage_sizes = list(map(max, compiler.stage_sizes, filled))
        compiler.add(fetches, writing=False)
        compiler.add(writes, writing=True)
    return compiler.finish()


def _is_overwritten(transfer, step):
    """Whether another transfer of the step writes where this one reads."""
    return any(t.destination == transfer.source and t.start < transfer.stop and transfer.start < t.stop for t in step)


class _Compiler:
    def __init__(self, k):
        self.order = []
        self.phases = [0] * k  # of each device, so far
        self.written = [0] * k  # the number of phases of each device after which its array is up to date
        self.readers = [{} for _ in range(k)]  # for each device: who read from it since, in which of its phases
        self.stage_sizes = [0] * k
        self.transfers = []

    def add(self, actions, writing):
        """Let each device of ``actions`` do its actions as its next phase, all at the same time."""
        for device, todo in actions.items():
            waits = {action.source: self.written[action.source] for action in todo if action.kind != "apply"}
            if writing:
                for reader, count in self.readers[device].items():
                    waits[reader] = max(count, waits.get(reader, 0))
            self.order.append((device, Phase(tuple(waits.items()), tuple(todo))))
            self.phases[device] += 1
        for device in actions if writing else ():
            self.written[device] = self.phases[device]
            self.readers[device].clear()
        for device, todo in actions.items():
            for action in todo:
                if action.kind != "apply":
                    self.readers[action.source][device] = self.phases[device]

    def finish(self):
        return Program(self.order, list(map(list, self.readers)), self.stage_sizes, self.transfers)
