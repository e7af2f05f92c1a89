"""A process's part of a collective as a list of instructions, done one after the other: found once, used often.

Long messages travel in pieces, so that one is added while the next are on their way:

    sender    | piece 1 | piece 2 | piece 3 |
    receiver            | add 1   | add 2   | add 3 |

Receives begin before their messages are needed. A device's elements are overwritten only when all messages with them
have left; which messages these are is known beforehand, and stands with each instruction:

>>> print(*instructions_of(part_of(compile_schedule(ring(2, 4), 2), (0, 1), 0), 4, 2**21), sep="\\n")
0: send 2:4 of 0 to rank 1
1: receive 0:2 from rank 1 into the messages
2: add it to 0:2 of 0
3: send 0:2 of 0 to rank 1
4: receive 2:4 from rank 1 into the array, when 0 has left
5: wait for it
6: wait until 3 has left
"""

import collections
import functools
import itertools
from typing import NamedTuple

AHEAD = 4
"""Pieces whose receives begin before they are needed."""


class Instruction(NamedTuple):
    """What a process does next; ``number`` is its place in the list.

    ``kind``: "send" elements ``start`` to ``stop`` of its device to ``rank``; "receive" them from there, at ``place``
    ``where``: in the "array", the "stage" or among the "messages"; "add" or "copy" or only "wait" for what the
    instruction ``of`` has asked for; "act", within this process; "leave" nothing on its way. ``transfer``: the `Send`
    or `Action` it is of. ``waits``: the instructions whose sends must have left before.
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
        left = f"{' '.join(map(str, self.waits))} has left"
        elements = f"{self.start}:{self.stop}"
        what = {
            "send": f"send {elements} of {self.device} to rank {self.rank}",
            "receive": f"receive {elements} from rank {self.rank} into the {self.where}",
            "add": f"add it to {elements} of {self.device}",
            "copy": f"copy it to {elements} of {self.device}",
            "wait": "wait for it",
            "act": f"{self.transfer}",
            "leave": f"wait until {left}",
        }[self.kind]
        return f"{self.number}: {what}" + (f", when {left}" if self.waits and self.kind != "leave" else "")


@functools.lru_cache(maxsize=256)
def instructions_of(part, itemsize, piece):
    """The list of `Instruction` of a `ProcessPart`: elements of ``itemsize`` bytes, pieces of ``piece`` at most."""
    return _Compiler(part, max(1, piece // itemsize)).all()


class _Compiler:
    def __init__(self, part, size):
        self.part, self.size = part, size
        self.instructions = []
        self.left = {device: [] for device, owner in enumerate(part.owners) if owner == part.rank}
        self.staged = collections.defaultdict(collections.deque)  # by a transfer's number: what has asked for it

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
        """The pieces in which an action is done: one, if its message comes from this process."""
        return self._pieces(action) if self.part.is_remote(action.source) else [(action.start, action.stop)]

    def _pieces(self, transfer):
        """The sender and the receiver cut a message in the same way."""
        firsts = range(transfer.start, transfer.stop, self.size)
        return [(first, min(first + self.size, transfer.stop)) for first in firsts]

    def _make_room(self, device, phase, action, start, stop, slot):
        """The receive for an action that needs a message from another process; None for other actions."""
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
        """The sends of these elements that nothing has waited for yet; now something does."""
        waits = tuple(send.number for send in self.left[device] if send.start < stop and start < send.stop)
        self.left[device] = [send for send in self.left[device] if send.number not in waits]
        return waits


def _is_alone(action, phase):
    """Whether no other action of the phase uses the same elements; otherwise their order would matter."""
    return not any(
        other is not action and other.start < action.stop and action.start < other.stop for other in phase.actions
    )
