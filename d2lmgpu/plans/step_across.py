"""A step of a plan for the devices of one process of several.

Between devices of one process all is as in step.py. A collective is carried out as an allreduce is
(cluster/exchange.py), among the devices of its group. A receive waits for the message, a free until what was sent has
left; meanwhile the progress thread (cluster/progress.py) sees to what is under way. A device that waits too long can
say for what: the plan is known beforehand.

What a GPU sends and receives goes through the host's memory.

A value travels as it lies in memory, so that what is computed with it there has the same bits.
"""

import functools
import time
from typing import NamedTuple

import numpy as np

from ..cluster import rows_of
from ..cluster.exchange import Exchange
from ..cluster.instructions import Instruction
from ..cluster.part import ProcessPart
from ..cluster.staging import endpoint
from ..devices.records import note_transfer, timed
from ..devices.task import Task
from .exchanged import compiled
from .step import Step


class TaggedMessage(NamedTuple):
    """A message of a plan between processes: its number, which is its tag, and its devices."""

    number: int
    source: int
    destination: int


class StepAcross(Step):
    """`Step` for the devices of one process of several."""

    def __init__(self, execution, minibatch, lr, tell):
        self.across, self.progress = execution.across, execution.across.progress
        self.everybody = execution.across.everybody
        super().__init__(execution, minibatch, lr, tell)

    def rows(self):
        """As of `Step`, of all processes' devices."""
        return rows_of(self.told, self.everybody).tolist()

    def _tell_others(self):
        makers = [functools.partial(self._row, i) for i in self.minibatch]
        self.told = self._gathered("results", 2 * len(self.examples) + 1, makers)

    def _gathered(self, what, m, makers):
        return self.across.add_gather(self, what, m, makers)

    def _row(self, i):
        """Runs on a device: its row of numbers."""
        row = np.zeros(2 * len(self.examples) + 1)
        for m, sums in self.minibatch[i].sums.items():
            row[2 * m : 2 * m + 2] = sums if isinstance(sums, np.ndarray) else sums.get()
        row[-1] = self.tell
        return row

    def fail(self, error):
        """As of `Step`; no device of this process waits for messages any more."""
        super().fail(error)
        self.progress.give_up(error)

    def _add_send(self, number, event):
        message = self.across.messages.get(number)
        if message is None:
            super()._add_send(number, event)
            return
        store, action, left = self.execution.store[message.source], event.action, Task()
        place = self.everybody[message.destination]
        record = note_transfer(store.device, place, self.bytes_of(action))
        self.received.setdefault((action.value, message.source), []).append((left, message))
        self.batch.chain(store.device, self._begin, left, self._send, (store, action.value, message, record))

    def _add_receive(self, number, event):
        message = self.across.messages.get(number)
        if message is None:
            super()._add_receive(number, event)
            return
        store, action, come = self.execution.store[message.destination], event.action, Task()
        record = note_transfer(self.everybody[message.source], store.device, self.bytes_of(action))
        wait = self._order(number), (_Words(self, event), Instruction(0, "receive", message.destination, message))
        landing = []  # the host's array of a GPU's message
        what = store, action.value, message, record, landing
        self.batch.chain(store.device, self._begin, come, self._receive, what, *wait)
        self.batch.wait(store.device, come)
        if store.device.kind == "gpu":
            self.batch.chain(store.device, self.do, self._land, store, action.value, landing)

    def _await_receipt(self, number, event):
        (i,), device = event.devices, self.execution.store[event.devices[0]].device
        for sent in self.received.pop((event.action.value, i), ()):
            if not isinstance(sent, tuple):
                self.batch.wait(device, sent)
                continue
            left, message = sent
            what = _Words(self, event), Instruction(0, "send", i, message)
            self.batch.chain(device, self.progress.await_event, left, self._order(number), what)
            self.batch.wait(device, left)

    def _add_collective(self, number, event):
        if number not in self.across.first_tags:
            super()._add_collective(number, event)
            return
        if self._is_by_library(event):
            super()._add_collective(number, event)
            return
        (stores, queues), action = self._prepare(event), event.action
        size, first, unit = self._extent(action, stores[0])
        if size:
            owners = tuple(self.everybody.owners[i] for i in event.devices)
            part = _part(action.schedule, first, unit, owners, self.everybody.rank)
            itemsize = self.execution.dtype_of(action.value).itemsize
            records = part.note([self.everybody[i] for i in event.devices], itemsize)
            hosts = [self._brought_down(*each, action.value, size) for each in zip(stores, queues, strict=True)]
            ends = [endpoint(queue) for queue in queues]
            exchanged = self.batch.submit_to_all(
                ends, self.do, self._exchange, number, event, part, stores, ends, hosts, records
            )
            for store, queue, host in zip(stores, queues, hosts, strict=True):
                if host is not None:
                    self.batch.wait(queue, exchanged)
                    self.batch.chain(queue, self.do, self._bring_up, store, action.value, host)
            self._note_exchange(event, queues)

    def _brought_down(self, store, queue, key, size):
        """Of a GPU: a buffer of its `Staging`, to which work copies the array before an exchange; otherwise None."""
        if store.device.kind == "cpu":
            return None
        end = endpoint(queue)
        host = end.buffer("array", size, self.execution.dtype_of(key))
        self.batch.wait(end, self.batch.submit(queue, self.do, self._bring_down, store, key, host))
        return host

    def _order(self, number):
        """The number of an event among those of all steps."""
        return self.steps * self.across.count + number

    # On devices:

    def _begin(self, event, begin, arguments, order=None, what=None):
        """Begin a request; its ``event`` happens, whatever goes wrong."""
        if self.execution.error is None:
            self.progress.run(begin(*arguments), event, self.fail, order, what)
        else:
            event.finish(None)

    def _send(self, store, key, message, record):
        rank, tag = self.everybody.owners[message.destination], message.number
        flat = store.exchanged(key)
        host = flat.get() if store.device.kind == "gpu" else flat
        yield timed(record, self.progress.comm.Isend, host.view(np.uint8), rank, tag)

    def _receive(self, store, key, message, record, landing):
        rank, tag, begin = self.everybody.owners[message.source], message.number, time.perf_counter()
        host = flat = store.expect(key)
        if store.device.kind == "gpu":
            host = np.empty(flat.size, flat.dtype)
            landing.append(host)
        yield self.progress.comm.Irecv(host.view(np.uint8), rank, tag)
        self.progress.heard[rank] = time.monotonic()
        if record is not None:
            record.seconds = time.perf_counter() - begin

    def _land(self, store, key, landing):
        store.exchanged(key).set(landing[0])

    def _bring_down(self, store, key, host):
        store.exchanged(key).get(out=host)

    def _bring_up(self, store, key, host):
        store.exchanged(key).set(host)
        store.device.stream.synchronize()  # the next exchange writes there

    def _exchange(self, number, event, part, stores, devices, hosts, records):
        pairs = list(zip(stores, hosts, strict=True))
        arrays = [store.exchanged(event.action.value) if host is None else host for store, host in pairs]
        places, words = [self.everybody.places[i] for i in event.devices], _Words(self, event)

        def where(i):
            return words.where(event.devices[i])

        with self.progress.slot(self._order(number), self.across.first_tags[number]) as slot:
            Exchange(where, part, places, devices, arrays, records, slot).run()


class _Words:
    """What a device waits for in an event of a step, in words: as `Exchange.missing`.

    cpu(0) of rank 3 (b) waits in training step 3 of plan 1f1b, device 3, step 9 (receive of y of stage 2, micro-batch
    1, from device 2), for cpu(0) of rank 2 (b) to send it
    """

    def __init__(self, step, event):
        self.step, self.event, self.plan = step.steps + 1, event, step.execution.plan.name
        self.places, self.owners = step.everybody.places, step.everybody.owners

    def where(self, i):
        """What device i is in."""
        where = f"device {i}, step {self.event.step} ({self.event.action})"
        return f"training step {self.step} of plan {self.plan}, {where}"

    def missing(self, instruction):
        """As of `Exchange`: in words, and the rank that it waits for."""
        device, message = instruction.device, instruction.transfer
        other, what = (message.destination, "take") if instruction.kind == "send" else (message.source, "send")
        text = f"{self.places[device]} waits in {self.where(device)}, for {self.places[other]} to {what} it"
        return text, self.owners[other]


@functools.lru_cache(maxsize=256)
def _part(schedule, first, unit, owners, rank):
    """The `ProcessPart` of the process ``rank`` in the schedule of a group, whose devices belong to ``owners``."""
    return ProcessPart(compiled(schedule, len(owners), False, first, unit), owners, rank)
