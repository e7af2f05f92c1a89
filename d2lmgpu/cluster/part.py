"""One process's part of a collective: what its devices do, what it sends to other processes, and when.

A compiled schedule (collectives/program.py) says what each device does and what it waits for. A process does not see
when another process's phases are done, so messages take the place of these waits:

- a device that would read another process's array receives a message, tagged with the transfer's number;
- the owner of the array sends the message as soon as it has done the phases that the reader would wait for;
- before a device overwrites what it has sent, it waits until the message has left.

Each process does its devices' phases in the program's order. Of all phases that are not done yet, the first in this
order can always be done, since it waits only for phases before it. So there is no deadlock.
"""

import functools
from dataclasses import dataclass
from typing import NamedTuple

from ..collectives.program import compile_algorithm
from ..devices.records import note_transfer


class Send(NamedTuple):
    """Elements ``start`` to ``stop`` of the device ``source`` go to ``destination``, a device of another process.

    ``number`` is the transfer's, and the tag of the message.
    """

    source: int
    destination: int
    start: int
    stop: int
    number: int


@dataclass(eq=False)
class ProcessPart:
    """One process's part of a `Program`, which is for the devices of all processes.

    ``owners[i]`` is the rank of device i's process. ``phases``: pairs (device, phase) of this process's devices, in the
    program's order. ``sends[device, count]``: the list of `Send` to begin when a device has done ``count`` phases.
    """

    program: object
    owners: tuple
    rank: int
    phases: list
    sends: dict

    def is_remote(self, device):
        """Whether the device belongs to another process."""
        return self.owners[device] != self.rank

    def step_of(self, number):
        """The step, from 1, to which a transfer belongs."""
        for step, (transfers, _) in enumerate(self.program.steps, 1):
            if number < len(transfers):
                return step
            number -= len(transfers)
        raise IndexError(number)

    def note(self, places, itemsize):
        """A dict of the records of this process's transfers, by the transfer's number; empty if no log is open.

        ``places[i]``: device i, or its `Place` if it belongs to another process.
        """
        transfers, records = (t for transfers, _ in self.program.steps for t in transfers), {}
        for number, t in enumerate(transfers):
            if not (self.is_remote(t.source) and self.is_remote(t.destination)):
                record = note_transfer(places[t.source], places[t.destination], t.size * itemsize)
                if record is None:
                    return {}
                records[number] = record
        return records


def part_of(program, owners, rank):
    """The `ProcessPart` of the process ``rank`` in a `Program` that was not compiled to stage every message."""
    phases = [(device, phase) for device, phase in program.order if owners[device] == rank]
    sends = {}
    for device, phase in program.order:
        counts = dict(phase.waits)
        for action in phase.actions if owners[device] != rank else ():
            if action.kind != "apply" and owners[action.source] == rank:
                send = Send(action.source, device, action.start, action.stop, action.number)
                sends.setdefault((action.source, counts[action.source]), []).append(send)
    return ProcessPart(program, owners, rank, phases, sends)


@functools.lru_cache(maxsize=256)
def part_of_algorithm(algorithm, n, owners, rank):
    """`part_of` the schedule ``algorithm(k, n)``, cached: training uses the same few again and again."""
    return part_of(compile_algorithm(algorithm, len(owners), n, False), owners, rank)
