"""A plan that runs in several processes: each does the actions of its own devices, and messages carry the data.

    rank 0, device 0    F 0 ─ send y 0 ─┐                       every process knows the whole plan, and so
                                        │ a message             knows the order of all messages; each
    rank 1, device 1                    └─► receive y 0 ─ F 0   message has a number, its MPI tag

Before the first step, the processes check that their plans and parameters agree.

Devices of the same process work together as in step.py. A collective works like an allreduce (cluster/exchange.py)
among the devices of its group. A receive waits for the message, and a free waits until the message has been sent;
meanwhile the progress thread (cluster/communicator.py) handles the messages. If a device waits too long, it can say for
what, because the plan is known beforehand.

GPUs send and receive through the host's memory. A value keeps its memory layout when it is sent, so that computations
with it give the same bits in all processes.
"""

import functools
import time

import numpy as np

from ...cluster import check_same_on_all_ranks
from ...cluster.communicator import most_tags
from ...cluster.exchange import Exchange, part_of
from ...cluster.rendezvous import checksum
from ...cluster.staging import add_staged
from ...devices.records import note_transfer
from .lower import compiled


class AcrossProcesses:
    """The part of an `Execution`, and of its steps, that is needed only on a `Cluster` of several processes.

    Raises ValueError in all processes if their plans or parameters differ.

    ``actions``: all the plan's actions in order. ``params``: the initial parameters, which the processes compare.
    ``first_tags``: for each action that needs messages between processes, its number and the first of its tags.
    """

    def __init__(self, plan, group, actions, params):
        self.group, self.progress = group, group.progress
        if self.progress.error is not None:
            raise ValueError("a step across processes has failed in this process; restart all processes")
        self.first_tags, tags = {}, 0
        for number, action in enumerate(actions):
            if len({group.owners[i] for i in action.devices}) > 1:
                self.first_tags[number] = tags
                tags += sum(map(len, action.schedule)) or 1
        if tags > most_tags(self.progress.comm):
            raise ValueError(
                f"the plan has {tags:,} messages between processes, but this MPI allows no more than "
                f"{most_tags(self.progress.comm):,}; use fewer micro-batches"
            )
        written = plan._replace(network=None)  # functions in the network would show their addresses
        here = {"the plan's checksum": checksum(written), "the parameters'": checksum(*params)}
        if group.world is not None:
            check_same_on_all_ranks(group.world, here, group.patience, "the beginning of a plan")

    # In a step:

    def add_receive(self, step, number, action):
        """Add an action to a step: a message between processes, one of whose ends is here."""
        tag, (i, source) = self.first_tags[number], action.devices
        note_transfer(self.group[source], self.group[i], step.bytes_of(action))
        done = step.execution.errors.event()
        if source in step.execution.store:
            store = step.execution.store[source]
            step.received.setdefault((action.value, source), []).append((done, i))
            step.chain(store, self._begin, done, self._send, store, action, tag)
            return
        store, landing = step.execution.store[i], []
        step.chain(store, self._begin, done, self._receive, store, action, tag, landing)
        self.note_wait(step, action, done, source, "send")
        step.batch.wait(store.device, done)
        step.chain(store, self._land, store, action, done, landing)

    def note_wait(self, step, action, done, other, what):
        """Note that the action's device waits for a message, to be ``done``: ``other`` should "send" or "take" it."""
        missing = functools.partial(self._missing, step, action, other, what)
        step.chain(step.execution.store[action.devices[0]], self.progress.await_event, done, missing)

    def add_exchange(self, step, number, action, queues, arrays, size, dtype, first, unit):
        """Add a collective; ``queues``, ``arrays``: those of this process; ``first``, ``unit``: as for `compiled`."""
        group = self.group
        owners, places = zip(*((group.owners[i], group.places[i]) for i in action.devices), strict=True)
        part = part_of(owners, group.rank, compiled, action.schedule, len(owners), False, first, unit)
        messages = self.progress, self.first_tags[number]
        exchange = Exchange(functools.partial(_where, step, action), part, places, queues, dtype, *messages)
        add_staged(step.batch, queues, arrays, size, dtype, exchange.run)

    def _missing(self, step, action, other, what):
        """In words, what an action's device waits for; and the rank for which it waits. For example:

        cpu(0) of rank 3 (b) waits in training step 3 of plan 1f1b, device 3, step 9 (receive of y of stage 2,
        micro-batch 1, from device 2), for cpu(0) of rank 2 (b) to send it
        """
        place, other = self.group.places[action.devices[0]], self.group.places[other]
        return f"{place} waits in {_where(step, action)}, for {other} to {what} it", other.rank

    # On devices:

    def _begin(self, done, begin, *arguments):
        """Begin a message; the event ``done`` happens when it has arrived or left."""
        self.progress.follow(begin(*arguments), done)

    def _send(self, store, action, tag):
        value = store.exchanged(action.value)
        host = value if store.device.kind == "cpu" else value.get()
        rank = self.group.owners[action.devices[0]]
        return self.progress.comm.Isend(host.view(np.uint8), rank, tag)

    def _receive(self, store, action, tag, landing):
        host = flat = store.expect(action.value)
        if store.device.kind == "gpu":
            host = np.empty(flat.size, flat.dtype)
        landing.append(host)
        return self.progress.comm.Irecv(host.view(np.uint8), self.group.owners[action.devices[1]], tag)

    def _land(self, store, action, done, landing):
        """Note that a message has arrived, and copy it to a GPU. Raises the error with which it was given up."""
        if done.error:
            raise done.error
        (host,) = landing
        self.progress.heard[self.group.owners[action.devices[1]]] = time.monotonic()
        if store.device.kind == "gpu":
            store.exchanged(action.value).set(host)
            store.device.finish()  # the host's array is gone as soon as the task is done


def _where(step, action, number=0):
    """In words, where in the plan the device ``number`` of an action is."""
    where = f"device {action.devices[number]}, step {action.step} ({action})"
    return f"training step {step.number + 1} of plan {step.execution.plan.name}, {where}"
