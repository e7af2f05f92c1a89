"""A process's part of a collective, compiled into a list of instructions, since the same part is used often.

Long messages travel in pieces, so that one piece is added while the next ones are on their way:

    sender    | piece 1 | piece 2 | piece 3 |
    receiver            | add 1   | add 2   | add 3 |

Receives begin before their messages are needed. A device's elements are overwritten only when all messages that contain
them have left. These messages are known in advance, so each instruction names those that it waits for. In a ring of two
processes, with a device and four elements each, rank 0 does the following:

    0: send 2:4 of device 0 to device 1
    1: receive 0:2 of device 1 into the messages
    2: wait for receive 1, add it to 0:2 of device 0
    3: send 0:2 of device 0 to device 1
    4: wait for send 0, receive 2:4 of device 1 into the array
    5: wait for receive 4
    6: wait for send 3
"""

import functools
from typing import NamedTuple

AHEAD = 4
"""The most pieces of a phase that are being received at a time, including the one that is needed next."""


class Instruction(NamedTuple):
    """An instruction for a process; ``number`` is its position in the list.

    ``kind`` is one of:

    - "send": begin to send the elements ``start`` to ``stop`` of ``device`` to ``peer``, a device of another process;
    - "receive": begin to receive them from ``peer`` into ``where`` ("array", "stage" or "messages") from ``place`` on;
    - "add" or "copy": add the message in ``where`` to these elements, or copy it to them;
    - "act": do the ``action``, whose source is in this process, too;
    - "wait": only wait.

    ``action`` is the `Action` to which the instruction belongs; its number is the tag of the message. Before the
    instruction begins, the messages of the sends and receives with the numbers ``waits`` must have left or arrived.
    """

    number: int
    kind: str
    device: int = None
    action: object = None
    start: int = 0
    stop: int = 0
    peer: int = None
    where: str = None
    place: int = 0
    waits: tuple = ()


@functools.lru_cache(maxsize=256)
def instructions_of(part, itemsize, piece):
    """The list of a `ProcessPart`'s instructions. An element has ``itemsize`` bytes, and a piece at most ``piece``."""
    return _Compiler(part, max(1, piece // itemsize)).all()


class _Compiler:
    def __init__(self, part, size):
        self.part, self.size = part, size
        self.instructions = []
        self.left = {device: [] for device in part.mine}  # their sends that no instruction has waited for yet
        self.staged = {}  # the receives into the stage, by the transfer's number and the first element

    def all(self):
        sends, done = self._all_sends(), dict.fromkeys(self.part.mine, 0)
        for device in done:
            self._send(device, sends.get((device, 0), ()))
        for device, phase in self.part.program.order:
            if device in done:
                self._do(device, phase)
                done[device] += 1
                self._send(device, sends.get((device, done[device]), ()))
        for device, on_their_way in self.left.items():
            if on_their_way:
                self._add("wait", device, waits=tuple(send.number for send in on_their_way))
        return self.instructions

    def _all_sends(self):
        """The sends to begin when a device of this process has done ``count`` phases, a dict by (device, count).

        Its values are lists of pairs: the destination, in another process, and its `Action`.
        """
        part, sends = self.part, {}
        for device, phase in part.program.order:
            counts = dict(phase.waits)
            for action in phase.actions if part.is_remote(device) else ():
                if action.kind != "apply" and not part.is_remote(action.source):
                    sends.setdefault((action.source, counts[action.source]), []).append((device, action))
        return sends

    def _add(self, kind, *about, **more):
        self.instructions.append(Instruction(len(self.instructions), kind, *about, **more))
        return self.instructions[-1]

    def _send(self, device, sends):
        for destination, action in sends:
            for start, stop in self._pieces(action, destination):
                self.left[device].append(self._add("send", device, action, start, stop, destination))

    def _do(self, device, phase):
        """Add a phase's actions one after the other; the receives for later actions begin ahead of time."""
        todo, received = [(action, *piece) for action in phase.actions for piece in self._pieces(action, device)], []
        for number, piece in enumerate(todo):
            for slot in range(len(received), min(number + AHEAD, len(todo))):
                received.append(self._receive(device, phase, *todo[slot], slot % AHEAD * self.size))
            self._act(device, *piece, received[number])

    def _pieces(self, action, destination):
        """The (start, stop) of each piece of a message; its sender and its receiver cut it in the same way.

        A message between two devices of this process is one piece.
        """
        start, stop = action.start, action.stop
        if not self.part.is_remote(action.source) and not self.part.is_remote(destination):
            return [(start, stop)]
        return [(first, min(first + self.size, stop)) for first in range(start, stop, self.size)]

    def _receive(self, device, phase, action, start, stop, place):
        """Add the "receive" of an action's piece; return None if none is needed, or if a "fetch" has received it."""
        if action.kind == "apply" or not self.part.is_remote(action.source):
            return None
        where, waits = "messages", ()
        if action.kind == "fetch":
            where, place = "stage", action.stage + start - action.start
        elif action.op == "copy" and _is_alone(action, phase):
            where, place, waits = "array", start, self._let_go(device, start, stop)
        received = self._add("receive", device, action, start, stop, action.source, where, place, waits)
        if action.kind == "fetch":
            self.staged[action.number, start] = received
        return received

    def _act(self, device, action, start, stop, received):
        if not self.part.is_remote(action.source):
            waits = self._let_go(device, start, stop) if action.kind != "fetch" else ()
            self._add("act", device, action, start, stop, waits=waits)
        elif action.kind != "fetch":
            received = received or self.staged.pop((action.number, start))
            kind, waits = "wait", ()
            if received.where != "array":
                kind, waits = action.op, self._let_go(device, start, stop)
            waits = *waits, received.number
            self._add(kind, device, action, start, stop, action.source, received.where, received.place, waits)

    def _let_go(self, device, start, stop):
        """The numbers of the sends of these elements that are still to be waited for, which the caller must do now."""
        waits = tuple(send.number for send in self.left[device] if send.start < stop and start < send.stop)
        self.left[device] = [send for send in self.left[device] if send.number not in waits]
        return waits


def _is_alone(action, phase):
    """Whether no other action of the phase uses the same elements; otherwise their order would matter."""
    return not any(
        other is not action and other.start < action.stop and action.start < other.stop for other in phase.actions
    )
