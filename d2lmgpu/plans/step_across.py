"""A step of a plan for the devices of one of several processes.

Devices of the same process work together as in step.py. A collective works like an allreduce (cluster/exchange.py)
among the devices of its group. A receive waits for the message, and a free waits until the message has been sent;
meanwhile the progress thread (cluster/progress.py) handles the messages. If a device waits too long, it can say for
what, because the plan is known beforehand.

GPUs send and receive through the host's memory.

A value keeps its memory layout when it is sent, so that computations with it give the same bits in all processes.
"""

import functools
import time

import numpy as np

from ..cluster import rows_of
from ..cluster.exchange import Exchange
from ..cluster.part import part_of
from ..cluster.staging import add_staged
from ..devices.records import note_transfer, timed
from ..devices.task import Task
from .step import Step, compiled


class StepAcross(Step):
    """`Step` for the devices of one of several processes."""

    def __init__(self, execution, minibatch, lr, tell):
        self.across, self.progress = execution.across, execution.across.progress
        self.everybody = execution.across.everybody
        super().__init__(execution, minibatch, lr, tell)

    def rows(self):
        """As in `Step`, for all processes' devices."""
        return rows_of(self.told, self.everybody).tolist()

    def _tell_others(self):
        makers = [functools.partial(self._row, i, _to_host) for i in self.minibatch]
        self.told = self._gathered("results", 2 * len(self.examples) + 1, makers)

    def _gathered(self, what, m, makers):
        return self.across.add_gather(self, what, m, makers)

    def fail(self, error):
        """As in `Step`; in addition, this process's devices stop waiting for messages."""
        super().fail(error)
        self.progress.give_up(error)

    def _add_receive(self, number, action):
        tag, (i, source) = self.across.first_tags.get(number), action.devices
        if tag is None:
            super()._add_receive(number, action)
            return
        record, done = note_transfer(self.everybody[source], self.everybody[i], self.bytes_of(action)), Task()
        if source in self.execution.store:
            store = self.execution.store[source]
            self.received.setdefault((action.value, source), []).append((done, tag, i))
            self.batch.chain(store.device, self._begin, done, self._send, store, action, tag, record)
            return
        store, landing = self.execution.store[i], []  # the host array for a GPU's message
        self.batch.chain(store.device, self._begin, done, self._receive, store, action, tag, record, landing)
        self._await(number, action, done, tag, source, "send")
        if store.device.kind == "gpu":
            self.batch.chain(store.device, self.do, self._land, store, action.value, landing)

    def _await_receipt(self, number, action):
        (i,), device = action.devices, self.execution.store[action.devices[0]].device
        for sent in self.received.pop((action.value, i), ()):
            if isinstance(sent, tuple):
                self._await(number, action, *sent, "take")
            else:
                self.batch.wait(device, sent)

    def _await(self, number, action, done, tag, other, what):
        """Make the action's device wait until a message is ``done`` that device ``other`` should "send" or "take"."""
        device, order = self.execution.store[action.devices[0]].device, (self._order(number), tag)
        missing = functools.partial(self._missing, action, other, what)
        self.batch.chain(device, self.progress.await_event, done, missing, order)
        self.batch.wait(device, done)

    def _add_exchange(self, number, action, queues, arrays, size, dtype, first, unit):
        if number not in self.across.first_tags:
            super()._add_exchange(number, action, queues, arrays, size, dtype, first, unit)
            return
        everybody = self.everybody
        owners, places = zip(*((everybody.owners[i], everybody.places[i]) for i in action.devices), strict=True)
        part = part_of(owners, everybody.rank, compiled, action.schedule, len(owners), False, first, unit)
        messages = self.progress, self._order(number), self.across.first_tags[number]
        exchange = Exchange(functools.partial(self._where, action), part, places, queues, dtype, *messages)
        add_staged(self.batch, queues, arrays, size, dtype, exchange.run, self.do)

    # Describing what a device waits for:

    def _order(self, number):
        """The number of an action, counted over all steps."""
        return self.steps * self.across.count + number

    def _where(self, action, number=0):
        """In words, where in the plan the device ``number`` of an action is."""
        where = f"device {action.devices[number]}, step {action.step} ({action})"
        return f"training step {self.steps + 1} of plan {self.execution.plan.name}, {where}"

    def _missing(self, action, other, what):
        """In words, what an action's device waits for; and the rank for which it waits. For example:

        cpu(0) of rank 3 (b) waits in training step 3 of plan 1f1b, device 3, step 9 (receive of y of stage 2,
        micro-batch 1, from device 2), for cpu(0) of rank 2 (b) to send it
        """
        place, other = self.everybody.places[action.devices[0]], self.everybody.places[other]
        return f"{place} waits in {self._where(action)}, for {other} to {what} it", other.rank

    # On devices:

    def _begin(self, event, begin, *arguments):
        """Begin a request; its ``event`` happens even after an error."""
        if self.execution.error is None:
            self.progress.run(begin(*arguments), event, self.fail)
        else:
            event.finish(None)

    def _send(self, store, action, tag, record):
        host = _to_host(store.exchanged(action.value), store.device)
        rank = self.everybody.owners[action.devices[0]]
        yield timed(record, self.progress.comm.Isend, host.view(np.uint8), rank, tag)

    def _receive(self, store, action, tag, record, landing):
        rank, begin = self.everybody.owners[action.devices[1]], time.perf_counter()
        host = flat = store.expect(action.value)
        if store.device.kind == "gpu":
            host = np.empty(flat.size, flat.dtype)
            landing.append(host)
        yield self.progress.comm.Irecv(host.view(np.uint8), rank, tag)
        self.progress.heard[rank] = time.monotonic()
        if record is not None:
            record.seconds = time.perf_counter() - begin

    def _land(self, store, key, landing):
        store.exchanged(key).set(landing[0])
        store.device.finish()  # the host's array is gone as soon as the task is done


def _to_host(array, device):
    """The plain ``array`` on the host; runs on the device."""
    return array if device.kind == "cpu" else array.get()
