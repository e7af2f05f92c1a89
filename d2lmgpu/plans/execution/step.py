"""A step of a plan as one `Batch` of work for its devices.

receive       waits for the sender's earlier work; then the receiver copies the value
free          waits until the value has been copied, if it was sent
collective    works as in collectives/execute.py, on arrays that earlier work creates

For exchanges that overlap with computations, see queues.py; for devices of other processes, across.py.
"""

import functools

from ...cluster import add_gather, rows_gathered
from ...collectives import add_allreduce, find_algorithm
from ...collectives.execute import add_exchange, needs_staging
from ...devices import DeviceArray
from ...devices.records import note_transfer
from ...devices.transfer import result_to_host
from .compute import agree, begin_step, do, end_step, finite
from .lower import compiled
from .queues import Chains, Overlap


class Minibatch:
    """A device's input for a step, and its results.

    ``examples``: how many examples each micro-batch has. ``draws``: the `Draws` of the whole minibatch. The rest are
    dicts of plain arrays by micro-batch: images ``X`` if it begins on this device; targets ``y`` if it ends here, and
    then its ``sums``, the loss and the number of examples with a correct output.
    """

    def __init__(self, examples, draws):
        self.examples, self.draws, self.X, self.y, self.sums = examples, draws, {}, {}, {}


class StepOfPlan:
    """A step of an `Execution`. The constructor makes its ``batch``; ``minibatch``: a `Minibatch` for each device.

    ``number``: how many steps came before. ``ends``: for each device, an event that happens when the device has
    finished the step. ``received``: by (value, sender), pairs: an event, when the value has been copied, and the device
    that takes it if that belongs to another process, else None. ``gathered``: the rows of all devices, if these belong
    to several processes. ``first_tags``: see `AcrossProcesses`.
    """

    def __init__(self, execution, minibatch, lr, tell):
        self.execution, self.minibatch, self.lr, self.number = execution, minibatch, lr, execution.begun
        self.tell, self.examples = tell, next(iter(minibatch.values())).examples
        self.batch = Chains(execution.errors)
        self.received, self.across, self.gathered = {}, execution.across, None
        self.first_tags = self.across.first_tags if self.across else {}
        self.overlap = Overlap(self) if execution.overlap else None
        for i, own in minibatch.items():
            self.chain(execution.store[i], begin_step, execution.store[i], own)
        for number, action in execution.actions[: execution.before_updates]:
            self._add(number, action)
        if self.across is not None:
            self._tell_others()
        if execution.mixed:
            self._agree()
        for number, action in execution.actions[execution.before_updates :]:
            self._add(number, action)
        self._await_exchanges()
        self.ends = [self.chain(store, end_step, store) for store in execution.stores]

    def chain(self, store, function, *args):
        """Submit work for the store's device that consists only of kernels and Python code; return the task."""
        return self.batch.chain(store.device, function, *args)

    # When the step is done:

    def rows(self):
        """A row of numbers for each device, the loss and correct answers of each micro-batch, or 0.

        The last number is the one that the device's process gave as ``tell``. If several devices computed a
        micro-batch, each of them has its own numbers.
        """
        if self.gathered is not None:
            return rows_gathered(self.gathered, self.execution.group).tolist()
        return [self._row(i, result_to_host) for i in self.minibatch]

    def _row(self, i, on_host):
        """A device's row; ``on_host(array, device)`` copies the device's sums to the host."""
        row = [0.0] * (2 * len(self.examples)) + [self.tell]
        for m, sums in self.minibatch[i].sums.items():
            row[2 * m : 2 * m + 2] = on_host(sums, self.execution.store[i].device).tolist()
        return row

    # Between gradients and updates, at the same point of the step in all processes:

    def _tell_others(self):
        """Let all processes know the rows of all devices: losses are known, and nothing has been updated."""
        makers = [functools.partial(self._row, i, _on_host) for i in self.minibatch]
        self.gathered = add_gather(self.batch, self.execution.group, 2 * len(self.examples) + 1, makers)

    def _agree(self):
        """In mixed precision, find out whether all gradients are finite."""
        self._await_exchanges()
        stores, execution = self.execution.stores, self.execution
        gathered = add_gather(self.batch, execution.group, 1, [functools.partial(finite, store) for store in stores])
        for store, rows in zip(stores, gathered, strict=True):
            self.chain(store, agree, store, rows)

    # The plan's actions, each with its number:

    def _add(self, number, action):
        """Add an action that involves devices of this process."""
        if action.what == "collective":
            self._add_collective(number, action)
        elif action.what == "receive":
            self._add_receive(number, action)
        else:
            if action.what == "free":
                self._await_receipt(action)
            i, more = action.devices[0], (self.lr, sum(self.examples)) if action.what == "update" else ()
            if self.overlap:
                self.overlap.submit(i, self.execution.store[i], action, more)
            else:
                self.chain(self.execution.store[i], do, self.execution.store[i], action, *more)

    def _add_receive(self, number, action):
        if number in self.first_tags:
            self.across.add_receive(self, number, action)
            return
        store, source = (self.execution.store[i] for i in action.devices)
        self.batch.wait(store.device, self.batch.record(source.device))
        note_transfer(source.device, store.device, self.bytes_of(action))
        copied = self.batch.submit(store.device, store.arrive, action.value, source)
        self.received.setdefault((action.value, action.devices[1]), []).append((copied, None))

    def _await_receipt(self, action):
        """Wait until a value that was sent has been received, before it is freed."""
        (i,) = action.devices
        for copied, taker in self.received.pop((action.value, i), ()):
            if taker is not None:
                self.across.note_wait(self, action, copied, taker, "take")
            self.batch.wait(self.execution.store[i].device, copied)

    def _add_collective(self, number, action):
        execution = self.execution
        here = [i for i in action.devices if i in execution.store]
        stores, queues = [execution.store[i] for i in here], [self._prepare(i, action) for i in here]
        size, first, unit = self._extent(action, stores[0])
        if execution.library and action.value[0] == "grads" and len(action.devices) == execution.plan.k:
            fixed = [store.fixed[action.value] for store in stores]
            arrays = list(map(DeviceArray, fixed, queues))
            add_allreduce(self.batch, arrays, find_algorithm(execution.library))
        elif size:
            arrays, dtype = Exchanged(stores, action.value), stores[0].dtype
            if number in self.first_tags:
                self.across.add_exchange(self, number, action, queues, arrays, size, dtype, first, unit)
            else:
                program = compiled(action.schedule, len(queues), needs_staging(queues, dtype), first, unit)
                add_exchange(self.batch, program, queues, arrays, size, dtype.itemsize)
        if self._is_overlapped(action):
            self.overlap.note_exchange(action, queues)

    def _prepare(self, i, action):
        """Prepare a device's whole array for a collective; return the queue in which the collective runs."""
        store = self.execution.store[i]
        if self._is_overlapped(action):
            return self.overlap.prepare(i, store, action)
        self.chain(store, store.prepare, action.value)
        return store.device

    def _is_overlapped(self, action):
        return self.overlap is not None and action.value[0] == "grads"

    def _await_exchanges(self):
        if self.overlap:
            self.overlap.wait(self.execution.store)

    def _extent(self, action, store):
        """The size of a collective's flat arrays, and the arguments ``first`` and ``unit`` of `compiled`."""
        s = action.stage
        if action.value[0] in ("y", "dy"):
            size = self.bytes_of(action) // self.execution.dtype.itemsize
            return size, 0, size // store.units[s]
        start, stop = store.extent(action.value)
        return stop - start, start, 1

    def bytes_of(self, action):
        """The bytes of a whole y or dy that an action transfers."""
        return self.execution.sizes[action.stage].y(self.examples[action.micro_batch])


class Exchanged:
    """The plain arrays of a collective's devices: looked up only when used, since earlier work creates them."""

    def __init__(self, stores, value):
        self.stores, self.value = stores, value

    def __getitem__(self, i):
        return self.stores[i].exchanged(self.value)


def _on_host(array, device):
    """The plain ``array`` on the host; runs on the device."""
    return array if device.kind == "cpu" else array.get()
