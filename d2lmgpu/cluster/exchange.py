"""Carry out one process's part of a collective: messages between its virtual devices and those of other processes.

One thread does this for all devices of the process, one instruction after the other (instructions.py). Messages are
sent straight from the arrays. They are received straight into an array if they replace elements that no other action of
the phase uses, and otherwise into a buffer.
"""

import functools
import time

import numpy as np

from ..collectives.execute import do_action
from ..devices.records import timed
from ..spans import span
from .instructions import AHEAD, instructions_of
from .staging import endpoint

PIECE = 2**21
"""Bytes of the pieces in which long messages travel. Pieces are small, so that a piece is still in a cache when it is
added, but not too small, since each one has to be waited for."""


class Exchange:
    """One process's part of a collective; `run` carries it out. Its transfers are noted when the object is made.

    ``where(device)`` says in words what a device is doing. ``places`` names the devices of all processes. ``devices``
    are this process's devices, in order, or their comm streams. ``order``: the number of the collective, by default the
    communicator's next one. ``first_tag`` is added to the tags of messages.
    """

    def __init__(self, where, part, places, devices, dtype, communicator, order=None, first_tag=0):
        self.where, self.part, self.places, self.dtype = where, part, places, dtype
        self.communicator, self.order, self.first_tag = communicator, order, first_tag
        self.devices = {i: endpoint(device) for i, device in zip(part.mine, devices, strict=True)}
        self.instructions = instructions_of(part, dtype.itemsize, PIECE)
        self.requests = [None] * len(self.instructions)  # MPI's requests, by the number of the "send" or "receive"
        here = dict(zip(part.mine, devices, strict=True))
        self.records = part.note([here.get(i, place) for i, place in enumerate(places)], dtype.itemsize)

    def run(self, arrays):
        """Carry out the part, on the devices' flat plain arrays in the host's memory.

        Runs on the thread of one of the process's devices, when all of them have reached this work in their queues.
        """
        self.arrays = dict(zip(self.part.mine, arrays, strict=True))
        self._stores = {(device, "array"): array for device, array in self.arrays.items()}
        if self.order is None:
            self.order = self.communicator.begin()
        # inf - inf is allowed, see parallel/loss_scale.py
        with span("allreduce", list(self.devices.values())), np.errstate(invalid="ignore"):
            for instruction in self.instructions:
                action = instruction.action  # None for a mere wait
                timed(self.records.get(action and action.number), self.do, instruction)

    def do(self, instruction):
        """Do an `Instruction`."""
        for number in instruction.waits:
            self._wait(self.instructions[number])
        number, kind, device, action, start, stop, peer, *_ = instruction
        if kind == "send":
            message = self.arrays[device][start:stop].view(np.uint8)
            to = self.part.owners[peer], self.first_tag + action.number
            self.requests[number] = self.communicator.comm.Isend(message, *to)
        elif kind == "receive":
            sender = self.part.owners[peer], self.first_tag + action.number
            self.requests[number] = self.communicator.comm.Irecv(self._room(instruction).view(np.uint8), *sender)
        elif kind == "act":
            stage = self._store(device, "stage") if action.kind != "direct" else None
            do_action(action, device, self.devices, self.arrays, stage, None)
        elif kind == "add":
            target = self.arrays[device][start:stop]
            np.add(target, self._room(instruction), out=target)
        elif kind == "copy":
            np.copyto(self.arrays[device][start:stop], self._room(instruction))

    def _wait(self, instruction):
        """Wait until the message of a "receive" has arrived, or that of a "send" has left."""
        request = self.requests[instruction.number]
        if not request.Test():
            order = self.order, instruction.action.number
            self.communicator.wait(request, functools.partial(self.missing, instruction), order)
        if instruction.kind == "receive":
            self.communicator.heard[self.part.owners[instruction.peer]] = time.monotonic()

    def _room(self, instruction):
        """The part of a flat array into which the message is received."""
        store, size = self._store(instruction.device, instruction.where), instruction.stop - instruction.start
        return store[instruction.place : instruction.place + size]

    def _store(self, device, where):
        """A device's flat array for ``where``: its own "array", the program's "stage", or the buffer for "messages"."""
        store = self._stores.get((device, where))
        if store is None:
            size = self.part.program.stage_sizes[device] if where == "stage" else AHEAD * (PIECE // self.dtype.itemsize)
            size = max(size, AHEAD)
            if where == "messages" and self.devices[device].accounting is not None:  # not counted in its memory
                store = np.empty(size, self.dtype)
            else:
                store = self.devices[device].buffer(where, size, self.dtype)
            self._stores[device, where] = store
        return store

    def missing(self, instruction):
        """What a "send" or "receive" that is not done yet waits for, in words, and the rank at the other end."""
        action, place = instruction.action, self.places[instruction.peer]
        step, steps = self.part.step_of(action.number), len(self.part.program.steps)
        elements = f"elements {instruction.start} to {action.stop}"
        what = f"{place} to take {elements}" if instruction.kind == "send" else f"{elements} of {place}"
        where = f"{self.places[instruction.device]} waits in {self.where(instruction.device)}, step {step} of {steps}"
        return f"{where}, for {what}", self.part.owners[instruction.peer]
