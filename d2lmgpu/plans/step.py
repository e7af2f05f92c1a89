"""A step of a plan as one `Batch` of work for its devices, which are all in this process.

receive       waits for the sender's earlier work; then the receiver copies the value
free          waits until the value has been copied, if it was sent
collective    works as in collectives/execute.py, on arrays that earlier work creates

For overlapping exchanges, see overlap.py.
"""

import functools
import threading

from ..cluster import add_gather
from ..collectives import add_allreduce, find_algorithm
from ..collectives.execute import add_exchange, needs_staging
from ..collectives.program import compile_schedule
from ..devices import DeviceArray
from ..devices.records import note_transfer
from ..devices.transfer import raw_result_to_host
from .chains import Chains
from .overlap import Overlap


class Step(Overlap):
    """A step of an `Execution`. The constructor makes its ``batch``; ``minibatch``: a `Minibatch` for each device.

    ``ends``: for each device, an event that happens when the device has finished the step.
    """

    make_batch = Chains

    def __init__(self, execution, minibatch, lr, tell):
        self.execution, self.minibatch, self.lr, self.steps = execution, minibatch, lr, execution.begun
        self.tell = tell
        self.examples = next(iter(minibatch.values())).examples
        self.batch, self._lock = self.make_batch(), threading.Lock()
        self.received = {}  # for each (value, source): the events of copies
        self.final, self.exchanged = {}, {}  # for overlap: for each (device, gradients), an event
        for i, own in minibatch.items():
            self.kernels(execution.store[i], execution.store[i].begin, own)
        for number, action in execution.actions[: execution.before_updates]:
            self._add(number, action)
        self._before_updates()
        for number, action in execution.actions[execution.before_updates :]:
            self._add(number, action)
        self._await_exchanges(execution.store)
        self.ends = [self._end(store) for store in execution.stores]

    def _end(self, store):
        return self.kernels(store, store.clear)

    def kernels(self, store, function, *args):
        """Submit work for the store's device that consists only of kernels and Python code; return the task."""
        return self.batch.chain(store.device, function, *args)

    def rows(self):
        """After the step: a row of numbers for each device, the loss and correct answers of each micro-batch, or 0.

        The last number is the one that the device's process gave as ``tell``. If several devices computed a
        micro-batch, each of them has its own numbers.
        """
        return [self._row(i, raw_result_to_host) for i in self.minibatch]

    def _row(self, i, to_host):
        """A device's row; ``to_host(array, device)`` copies the device's sums to the host."""
        row = [0.0] * (2 * len(self.examples)) + [self.tell]
        for m, sums in self.minibatch[i].sums.items():
            row[2 * m : 2 * m + 2] = to_host(sums, self.execution.store[i].device).tolist()
        return row

    def _before_updates(self):
        """Called at the same point of the step in all processes, when losses are known and nothing has been updated."""
        self._tell_others()
        if self.execution.mixed:
            self._agree()

    def _tell_others(self):
        """Do nothing: all devices are in this process."""

    def _add(self, number, action):
        """Add the plan's action ``number``, which involves devices of this process."""
        i = action.devices[0]
        if action.what == "collective":
            self._add_collective(number, action)
        elif action.what == "receive":
            self._add_receive(number, action)
        else:
            if action.what == "free":
                self._await_receipt(number, action)
            store = self.execution.store[i]
            numbers = (self.lr, sum(self.examples)) if action.what == "update" else ()
            if self.execution.overlap and self._begins_run(i, store, action):
                return
            self.kernels(store, self.do, store.do, action, *numbers)

    def _agree(self):
        """In mixed precision, find out whether all gradients are finite."""
        stores = self.execution.stores
        self._await_exchanges(self.execution.store)
        makers = [functools.partial(self._finite, store) for store in stores]
        gathered = self._gathered("gradients", 1, makers)
        for store, rows in zip(stores, gathered, strict=True):
            self.batch.chain(store.device, self.do, store.agree, rows)

    def _gathered(self, what, m, makers):
        """As `cluster.add_gather`."""
        return add_gather(self.batch, self.execution.everybody, m, makers)

    def _finite(self, store):
        return self.do(store.finite) or [0.0]

    def _add_receive(self, number, action):
        store, source = (self.execution.store[i] for i in action.devices)
        self.batch.wait(store.device, self.batch.record(source.device))
        record = note_transfer(source.device, store.device, self.bytes_of(action))
        copied = self.batch.submit(store.device, self.do, store.arrive, action.value, source, record)
        self.received.setdefault((action.value, action.devices[1]), []).append(copied)

    def _await_receipt(self, number, action):
        """Wait until a value that was sent has been received, before it is freed."""
        (i,) = action.devices
        for copied in self.received.pop((action.value, i), ()):
            self.batch.wait(self.execution.store[i].device, copied)

    def _add_collective(self, number, action):
        execution, (stores, queues) = self.execution, self._prepare(action)
        size, *placed = self._extent(action, stores[0])
        if execution.library and action.value[0] == "grads" and len(action.devices) == execution.plan.k:
            pairs = zip(stores, queues, strict=True)
            arrays = [DeviceArray(store.fixed[action.value], queue) for store, queue in pairs]
            add_allreduce(self.batch, arrays, find_algorithm(execution.library))
        elif size:
            arrays, dtype = Exchanged(self, stores, action), stores[0].dtype
            self._add_exchange(number, action, queues, arrays, size, dtype, *placed)
        self._note_exchange(action, queues)

    def _add_exchange(self, number, action, queues, arrays, size, dtype, first, unit):
        program = compiled(action.schedule, len(queues), needs_staging(queues, dtype), first, unit)
        add_exchange(self.batch, program, queues, arrays, size, dtype.itemsize)

    def _prepare(self, action):
        """Prepare the whole arrays for a collective.

        Returns, for each of its devices in this process, the `Store` and the queue in which the collective runs.
        """
        here, value = [i for i in action.devices if i in self.execution.store], action.value
        stores, queues = [self.execution.store[i] for i in here], []
        for i, store in zip(here, stores, strict=True):
            final = self.final.pop((i, value), None)
            if final is None:
                self.kernels(store, self.do, store.prepare, value)
            queues.append(store.device)
            if self._is_overlapped(action):
                queues[-1] = store.device.comm_stream
                self.batch.wait(queues[-1], final or self.batch.record(store.device))
        return stores, queues

    def _extent(self, action, store):
        """The size of a collective's flat arrays, and the arguments ``first`` and ``unit`` of `compiled`."""
        s = action.stage
        if action.value[0] in ("y", "dy"):
            size = self.bytes_of(action) // self.execution.dtype.itemsize
            return size, 0, size // store.units[s]
        start, stop = store.extent(action.value)
        return stop - start, start, 1

    def do(self, function, *args):
        """Do some work, unless a device has failed already; if the work fails, note its error. Runs on a device."""
        if self._has_failed():
            return None
        try:
            return function(*args)
        except BaseException as error:
            self.fail(error)
            raise

    def _has_failed(self):
        """Whether any device has failed, even outside the plan's actions, in a copy or a wait."""
        if self.execution.error is None:
            error = next((queue.failures.first for queue in self.execution.queues if queue.failures.first), None)
            if error is not None:
                self.fail(error)
        return self.execution.error is not None

    def fail(self, error):
        """Note a device's error."""
        with self._lock:
            self.execution.error = self.execution.error or error

    def bytes_of(self, action):
        """The bytes that a receive transfers."""
        return self.execution.sizes[action.stage].y(self.examples[action.micro_batch])


class Exchanged:
    """The plain arrays of a collective's devices: looked up only when used, since earlier work creates them."""

    def __init__(self, step, stores, action):
        self.step, self.stores, self.action = step, stores, action

    def __getitem__(self, i):
        if self.step.execution.error is not None:  # there may be no array
            raise self.step.execution.error
        return self.stores[i].exchanged(self.action.value)


@functools.lru_cache(maxsize=256)
def compiled(schedule, k, staged, first, unit):
    """The program of a schedule, for arrays that begin at the schedule's element ``first``.

    Each element of the schedule stands for ``unit`` elements of the arrays.
    """
    placed = tuple(
        tuple(t._replace(start=(t.start - first) * unit, stop=(t.stop - first) * unit) for t in step)
        for step in schedule
    )
    return compile_schedule(placed, k, staged)
