"""Carry out one process's part of a collective: messages between its virtual devices and those of other processes.

One thread does this for all devices of the process, phase by phase (part.py). Messages are sent straight from the
arrays. They are received straight into an array if they replace its elements, and otherwise into a buffer, from which
they are added; no memory limit counts it. In a ring of two processes, with a device and four elements each, rank 0 does
the following:

    begin to send 2:4 to device 1
    receive 0:2 of device 1 into the buffer, add it to 0:2
    begin to send 0:2 to device 1
    wait until 2:4 has left, receive 2:4 of device 1 into the array
    wait until 0:2 has left
"""

import functools
import itertools
import time
from dataclasses import dataclass

import numpy as np

from ..collectives.execute import do_action
from ..devices.records import note_transfer, span
from .staging import endpoint

# One process's part of a collective: what its devices do, what it sends to other processes, and when.
#
# A compiled schedule (collectives/phases.py) says what each device does and what it waits for. A process does not see
# when another process's phases are done, so messages take the place of these waits:
#
# - a device that would read another process's array receives a message, tagged with the transfer's number;
# - the owner of the array sends the message as soon as it has done the phases that the reader would wait for;
# - before a device overwrites what it has sent, it waits until the message has left.
#
# Each process does its devices' phases in the program's order. Of all phases that are not done yet, the first in this
# order can always be done, since it waits only for earlier phases. So there is no deadlock.


@dataclass(eq=False)
class ProcessPart:
    """One process's part of a `Phases` for the devices of all processes, which was compiled without ``stage_all``.

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

        Its values are lists of pairs: the destination, in another process, and its `PhaseAction`.
        """
        sends = {}
        for device, phase in self.program.order:
            counts = dict(phase.waits)
            for action in phase.actions if self.is_remote(device) else ():
                if action.kind != "apply" and not self.is_remote(action.source):
                    sends.setdefault((action.source, counts[action.source]), []).append((device, action))
        return sends

    def note(self, places, itemsize):
        """Note this process's transfers.

        ``places[i]``: device i, or its `Place` if it belongs to another process.
        """
        for t in itertools.chain.from_iterable(self.program.steps):
            if not (self.is_remote(t.source) and self.is_remote(t.destination)):
                note_transfer(places[t.source], places[t.destination], t.size * itemsize)


@functools.lru_cache(maxsize=256)
def part_of(owners, rank, compile_program, *arguments):
    """Compile a program and return its `ProcessPart`; cached, since training uses the same few again and again."""
    return ProcessPart(compile_program(*arguments), owners, rank)


class Exchange:
    """One process's part of a collective; `run` carries it out. Its transfers are noted when the object is made.

    ``where(device)`` says in words what a device is doing. ``places`` names the devices of all processes. ``devices``
    are this process's devices, in order, or their comm streams. ``first_tag`` is added to the tags of messages.
    """

    def __init__(self, where, part, places, devices, dtype, communicator, first_tag=0):
        self.where, self.part, self.places, self.dtype = where, part, places, dtype
        self.communicator, self.first_tag = communicator, first_tag
        self.devices = {i: endpoint(device) for i, device in zip(part.mine, devices, strict=True)}
        here = dict(zip(part.mine, devices, strict=True))
        part.note([here.get(i, place) for i, place in enumerate(places)], dtype.itemsize)

    def run(self, arrays):
        """Carry out the part, on the devices' flat plain arrays in the host's memory.

        Runs on the thread of one of the process's devices, when all of them have reached this work in their queues.
        """
        part, self.arrays = self.part, dict(zip(self.part.mine, arrays, strict=True))
        self.under_way = []  # sends that nobody has waited for: device, action, and what `_wait` takes
        done = dict.fromkeys(part.mine, 0)
        # inf - inf is allowed, see networks/mixed.py
        with span("allreduce", list(self.devices.values())), np.errstate(invalid="ignore"):
            for device in done:
                self._send(device, 0)
            for device, phase in part.program.order:
                if device in done:
                    for action in phase.actions:
                        self._act(device, action)
                    done[device] += 1
                    self._send(device, done[device])
            for device in done:
                self._let_go(device, 0, self.arrays[device].size)

    def _send(self, device, count):
        """Begin to send what others need of a device that has done ``count`` phases."""
        for peer, action in self.part.sends.get((device, count), ()):
            message = self.arrays[device][action.start : action.stop].view(np.uint8)
            to = self.part.owners[peer], self.first_tag + action.number
            request = self.communicator.comm.Isend(message, *to)
            self.under_way.append((device, action, (request, device, peer, action, f"{self.places[peer]} to take ")))

    def _act(self, device, action):
        """Do an action of a device."""
        target = self.arrays[device][action.start : action.stop]
        size = self.part.program.stage_sizes[device]
        stage = self.devices[device].buffer("stage", size, self.dtype) if size else None
        if action.kind == "fetch" and self.part.is_remote(action.source):
            self._receive(device, action, stage[action.stage : action.stage + target.size])
        elif action.kind == "direct" and self.part.is_remote(action.source):
            if action.op == "copy":
                self._let_go(device, action.start, action.stop)
                self._receive(device, action, target)
            else:
                message = np.empty(target.size, self.dtype)
                self._receive(device, action, message)
                self._let_go(device, action.start, action.stop)
                np.add(target, message, out=target)
        else:
            if action.kind != "fetch":
                self._let_go(device, action.start, action.stop)
            do_action(action, device, self.devices, self.arrays, stage)

    def _receive(self, device, action, room):
        """Receive a message of another process into a flat array, and wait for it."""
        rank = self.part.owners[action.source]
        request = self.communicator.comm.Irecv(room.view(np.uint8), rank, self.first_tag + action.number)
        self._wait(request, device, action.source, action, "")
        self.communicator.heard[rank] = time.monotonic()

    def _let_go(self, device, start, stop):
        """Wait until the device's elements from ``start`` to ``stop`` have left, wherever they are sent."""
        for send in list(self.under_way):
            sender, action, request = send
            if sender == device and action.start < stop and start < action.stop:
                self._wait(*request)
                self.under_way.remove(send)

    def _wait(self, request, device, peer, action, taking):
        if not request.Test():
            self.communicator.wait(request, functools.partial(self._missing, device, peer, action, taking))

    def _missing(self, device, peer, action, taking):
        """What a device waits for, in words, and the rank at the other end; ``taking``: the words for a send."""
        what = f"{taking}elements {action.start} to {action.stop}" + ("" if taking else f" of {self.places[peer]}")
        steps = len(self.part.program.steps)
        where = f"{self.places[device]} waits in {self.where(device)}, step {action.step} of {steps}"
        return f"{where}, for {what}", self.part.owners[peer]
