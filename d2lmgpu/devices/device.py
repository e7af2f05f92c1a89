"""A device is a place: it has its own memory and its own queue of work.

    host program --run()--> queue of cpu(0) --> a thread     --> its arrays
                 --run()--> queue of gpu(1) --> its thread   --> its stream --> its arrays

The host program submits work and goes on; work of one device happens in the
order of submission, work of different devices at the same time. A result is
waited for with ``task.result()``, a whole device with ``synchronize()``.
Functions that run *on* a device touch that device's arrays only: everything
between devices is issued by the host program.
"""

import collections
import contextlib
import threading
import time
import weakref
from concurrent.futures import Future

import numpy as np

from .array import unwrap, wrap
from .errors import DeviceError
from .workers import current_device


class Task(Future):
    """The future result of work that was submitted to a device; also the event that this work is done."""

    asked = False

    def result(self, timeout=None):
        """Wait for the work, then return what it returned or raise what it raised."""
        self.asked = True
        return super().result(timeout)


_HAPPENED = Task()
_HAPPENED.set_result(None)


class Device:
    """What ``cpu(i)`` and ``gpu(i)`` have in common: a name and a queue, through which ``workers`` work.

    Compare devices with ``is``: the same index always gives the same object.
    """

    kind = None
    clock_is_late = False  # whether readings of the clock are known only when the work is done

    def __init__(self, index, workers):
        self.index = index
        self.main = self  # of a channel: the device whose memory it shares
        self.ledger = None
        self._workers = workers
        self._queue = collections.deque()
        self._lock = threading.Lock()
        self._busy = False  # whether somebody does this device's work, or is going to
        self._last = lambda: None  # a weak reference to the task submitted last
        self._awaited = []  # events that the next task waits for
        self._failed = []
        self._buffers = {}
        self._channel = None
        workers.join()
        self.submit(self._set_up).result()

    def __repr__(self):
        return f"{self.kind}({self.index})" + ("" if self.main is self else " channel")

    def run(self, function, *args, **kwargs):
        """Submit ``function(*args, **kwargs)`` to this device and return its `Task` at once.

        Device arrays among the arguments (also inside lists, tuples and dicts)
        must live here. The function receives them as plain NumPy or CuPy arrays,
        and the arrays that it returns become device arrays again.

        Raises DeviceMismatchError if an argument is an array of another place.
        """
        args, kwargs = unwrap((args, kwargs), self, getattr(function, "__name__", "run"))
        return self.submit(lambda: wrap(function(*args, **kwargs), self))

    def submit(self, function, *args):
        """Submit work on *plain* arrays: what `run` and the transfers are made of."""
        task = Task()
        inside = current_device()
        if inside is self:
            self._finish_task(task, *self._outcome((), function, args))
        elif inside is not None:
            raise DeviceError(
                f"work running on {inside} tried to use {self}. Functions on a device use its own "
                "arrays only; let the host program issue transfers and other devices' work."
            )
        else:
            with self._lock:
                self._queue.append((task, self._awaited, function, args))
                self._awaited = []
                self._last = weakref.ref(task)  # weak: a result must not live longer for our sake
                was_busy, self._busy = self._busy, True
            if not was_busy:
                self._workers.serve(self)
        return task

    def synchronize(self):
        """Wait until all work submitted so far is done; raise the error of a task nobody waited for."""
        synchronize([self])

    def take_failures(self):
        """The errors of tasks that nobody waited for, which are then forgotten."""
        failed, self._failed = self._failed, []
        return [task.exception() for task in failed if not task.asked]

    def raise_failures(self):
        """Raise the first error of a task that nobody waited for, if there is one."""
        for error in self.take_failures():
            raise error

    def record(self):
        """An event that happens when all work submitted here so far is done."""
        if self._awaited:
            return self.submit(self.mark)
        return self._last() or _HAPPENED

    def wait(self, event):
        """Let work submitted here from now on start only after ``event`` (of any device).

        The host program goes on at once. Each event comes from work submitted
        earlier, so devices that wait for each other cannot form a circle.
        """
        with self._lock:
            self._awaited.append(event)

    def work(self):
        """Called by a worker: do the next task. Returns whether there is another that can be done now."""
        task, awaited, function, args = self._queue[0]
        for event in awaited:
            if not event.done():
                event.add_done_callback(lambda event: self._workers.serve(self))
                return False
        outcome = self._outcome(awaited, function, args)
        self._queue.popleft()
        more = self._has_more()
        self._finish_task(task, *outcome)  # last: who waits for it may find the device idle
        return more

    def _has_more(self):
        with self._lock:
            self._busy = bool(self._queue)
            return self._busy

    def _outcome(self, awaited, function, args):
        try:
            self.prepare()
            for event in awaited:
                self.await_event(event)
            return function(*args), None
        except BaseException as error:
            return None, error

    def _finish_task(self, task, result, error):
        if error is None:
            task.set_result(result)
        else:
            self._failed.append(task)
            task.set_exception(error)

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
        if self._channel is None:
            self._channel = self._make_channel()
            self._channel.main, self._channel.ledger = self, self.ledger
        return self._channel

    # What differs between the kinds:

    def _set_up(self):
        """First work of the thread."""

    def start_clock(self):
        """Called on this device's thread: what `read_clock` needs."""

    def clock(self):
        """Called on this device's thread: a reading that says when the work so far is done."""
        return time.perf_counter()

    def finish(self):
        """Called on this device's thread: wait until what it launched is done, which on a CPU it is."""

    def is_idle(self):
        """Whether all work submitted so far is done."""
        with self._lock:
            return self._is_idle()

    def _is_idle(self):
        return not self._busy and all(event.done() for event in self._awaited)

    def take(self):
        """Try to become the one who does this device's work; to be followed by `give_back` if that succeeds."""
        with self._lock:
            idle = self._is_idle()
            self._busy = self._busy or idle
            return idle

    def give_back(self):
        """Leave the work to the workers again, also what was submitted meanwhile."""
        if self._has_more():
            self._workers.serve(self)

    def prepare(self):
        """Called by the worker before each piece of work."""

    def await_event(self, event):
        """Called on this device's thread when ``event`` has happened: for a stream to wait for its mark."""

    def mark(self):
        """Called on this device's thread: a mark of the work done so far; a CPU needs none."""

    def await_mark(self, mark):
        """Called on this device's thread: what follows happens after another device's mark."""


def synchronize(devices):
    """Wait until every device has done all its work; raise the first error of a task nobody waited for."""
    ends = [device.submit(device.finish) for device in devices if not device.is_idle()]
    for end in ends:
        end.exception()  # waits
    errors = [error for device in devices for error in device.take_failures()]  # of these ends, too
    if errors:
        raise errors[0]


@contextlib.contextmanager
def nothing_left_behind(devices):
    """After an error in the ``with`` block, wait for the devices, and forget what else failed on them because of it."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):  # the first error is told already
            synchronize(devices)
        raise


@contextlib.contextmanager
def take_turns(devices):
    """Try to do work of virtual devices on the calling thread: yields whether that is allowed.

    It is if all are CPU devices with nothing to do. Waking a thread takes longer
    than a short piece of work; order is kept, since whatever is submitted
    meanwhile waits for the end of the ``with`` block.
    """
    if current_device() is not None or any(device.kind != "cpu" for device in devices):
        yield False
        return
    with contextlib.ExitStack() as turns:
        for device in devices:
            if not device.take():
                break
            turns.callback(device.give_back)
        else:
            yield True
            return
    yield False
