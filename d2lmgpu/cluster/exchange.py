"""Carrying out one process's part of a collective: messages between its virtual devices and those of other processes.

One thread does it for all devices of the process, one instruction after the other (instructions.py). Messages are sent
out of the arrays, and received into them where nothing else needs that place, otherwise into a buffer.
"""

import numpy as np

from ..collectives.execute import do_action
from ..devices.records import timed
from ..timing import spans
from .instructions import AHEAD, instructions_of

PIECE = 2**21
"""Bytes of a message that travel as one: few, so that they are still in a cache when they are added; not too few, since
each is waited for."""


class Exchange:
    """One process's part of a collective, on its devices' flat plain arrays; `run` carries it out.

    ``name``: of the algorithm. ``places`` names the devices of all processes. ``devices`` and ``arrays`` are dicts by
    the numbers of this process's devices, ``records`` by those of transfers. Messages go through the ``communicator``.
    """

    def __init__(self, name, part, places, devices, arrays, records, communicator):
        self.name, self.part, self.places = name, part, places
        self.devices, self.arrays, self.records = devices, arrays, records
        self.communicator = communicator
        self.dtype = next(iter(arrays.values())).dtype
        self.instructions = instructions_of(part, self.dtype.itemsize, PIECE)
        self.requests = [None] * len(self.instructions)  # MPI's, of messages on their way: by the instruction's number
        self._stores = {(device, "array"): array for device, array in arrays.items()}

    def run(self):
        """Carry out the part. Runs on one of the process's devices, when it is the turn of this work on all of them."""
        self.communicator.begin()
        mine = [self.devices[device] for device in self.arrays]
        try:
            with spans(mine, "allreduce"), np.errstate(invalid="ignore"):  # inf - inf, see parallel/loss_scale.py
                for instruction in self.instructions:
                    if self.records and instruction.transfer is not None:
                        timed(self.records[instruction.transfer.number], self.do, instruction)
                    else:
                        self.do(instruction)
        except BaseException:
            self._leave_behind()
            raise

    def _leave_behind(self):
        """After an error: cancel what has not come, and keep the memory of messages that may still be under way."""
        for instruction, request in zip(self.instructions, self.requests, strict=True):
            if instruction.kind == "receive" and request is not None and not request.Test():
                request.Cancel()
        self.communicator.left_behind.append(self)

    def do(self, instruction):
        """Do an `Instruction`."""
        for number in instruction.waits:
            self._wait(self.instructions[number])
        number, kind, device, transfer, start, stop, rank, *_ = instruction
        if kind == "send":
            message = self.arrays[device][start:stop].view(np.uint8)
            self.requests[number] = self.communicator.send(message, rank, transfer.number)
        elif kind == "receive":
            room = self._room(instruction).view(np.uint8)
            self.requests[number] = self.communicator.receive(room, rank, transfer.number)
        elif kind == "act":
            stage = self._store(device, "stage") if transfer.kind != "direct" else None
            do_action(transfer, device, self.devices, self.arrays, stage, None)
        elif kind != "leave":
            self._wait(self.instructions[instruction.of])
            target = self.arrays[device][start:stop]
            if kind == "add":
                np.add(target, self._room(instruction), out=target)
            elif kind == "copy":
                np.copyto(target, self._room(instruction))

    def _wait(self, instruction):
        """Wait until a message has arrived, or what was sent has left."""
        request = self.requests[instruction.number]
        if not request.Test():
            self.communicator.wait(request, self, instruction)
        if instruction.kind == "receive":
            self.communicator.note(instruction.rank)

    def _room(self, instruction):
        """Where a message is received."""
        store, size = self._store(instruction.device, instruction.where), instruction.stop - instruction.start
        return store[instruction.place : instruction.place + size]

    def _store(self, device, where):
        """A flat array: a device's own, its staging buffer, or the room for the messages of one phase."""
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

    def where(self, device):
        """What a device is doing, in words."""
        return f"allreduce {self.name}"

    def missing(self, instruction):
        """What the "send" or "receive" of a device waits for, in words, and the rank at the other end."""
        transfer, sending = instruction.transfer, instruction.kind == "send"
        step, steps = self.part.step_of(transfer.number), len(self.part.program.steps)
        other = transfer.destination if sending else transfer.source
        elements, place = f"elements {instruction.start} to {transfer.stop}", self.places[other]
        what = f"{place} to take {elements}" if sending else f"{elements} of {place}"
        where = f"{self.places[instruction.device]} waits in {self.where(instruction.device)}, step {step} of {steps}"
        return f"{where}, for {what}", instruction.rank
