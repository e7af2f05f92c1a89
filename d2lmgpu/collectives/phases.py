"""Compile a schedule into a program that says what each device reads, writes and waits for.

A schedule says what happens in each step, but each device runs by itself and waits only where it must.
`compile_schedule` derives where devices wait from these rules:

1. A device that reads an array waits until its owner has written what earlier steps put there.
2. A device that writes to its array waits until others have read what earlier steps take from there.
3. Within a step, all reads come before all writes. Where a step overwrites what
   it also reads, the message is first *fetched* into a staging buffer, and
   *applied* in a second phase; otherwise the device adds or copies it directly.

For the ring of three devices with chunks of two elements, this shows each device's phases, and the phases that they
wait for. "2.1" is the first phase of device 2, and "2.0" means that device 2 has arrived:

       device 0                       device 1                       device 2
    1  after 2.0: add 2:4 of 2        after 0.0: add 4:6 of 0        after 1.0: add 0:2 of 1
    2  after 2.1 1.1: add 0:2 of 2    after 0.1 2.1: add 2:4 of 0    after 1.1 0.1: add 4:6 of 1
    3  after 2.2 1.2: copy 4:6 of 2   after 0.2 2.2: copy 0:2 of 0   after 1.2 0.2: copy 2:4 of 1
    4  after 2.3 1.3: copy 2:4 of 2   after 0.3 2.3: copy 4:6 of 0   after 1.3 0.3: copy 0:2 of 1

Before its second phase, device 0 waits for 2.1, which added to the part that device 0 reads now (rule 1), and for 1.1,
which read a part of device 0's array (rule 2). Two devices that exchange everything they hold follow rule 3:

       device 0                         device 1
    1  after 1.0: fetch 0:6 of 1        after 0.0: fetch 0:6 of 0
    2  after 1.1: apply copy 0:6 of 1   after 0.1: apply copy 0:6 of 0
"""

import collections
import functools
import itertools
from typing import NamedTuple


class PhaseAction(NamedTuple):
    """A part of a device's work: "direct" and "fetch" read from ``source``; "direct" and "apply" write to its array.

    ``stage`` is where the message begins in the staging buffer, in elements. ``number`` and ``step`` are the numbers of
    the transfer, from 0, and of its step, from 1; clusters use them as a message's tag and in errors.
    """

    kind: str
    source: int
    start: int
    stop: int
    op: str
    stage: int
    number: int
    step: int


class Phase(NamedTuple):
    """What a device does in one go: wait for others, then act.

    ``waits`` are pairs (device, count): the device continues when each of these devices has done ``count`` phases.
    """

    waits: tuple
    actions: tuple


class Phases(NamedTuple):
    """The work of k devices.

    ``steps`` are those of the schedule, without empty transfers. ``order`` lists all phases, as pairs (device, phase),
    in an order in which one thread may do them. ``readers[i]`` are the devices that have read from device i since it
    last waited for them, so the next work of device i must come after theirs. ``stage_sizes[i]`` is the number of
    elements in the staging buffer of device i.
    """

    steps: list
    order: list
    readers: list
    stage_sizes: list


@functools.lru_cache(maxsize=256)
def compile_algorithm(algorithm, k, n, stage_all):
    """The compiled schedule ``algorithm(k, n)``, cached because training asks for the same few again and again."""
    return compile_schedule(algorithm(k, n), k, stage_all)


def compile_schedule(schedule, k, stage_all=False):
    """The `Phases` of a schedule; with ``stage_all`` every message goes through a staging buffer."""
    steps = [[t for t in step if t.size] for step in schedule]  # an empty chunk need not be sent
    compiler, stage_sizes, numbers = _Compiler(k), [0] * k, itertools.count()
    for number, step in enumerate(steps, 1):
        fetches, writes, filled = {}, {}, [0] * k
        for t, staged in zip(step, _overwritten(step), strict=True):
            action = PhaseAction("direct", t.source, t.start, t.stop, t.op, 0, next(numbers), number)
            if staged or stage_all:  # rule 3
                fetch = action._replace(kind="fetch", stage=filled[t.destination])
                fetches.setdefault(t.destination, []).append(fetch)
                action = fetch._replace(kind="apply")
                filled[t.destination] += t.size
            writes.setdefault(t.destination, []).append(action)
        stage_sizes = list(map(max, stage_sizes, filled))
        compiler.add(fetches, writing=False)  # rule 3: all reads come first
        compiler.add(writes, writing=True)
    return Phases(steps, compiler.order, list(map(list, compiler.readers)), stage_sizes)


def _overwritten(step):
    """A list that says, for each transfer of a ``step``, whether another transfer writes where it reads."""
    written = collections.defaultdict(list)  # on each device
    for t in step:
        written[t.destination].append(t)
    return [any(t.start < other.stop and other.start < t.stop for other in written[t.source]) for t in step]


class _Compiler:
    """What is known while the phases of k devices are listed."""

    def __init__(self, k):
        self.order = []
        self.counts = [0] * k  # how many phases each device has so far
        self.written = [0] * k  # the number of phases of each device after which its array is up to date
        self.readers = [{} for _ in range(k)]  # for each device: which devices have read from it since, in which phase

    def add(self, actions, writing):
        """Give each device of ``actions`` its actions as its next phase, all at the same time."""
        for device, todo in actions.items():
            waits = {source: self.written[source] for source in _read(todo)}  # rule 1
            if writing:  # rule 2
                for reader, count in self.readers[device].items():
                    waits[reader] = max(count, waits.get(reader, 0))
            self.order.append((device, Phase(tuple(waits.items()), tuple(todo))))
            self.counts[device] += 1
        for device in actions if writing else ():  # for rule 1
            self.written[device] = self.counts[device]
            self.readers[device].clear()
        for device, todo in actions.items():  # for rule 2
            for source in _read(todo):
                self.readers[source][device] = self.counts[device]


def _read(actions):
    """The devices whose arrays the actions read."""
    return [action.source for action in actions if action.kind != "apply"]
