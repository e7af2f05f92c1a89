"""A plan across processes: each carries out the actions of its own devices, and what they send travels as messages.

    rank 0, device 0    F 0 ─ send y 0 ─┐                       every process knows the whole plan, and so
                                        │ a message             which messages come, and in which order;
    rank 1, device 1                    └─► receive y 0 ─ F 0   each has its number, the tag of MPI's

Between devices of one process all is as in step.py. A collective is carried out as an allreduce is
(cluster/exchange.py), among the devices of its group. A receive waits for the message, a free until what was sent has
left; meanwhile the progress thread (cluster/progress.py) sees to what is under way. A device that waits too long can
say for what: the plan is known beforehand.

A value travels as two messages with one tag: its shape and the order of its axes in memory, and its elements in that
order, so that it is the same array there, and what is computed with it has the same bits.
"""

import functools
import hashlib
import time

import numpy as np

from ..cluster import HangError, agree, gather
from ..cluster.communicator import most_tags
from ..cluster.exchange import Exchange
from ..cluster.instructions import Instruction
from ..cluster.part import part_of
from ..devices import DeviceError
from ..devices.records import note_transfer, timed
from ..devices.task import Task
from .messages import Message, Words
from .sharing import share
from .step import Step, compiled

MOST_AXES = 7
"""Of a value that is sent."""


class AcrossProcesses:
    """What an `Execution` on a `Cluster` of several processes has beside its own devices.

    ``events``: all of the plan's, in the order of the plan. ``params``: with which it begins, to be compared.
    """

    def __init__(self, execution, everybody, events, params):
        gpus = [device for device in everybody.mine if device.kind != "cpu"]
        if gpus:
            raise DeviceError(
                f"{gpus[0]}: plans run across processes on virtual devices; split the minibatch alone, which trains on "
                "GPUs of several processes, or take --devices cpu:0"
            )
        self.execution, self.everybody, self.progress = execution, everybody, everybody.progress
        if isinstance(self.progress.error, HangError):  # which says what to do
            raise self.progress.error
        if self.progress.error is not None:
            raise ValueError("a step across processes has failed in this one; start all processes anew")
        self.count, self.messages, self.first_tags = len(events), {}, {}
        owners, tags, under_way = everybody.owners, 0, {}
        for number, event in enumerate(events):
            action = event.action
            if action.what == "collective" and len({owners[i] for i in event.devices}) > 1:
                self.first_tags[number] = tags
                tags += sum(map(len, action.schedule))
            elif action.what == "send" and owners[event.devices[0]] != owners[action.peer]:
                message = Message(tags, event.devices[0], action.peer)
                self.messages[number] = under_way[action.key, message.source, message.destination] = message
                tags += 1
            elif action.what == "receive" and owners[event.devices[0]] != owners[action.peer]:
                self.messages[number] = under_way[action.key, action.peer, event.devices[0]]
        if tags > most_tags(self.progress.comm):
            raise ValueError(
                f"the plan has {tags:,} messages between processes, and this MPI knows no more than "
                f"{most_tags(self.progress.comm):,}; take fewer micro-batches"
            )
        last = len(execution.plan.stages) - 1
        self.holder = {  # of each micro-batch's loss: the first device that computes it
            action.micro_batch: i
            for i, todo in reversed(list(enumerate(execution.plan.actions)))
            for action in todo
            if action[:2] == ("F", last)
        }
        plan = execution.plan._replace(network=None)  # functions, whose names tell where they are in memory
        self._to_compare = {"the plan's checksum": _checksum(plan), "the parameters'": _checksum(*params)}

    def step(self, batch_size, lr):
        """The `Step` of this process's devices."""
        if self._to_compare and self.everybody.world is not None:
            agree(self.everybody.world, self._to_compare, self.everybody.patience, "the first step of a plan")
        self._to_compare = None
        return StepAcross(self.execution, batch_size, lr)

    def results(self, found, tell):
        """By micro-batch the loss and the right answers, of what each of this process's devices ``found``.

        And what all processes ``tell``.
        """
        M = self.execution.plan.micro_batches
        rows = np.zeros((len(found), 2 * M + 1))
        for row, own in zip(rows, found, strict=True):
            row[-1] = tell
            for m, pair in own.items():
                row[2 * m : 2 * m + 2] = pair
        rows = gather(self.everybody, rows).tolist()
        found = {m: rows[i][2 * m : 2 * m + 2] for m, i in self.holder.items()}
        return found, [row[-1] for row in rows]

    def completed(self, arrays, name):
        """Flat host arrays, one for each stage, in which each process has what its own devices hold: all of them whole.

        ``name``: of what the layout says who holds it, "params" or "state". All processes call it.
        """
        return share(arrays, name, self.execution.plan, self.everybody)


class StepAcross(Step):
    """`Step` for the devices of one process of several."""

    def __init__(self, execution, batch_size, lr):
        self.across, self.progress = execution.across, execution.across.progress
        self.everybody = execution.across.everybody
        super().__init__(execution, batch_size, lr)

    def fail(self, error):
        """As of `Step`; nobody here waits for messages any more."""
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
        self.received.setdefault((action.key, message.source), []).append((left, message))
        self.batch.submit(store.device, self._begin, left, self._send, store, action.key, message, record)

    def _add_receive(self, number, event):
        message = self.across.messages.get(number)
        if message is None:
            super()._add_receive(number, event)
            return
        store, action, come = self.execution.store[message.destination], event.action, Task()
        record = note_transfer(self.everybody[message.source], store.device, self.bytes_of(action))
        wait = self._order(number), (Words(self, event), Instruction(0, "receive", message.destination, message))
        self.batch.submit(store.device, self._begin, come, self._receive, store, action.key, message, record, *wait)
        self.batch.wait(store.device, come)

    def _await_receipt(self, number, event):
        (i,), device = event.devices, self.execution.store[event.devices[0]].device
        for sent in self.received.pop((event.action.key, i), ()):
            if not isinstance(sent, tuple):
                self.batch.wait(device, sent)
                continue
            left, message = sent
            what = Words(self, event), Instruction(0, "send", i, message)
            self.batch.submit(device, self.progress.await_event, left, self._order(number), what)
            self.batch.wait(device, left)

    def _add_collective(self, number, event):
        if number not in self.across.first_tags:
            super()._add_collective(number, event)
            return
        stores, action = self._prepare(event), event.action
        size, first, unit = self._extent(action, stores[0])
        if size:
            owners = tuple(self.everybody.owners[i] for i in event.devices)
            part = _part(action.schedule, first, unit, owners, self.everybody.rank)
            records = part.note([self.everybody[i] for i in event.devices], self.execution.dtype.itemsize)
            devices = [store.device for store in stores]
            self.batch.submit_to_all(devices, self.do, self._exchange, number, event, part, stores, records)

    def _order(self, number):
        """The number of an event among those of all steps."""
        return self.execution.steps * self.across.count + number

    # On devices:

    def _begin(self, event, begin, store, key, message, record, order=None, what=None):
        """Begin a request; its ``event`` happens, whatever goes wrong."""
        if self.error is None:
            self.progress.run(begin(store, key, message, record), event, self.fail, order, what)
        else:
            event.set_result(None)

    def _send(self, store, key, message, record):
        elements, order = store.message(key)
        header = np.zeros(1 + 2 * MOST_AXES, np.int64)
        header[0], header[1 : 1 + elements.ndim] = elements.ndim, elements.shape
        header[1 + MOST_AXES :][: elements.ndim] = order
        rank, tag = self.everybody.owners[message.destination], message.number
        requests = [self.progress.comm.Isend(header.view(np.uint8), rank, tag)]
        if elements.size:
            requests.append(timed(record, self.progress.comm.Isend, elements.reshape(-1).view(np.uint8), rank, tag))
        yield from requests

    def _receive(self, store, key, message, record):
        header = np.empty(1 + 2 * MOST_AXES, np.int64)
        rank, tag = self.everybody.owners[message.source], message.number
        yield self.progress.comm.Irecv(header.view(np.uint8), rank, tag)
        axes, begin = header[0], time.perf_counter()
        elements = store.device.empty(tuple(header[1 : 1 + axes].tolist()), store.dtype)
        if elements.size:
            yield self.progress.comm.Irecv(elements.reshape(-1).view(np.uint8), rank, tag)
        self.progress.heard[rank] = time.monotonic()
        if record is not None:
            record.seconds = time.perf_counter() - begin
        store.accept(key, elements, header[1 + MOST_AXES :][:axes].tolist())

    def _exchange(self, number, event, part, stores, records):
        here = [i for i, owner in enumerate(part.owners) if owner == part.rank]
        arrays = {i: store.exchanged(event.action) for i, store in zip(here, stores, strict=True)}
        devices = {i: store.device for i, store in zip(here, stores, strict=True)}
        places = [self.everybody.places[i] for i in event.devices]
        with self.progress.slot(self._order(number), self.across.first_tags[number]) as slot:
            words = Words(self, event)
            _Collective(words, part, places, devices, arrays, records, slot).run()


class _Collective(Exchange):
    """An `Exchange` among a group of a plan's devices, whose name is `Words`."""

    def where(self, device):
        """As of `Exchange`."""
        return self.name.where(self.name.event.devices[device])


@functools.lru_cache(maxsize=256)
def _part(schedule, first, unit, owners, rank):
    """The `Part` of the process ``rank`` in the schedule of a group, whose devices belong to ``owners``."""
    return part_of(compiled(schedule, len(owners), False, first, unit), owners, rank)


def _checksum(*what):
    """Of arrays or plans, the same in every process."""
    digest = hashlib.sha256()
    for item in what:
        digest.update(np.ascontiguousarray(item) if isinstance(item, np.ndarray) else repr(item).encode())
    return digest.hexdigest()[:16]
