"""A device is a place: it has its own memory and its own queue of work.

    host program --run()--> queue of cpu(0) --> a thread     --> its arrays
                 --run()--> queue of gpu(1) --> its thread   --> its stream --> its arrays

The host program submits work and goes on; work of one device happens in the
order of submission, work of different devices at the same time. A result is
waited for with ``task.result()``, a whole device with ``synchronize()``.
Functions that run *on* a device touch that device's arrays only: everything
between devices is issued by the host program.

The host program only ever appends to the queue, in one call in C, and then calls
for a worker. An interrupt between the two does no harm: whoever waits for a task
calls again. All else is done by workers, which no interrupt reaches.
"""

import collections
import threading
import time

import numpy as np

from . import forks
from .batch import bind, check_event, is_inside, nothing
from .failures import Failures, synchronize
from .task import HAPPENED, Task


class Device:
    """What ``cpu(i)`` and ``gpu(i)`` have in common: a name and a queue, through which ``workers`` work.

    Compare devices with ``is``: the same index always gives the same object.
    """

    kind = None
    clock_is_late = False  # whether readings of the clock are known only when the work is done
    gone = None  # why the device cannot be used any more

    def __init__(self, index, workers):
        self.index = index
        self.main = self  # of a channel: the device whose memory it shares
        self.ledger = None
        self.failures = Failures()
        self._workers = workers
        self._buffers = {}
        self.is_set_up = False
        self._begin()
        workers.join(self)
        forks.renew(self)

    def _begin(self):
        self.queue = collections.deque()  # tasks; the first stays there until it is done
        self._turn = threading.Lock()  # held by the worker that is at work here; only workers take it
        self._waits_for = None  # the event that is not done and that the first task waits for

    def __repr__(self):
        return f"{self.kind}({self.index})" + ("" if self.main is self else " channel")

    def run(self, function, *args, **kwargs):
        """Submit ``function(*args, **kwargs)`` to this device and return its `Task` at once.

        Device arrays among the arguments (also inside lists, tuples and dicts)
        must live here. The function receives them as plain NumPy or CuPy arrays,
        and the arrays that it returns become device arrays again.

        Raises DeviceMismatchError if an argument is an array of another place.
        """
        return self.submit(*bind(self, function, args, kwargs))

    def submit(self, function, *args):
        """Submit work on *plain* arrays: what `run` and the transfers are made of."""
        return self._submit(function, args)

    def wait(self, event):
        """Let work submitted here from now on start only after ``event``, a `Task` of any device.

        The host program goes on at once. Each event comes from work submitted
        earlier, so devices that wait for each other cannot form a circle.

        Raises TypeError for anything that is no `Task`.
        """
        self._submit(nothing, (), (check_event(event),))

    def _submit(self, function, args, after=()):
        task = Task((self,), function, args, after)
        if not is_inside((self,), task):
            self.queue.append(task)
            self.wake()
        return task

    def record(self):
        """An event that happens when all work submitted here so far is done."""
        try:
            last = self.queue[-1]
        except IndexError:
            return HAPPENED
        self.wake()
        return last

    def end(self):
        """An event that happens when all that was submitted or launched here so far is done."""
        return self.record()

    def synchronize(self):
        """Wait until all work submitted so far is done; raise the error of a task nobody waited for."""
        synchronize([self])

    def wake(self, task=None):
        """Call for a worker, unless one is here or all is done. Anybody may do so at any time, more than once.

        ``task``: somebody waits for it. If this device waits itself, whom it waits for is woken.
        """
        event = self._waits_for
        if not self.queue or self._turn.locked():  # who has the turn looks again after giving it back
            return
        if event is None or event.done():
            self._workers.serve(self)
        elif event is not task:
            event.wake()

    # For workers:

    def work(self):
        """Called by a worker: do the next task, unless that must wait. Returns whether to call again."""
        if not self._turn.acquire(blocking=False):
            return False
        try:
            if self.queue and self._may_begin(task := self.queue[0]):
                self.do(task)
        finally:
            self._turn.release()
        return bool(self.queue) and (self._waits_for is None or self._waits_for.done())

    def _may_begin(self, task):
        if task.done():  # by a worker of another of its devices
            self.queue.popleft()
            self._waits_for = None
            return False
        for event in task.after:
            if not event.done():
                return self._look_again_after(event)
        if task.arrivals is not None and (
            self._waits_for is task or next(task.arrivals) < len(task.devices)
        ):  # one of its devices has not got there yet
            return self._look_again_after(task)
        self._waits_for = None
        return True

    def _look_again_after(self, event):
        if self._waits_for is not event:
            self._waits_for = event
            event.add_done_callback(lambda event: self.wake())
            event.wake()
        return False

    def do(self, task):
        """Do a task, and tell of it last: who waits for it may find the device idle."""
        task.begin()
        result, error = self._outcome(task.after, task.function, task.args)
        try:
            if error is not None:
                for device in task.devices:
                    device.failures.enter(task, error)
        finally:
            if self.queue and self.queue[0] is task:  # not if it belongs to other work
                self.queue.popleft()
            task.finish(result, error)

    def _outcome(self, awaited, function, args):
        try:
            self.prepare()
            for event in awaited:
                self.await_event(event)
            return function(*args), None
        except BaseException as error:
            return None, error

    def set_up(self):
        """Have the first work of this device's thread done, unless it is; returns the device."""
        if not self.is_set_up:
            self.submit(self._set_up_once).result()
        return self

    def _set_up_once(self):
        if not self.is_set_up:
            self._set_up()
            self.is_set_up = True

    def after_fork(self):
        """In a forked process, which has none of the parent's threads: begin anew. Returns tasks that are not done."""
        tasks = list(self.queue)
        self._begin()
        self.failures = Failures()
        return tasks

    # Memory:

    def buffer(self, name, size, dtype):
        """A plain array of ``size`` elements in this device's memory, for results that are soon used up.

        Each call with the same name and dtype gives the same memory, which grows
        when it must: the contents last until the next work that asks for it.
        """
        key = name, np.dtype(dtype)
        buffer = self._buffers.get(key)
        if buffer is None or buffer.size < size:
            buffer = self._buffers[key] = self.empty(size, dtype)
            if self.kind == "cpu":
                buffer.fill(0)  # after an error elsewhere it may be summed as it is: no garbage, of which NumPy warns
        return buffer[:size]

    @property
    def channel(self):
        """A second queue on the same memory, for exchanging results while the device computes."""
        if "_channel" not in vars(self):
            channel = self._make_channel()
            channel.main, channel.ledger = self, self.ledger
            vars(self).setdefault("_channel", channel)
        return self._channel.set_up()

    # What differs between the kinds:

    def _set_up(self):
        """First work of the thread."""

    def start_clock(self):
        """Called on this device's thread: what `read_clock` needs."""

    def clock(self):
        """Called on this device's thread: a reading that says when the work so far is done."""
        return time.perf_counter()

    def finish(self):
        """Wait until what was launched here is done, which on a CPU it is."""

    def prepare(self):
        """Called by the worker before each piece of work."""

    def await_event(self, event):
        """Called on this device's thread when ``event`` has happened: for a stream to wait for its mark."""

    def mark(self):
        """Called on this device's thread: a mark of the work done so far; a CPU needs none."""

    def await_mark(self, mark):
        """Called on this device's thread: what follows happens after another device's mark."""
