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
import time

import numpy as np

from ..collectives.execute import do_action
from ..devices.records import timed
from ..devices.spans import span
from .staging import endpoint


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
        self.records = part.note([here.get(i, place) for i, place in enumerate(places)], dtype.itemsize)

    def run(self, arrays):
        """Carry out the part, on the devices' flat plain arrays in the host's memory.

        Runs on the thread of one of the process's devices, when all of them have reached this work in their queues.
        """
        part, self.arrays = self.part, dict(zip(self.part.mine, arrays, strict=True))
        self.under_way = []  # sends that nobody has waited for: device, action, and what `_wait` takes
        done = dict.fromkeys(part.mine, 0)
        # inf - inf is allowed, see networks/loss_scale.py
        with span("allreduce", list(self.devices.values())), np.errstate(invalid="ignore"):
            for device in done:
                self._send(device, 0)
            for device, phase in part.program.order:
                if device in done:
                    for action in phase.actions:
                        timed(self.records.get(action.number), self._act, device, action)
                    done[device] += 1
                    self._send(device, done[device])
            for device in done:
                self._let_go(device, 0, self.arrays[device].size)

    def _send(self, device, count):
        """Begin to send what others need of a device that has done ``count`` phases."""
        for peer, action in self.part.sends.get((device, count), ()):
            message = self.arrays[device][action.start : action.stop].view(np.uint8)
            to = self.part.owners[peer], self.first_tag + action.number
            request = timed(self.records.get(action.number), self.communicator.comm.Isend, message, *to)
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
            do_action(action, device, self.devices, self.arrays, stage, None)

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
        step, steps = self.part.step_of(action.number), len(self.part.program.steps)
        what = f"{taking}elements {action.start} to {action.stop}" + ("" if taking else f" of {self.places[peer]}")
        where = f"{self.places[device]} waits in {self.where(device)}, step {step} of {steps}"
        return f"{where}, for {what}", self.part.owners[peer]
