"""Carrying out one process's part of a collective: messages between its virtual devices and those of other processes.

One thread does it for all devices of the process, move by move (moves.py). Messages are sent out of the arrays and
received into them where nothing else needs that place, and otherwise into a buffer.
"""

import numpy as np

from ..collectives.execute import do_action
from ..devices.records import timed
from ..timing import spans
from .moves import AHEAD, moves_of

PIECE = 2**21
"""Bytes of a message that travel as one: few, so that they are still in a cache when they are added; not too few, since
each is waited for."""


class Exchange:
    """A collective, as one process sees it, on its devices' flat plain arrays; `run` does its part.

    ``name``: of the algorithm. ``places`` name the devices of all processes. ``devices`` and ``arrays`` are dicts from
    the numbers of this process's devices, ``records`` from those of transfers. Messages travel on the ``communicator``.
    """

    def __init__(self, name, part, places, devices, arrays, records, communicator):
        self.name, self.part, self.places = name, part, places
        self.devices, self.arrays, self.records = devices, arrays, records
        self.communicator = communicator
        self.dtype = next(iter(arrays.values())).dtype
        self.moves = moves_of(part, self.dtype.itemsize, PIECE)
        self.requests = [None] * len(self.moves)  # of messages on their way, each at the number of its move
        self._stores = {(device, "array"): array for device, array in arrays.items()}

    def run(self):
        """Do the part. Runs on one of the process's devices, when all of them have got there."""
        self.communicator.begin()
        mine = [self.devices[device] for device in self.arrays]
        try:
            with spans(mine, "allreduce"), np.errstate(invalid="ignore"):  # they may cancel: parallel/loss_scale.py
                for move in self.moves:
                    if self.records and move.transfer is not None:
                        timed(self.records[move.transfer.number], self.do, move)
                    else:
                        self.do(move)
        except BaseException:
            self._leave_behind()
            raise

    def _leave_behind(self):
        """It gives up: what was asked for is to come no more, and what may be under way keeps its memory."""
        for move, request in zip(self.moves, self.requests, strict=True):
            if move.kind == "receive" and request is not None and not request.Test():
                request.Cancel()
        self.communicator.left_behind.append(self)

    def do(self, move):
        """Do a `Move`."""
        for number in move.waits:
            self._wait(self.moves[number])
        kind = move.kind
        if kind == "send":
            message = self.arrays[move.device][move.start : move.stop]
            self.requests[move.number] = self.communicator.send(message.view(np.uint8), move.rank, move.transfer.number)
        elif kind == "receive":
            room = self._room(move).view(np.uint8)
            self.requests[move.number] = self.communicator.receive(room, move.rank, move.transfer.number)
        elif kind == "act":
            stage = self._store(move.device, "stage") if move.transfer.kind != "direct" else None
            do_action(move.transfer, move.device, self.devices, self.arrays, stage, None)
        elif kind != "leave":
            self._wait(self.moves[move.of])
            target = self.arrays[move.device][move.start : move.stop]
            if kind == "add":
                np.add(target, self._room(move), out=target)
            elif kind == "copy":
                np.copyto(target, self._room(move))

    def _wait(self, move):
        """Wait until a message has arrived, or what was sent has left."""
        request = self.requests[move.number]
        if not request.Test():
            self.communicator.wait(request, self, move)
        if move.kind == "receive":
            self.communicator.note(move.rank)

    def _room(self, move):
        """Where a message is received."""
        return self._store(move.device, move.where)[move.place : move.place + move.stop - move.start]

    def _store(self, device, where):
        """Flat: a device's array, the stage of its program, or what lasts for the messages of one phase."""
        store = self._stores.get((device, where))
        if store is None:
            size = self.part.program.stage_sizes[device] if where == "stage" else AHEAD * (PIECE // self.dtype.itemsize)
            size = max(size, AHEAD)
            if where == "messages" and self.devices[device].ledger is not None:  # a limit of memory leaves them out
                store = np.empty(size, self.dtype)
            else:
                store = self.devices[device].buffer(where, size, self.dtype)
            self._stores[device, where] = store
        return store

    def where(self, device):
        """What a device is in, in words."""
        return f"allreduce {self.name}"

    def missing(self, move):
        """What a device waits for, in words, and which rank is to bring it about. ``move``: a "send" or "receive"."""
        transfer, sending = move.transfer, move.kind == "send"
        step, steps = self.part.step_of(transfer.number), len(self.part.program.steps)
        other = transfer.destination if sending else transfer.source
        elements, place = f"elements {move.start} to {transfer.stop}", self.places[other]
        what = f"{place} to take {elements}" if sending else f"{elements} of {place}"
        where = f"{self.places[move.device]} waits in {self.where(move.device)}, step {step} of {steps}"
        return f"{where}, for {what}", move.rank
