"""A process's part of a collective, compiled to a list of instructions to do one after the other; it is used often.

Long messages travel in pieces, so that one is added while the next are on their way:

    sender    | piece 1 | piece 2 | piece 3 |
    receiver            | add 1   | add 2   | add 3 |

Receives begin before their messages are needed. A device's elements are overwritten only when all messages that contain
them have left. Which messages these are is known in advance, so each instruction names the sends that it waits for:

>>> print(*instructions_of(part_of(compile_schedule(ring(2, 4), 2), (0, 1), 0), 4, 2**21), sep="\\n")
0: send 2:4 of device 0 to rank 1
1: receive 0:2 from rank 1 into the messages
2: wait for receive 1, add it to 0:2 of device 0
3: send 0:2 of device 0 to rank 1
4: wait for send 0, receive 2:4 from rank 1 into the array
5: wait for receive 4
6: wait for send 3
"""

import collections
import functools
import itertools
from typing import NamedTuple

AHEAD = 4
"""Pieces of a phase whose receives are under way at a time, that of the piece that is needed next included."""


class Instruction(NamedTuple):
    """What a process does next; ``number`` is its place in the list.

    ``kind`` is one of:

    - "send": begin to send the elements ``start`` to ``stop`` of ``device`` to ``rank``;
    - "receive": begin to receive them from ``rank`` into ``where`` ("array", "stage" or "messages") from ``place`` on;
    - "add" or "copy": wait for the "receive" number ``of``, then add its message to these elements, or copy it there;
    - "wait": only wait for the "receive" number ``of``;
    - "act": do the action ``transfer``, whose source is in this process, too;
    - "leave": only wait for the sends in ``waits``.

    ``transfer`` is the `Send` or the `Action` to which the instruction belongs. Before it begins, the sends with the
    numbers ``waits`` must have left.
    """

    number: int
    kind: str
    device: int = None
    transfer: object = None
    start: int = 0
    stop: int = 0
    rank: int = None
    where: str = None
    place: int = 0
    of: int = None
    waits: tuple = ()

    def __str__(self):
        elements = f"{self.start}:{self.stop}"
        what = {
            "send": f"send {elements} of device {self.device} to rank {self.rank}",
            "receive": f"receive {elements} from rank {self.rank} into the {self.where}",
            "add": f"wait for receive {self.of}, add it to {elements} of device {self.device}",
            "copy": f"wait for receive {self.of}, copy it to {elements} of device {self.device}",
            "wait": f"wait for receive {self.of}",
            "act": f"{self.transfer}",
            "leave": "",
        }[self.kind]
        waits = [f"wait for send {number}" for number in self.waits]
        return f"{self.number}: {', '.join(filter(None, [*waits, what]))}"


@functools.lru_cache(maxsize=256)
def instructions_of(part, itemsize, piece):
    """The list of `Instruction` of a `ProcessPart`. An element has ``itemsize`` bytes, a piece at most ``piece``."""
    return _Compiler(part, max(1, piece // itemsize)).all()


class _Compiler:
    def __init__(self, part, size):
        self.part, self.size = part, size
        self.instructions = []
        # For each device of this process its sends that no instruction has waited for yet.
        self.left = {device: [] for device, owner in enumerate(part.owners) if owner == part.rank}
        self.staged = collections.defaultdict(collections.deque)  # the receives into the stage, by transfer's number

    def all(self):
        done = dict.fromkeys(self.left, 0)
        for device in done:
            self._send(device, 0)
        for device, phase in self.part.phases:
            self._do(device, phase)
            done[device] += 1
            self._send(device, done[device])
        for device in done:
            on_their_way = [send.number for send in self.left[device]]
            if on_their_way:
                self._add("leave", device, waits=tuple(on_their_way))
        return self.instructions

    def _add(self, kind, *about, **more):
        self.instructions.append(Instruction(len(self.instructions), kind, *about, **more))
        return self.instructions[-1]

    def _send(self, device, count):
        for send in self.part.sends.get((device, count), ()):
            rank = self.part.owners[send.destination]
            for start, stop in self._pieces(send):
                self.left[device].append(self._add("send", device, send, start, stop, rank))

    def _do(self, device, phase):
        """A phase's actions one after the other; the receives for the next ones have begun already."""
        todo = [(action, *piece) for action in phase.actions for piece in self._pieces_of(action)]
        posted, slots, left = collections.deque(), itertools.cycle(range(AHEAD)), iter(todo)
        for piece in todo:
            for ahead in itertools.islice(left, AHEAD - len(posted)):
                posted.append(self._make_room(device, phase, *ahead, next(slots)))
            self._act(device, *piece, posted.popleft())

    def _pieces_of(self, action):
        """The (start, stop) of the pieces in which an action is done: a single one if its source is in this process."""
        return self._pieces(action) if self.part.is_remote(action.source) else [(action.start, action.stop)]

    def _pieces(self, transfer):
        """The (start, stop) of each piece of a transfer; its sender and its receiver cut it in the same way."""
        firsts = range(transfer.start, transfer.stop, self.size)
        return [(first, min(first + self.size, transfer.stop)) for first in firsts]

    def _make_room(self, device, phase, action, start, stop, slot):
        """Add the "receive" of an action's piece; returns None if none is needed, or if a "fetch" has received it."""
        if action.kind == "apply" or not self.part.is_remote(action.source):
            return None
        waits, rank = (), self.part.owners[action.source]
        if action.kind == "fetch":
            where, place = "stage", action.stage + start - action.start
        elif action.op == "copy" and _is_alone(action, phase):
            where, place, waits = "array", start, self._let_go(device, start, stop)
        else:
            where, place = "messages", slot * self.size
        instruction = self._add("receive", device, action, start, stop, rank, where, place, waits=waits)
        if action.kind == "fetch":
            self.staged[action.number].append(instruction)
        return instruction

    def _act(self, device, action, start, stop, received):
        if not self.part.is_remote(action.source):
            waits = self._let_go(device, start, stop) if action.kind != "fetch" else ()
            self._add("act", device, action, start, stop, waits=waits)
        elif action.kind != "fetch":
            received = received or self.staged[action.number].popleft()
            about = (device, action, start, stop, received.rank, received.where, received.place, received.number)
            if received.where == "array":
                self._add("wait", *about)
            else:
                self._add(action.op, *about, waits=self._let_go(device, start, stop))

    def _let_go(self, device, start, stop):
        """The numbers of the sends of these elements that no instruction has waited for; the caller's must wait now."""
        waits = tuple(send.number for send in self.left[device] if send.start < stop and start < send.stop)
        self.left[device] = [send for send in self.left[device] if send.number not in waits]
        return waits


def _is_alone(action, phase):
    """Whether no other action of the phase uses the same elements; otherwise their order would matter."""
    return not any(
        other is not action and other.start < action.stop and action.start < other.stop for other in phase.actions
    )
