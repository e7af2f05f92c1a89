"""One process's part of a collective: what its devices do, what it sends to other processes, and when.

A compiled schedule (collectives/phases.py) says what each device does and what it waits for. A process does not see
when another process's phases are done, so messages take the place of these waits:

- a device that would read another process's array receives a message, tagged with the transfer's number;
- the owner of the array sends the message as soon as it has done the phases that the reader would wait for;
- before a device overwrites what it has sent, it waits until the message has left.

Each process does its devices' phases in the program's order. Of all phases that are not done yet, the first in this
order can always be done, since it waits only for earlier phases. So there is no deadlock.
"""

import bisect
import functools
import itertools
from dataclasses import dataclass

from ..devices.records import note_transfer


@dataclass(eq=False)
class ProcessPart:
    """One process's part of a `Program` for the devices of all processes, which was compiled without ``stage_all``.

    ``owners[i]`` is the rank of device i's process, ``rank`` that of this process.
    """

    program: object
    owners: tuple
    rank: int

    @functools.cached_property
    def mine(self):
        """The numbers of this process's devices."""
        return [device for device, owner in enumerate(self.owners) if owner == self.rank]

    def is_remote(self, device):
        """Whether the device belongs to another process."""
        return self.owners[device] != self.rank

    @functools.cached_property
    def sends(self):
        """The sends to begin when a device of this process has done ``count`` phases, a dict by (device, count).

        Its values are lists of pairs: the destination, in another process, and its `Action`.
        """
        sends = {}
        for device, phase in self.program.order:
            counts = dict(phase.waits)
            for action in phase.actions if self.is_remote(device) else ():
                if action.kind != "apply" and not self.is_remote(action.source):
                    sends.setdefault((action.source, counts[action.source]), []).append((device, action))
        return sends

    def step_of(self, number):
        """The step, from 1, to which a transfer belongs."""
        ends = itertools.accumulate(map(len, self.program.steps))
        return 1 + bisect.bisect(list(ends), number)

    def note(self, places, itemsize):
        """A dict of the records of this process's transfers, by the transfer's number; empty if no log is open.

        ``places[i]``: device i, or its `Place` if it belongs to another process.
        """
        records = {}
        for number, t in enumerate(itertools.chain.from_iterable(self.program.steps)):
            if not (self.is_remote(t.source) and self.is_remote(t.destination)):
                record = note_transfer(places[t.source], places[t.destination], t.size * itemsize)
                if record is None:
                    return {}
                records[number] = record
        return records


@functools.lru_cache(maxsize=256)
def part_of(owners, rank, compile_program, *arguments):
    """Compile a program and return its `ProcessPart`; cached, since training uses the same few again and again."""
    return ProcessPart(compile_program(*arguments), owners, rank)
