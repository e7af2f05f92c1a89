"""A device is a place: it has its own memory and its own queue of work.

    host program --run()--> queue of cpu(0) --> its thread   --> its arrays
                 --run()--> queue of gpu(1) --> its thread   --> its stream --> its arrays

The host program submits work and goes on; work of one device happens in the
order of submission, work of different devices at the same time. A result is
waited for with ``task.result()``, a whole device with ``synchronize()``.
Functions that run *on* a device touch that device's arrays only: everything
between devices is issued by the host program.
"""

import contextlib
import queue
import threading
import time
import weakref
from concurrent.futures import Future

import numpy as np

from .array import check_device, unwrap, wrap
from .errors import DeviceError

_this_thread = threading.local()


def current_device():
    """The device whose queue this thread works through, or None on the host program's threads."""
    return getattr(_this_thread, "device", None)


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
    """What ``cpu(i)`` and ``gpu(i)`` have in common: a name, a thread and a queue.

    Compare devices with ``is``: the same index always gives the same object.
    """

    kind = None
    clock_is_late = False  # whether readings of the clock are known only when the work is done

    def __init__(self, index):
        self.index = index
        self.main = self  # of a channel: the device whose memory it shares
        self._queue = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._last = lambda: None  # a weak reference to the task submitted last
        self._awaited = []  # events that the next task waits for
        self._pending = 0  # tasks submitted and not yet done
        self._turn = threading.Lock()  # held by whoever does this device's work
        self._failed = []
        self._buffers = {}
        self._channel = None
        threading.Thread(target=self._work, name=str(self), daemon=True).start()
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
        check_device(self, (args, kwargs), getattr(function, "__name__", "run"))
        args, kwargs = unwrap(args), unwrap(kwargs)
        return self.submit(lambda: wrap(self.compute(function, args, kwargs), self))

    def submit(self, function, *args):
        """Submit work on *plain* arrays: what `run` and the transfers are made of."""
        task = Task()
        inside = current_device()
        if inside is self:
            self._execute(task, function, args)
        elif inside is not None:
            raise DeviceError(
                f"work running on {inside} tried to use {self}. Functions on a device use its own "
                "arrays only; let the host program issue transfers and other devices' work."
            )
        else:
            with self._lock:
                self._queue.put((task, function, args, self._awaited))
                self._awaited = []
                self._pending += 1
                self._last = weakref.ref(task)  # weak: a result must not live longer for our sake
        return task

    def synchronize(self):
        """Wait until all work submitted so far is done; raise the error of a task nobody waited for."""
        synchronize([self])

    def record(self):
        """An event that happens when all work submitted here so far is done."""
        return self._last() or _HAPPENED

    def wait(self, event):
        """Let work submitted here from now on start only after ``event`` (of any device).

        The host program goes on at once. Each event comes from work submitted
        earlier, so devices that wait for each other cannot form a circle.
        """
        with self._lock:
            self._awaited.append(event)

    def _work(self):
        _this_thread.device = self
        while True:
            item = self._queue.get()
            with self._turn:
                self._execute(*item)
            del item  # or its arrays would live until the next work arrives

    def _execute(self, task, function, args, awaited=None):
        """Do a task; ``awaited`` is None for work that comes from this device's own thread, not from the queue."""
        try:
            for event in awaited or ():
                self.await_event(event)
            result, error = function(*args), None
        except BaseException as caught:
            result, error = None, caught
            self._failed.append(task)
        if awaited is not None:
            with self._lock:
                self._pending -= 1
        if error is None:
            task.set_result(result)
        else:
            task.set_exception(error)

    def buffer(self, name, size, dtype):
        """A plain array of ``size`` elements in this device's memory, for results that are soon used up.

        Each call with the same name gives the same memory, which grows when it
        must: the contents last until the next work that asks for it by name.
        """
        dtype = np.dtype(dtype)
        nbytes = size * dtype.itemsize
        buffer = self._buffers.get(name)
        if buffer is None or buffer.nbytes < nbytes:
            buffer = self._buffers[name] = self.empty(nbytes, np.uint8)
        return buffer[:nbytes].view(dtype)

    @property
    def channel(self):
        """A second queue on the same memory, for exchanging results while the device computes."""
        if self._channel is None:
            self._channel = self._make_channel()
            self._channel.main = self
        return self._channel

    # What differs between the kinds:

    def _set_up(self):
        """First work of the thread."""

    def compute(self, function, args, kwargs):
        """Called on this device's thread: do a function of plain arrays of this device."""
        return function(*args, **kwargs)

    def start_clock(self):
        """Called on this device's thread: what `read_clock` needs."""

    def clock(self):
        """Called on this device's thread: a reading that says when the work so far is done."""
        return time.perf_counter()

    def _finish(self):
        """Last work before `synchronize` returns."""

    def is_idle(self):
        """Whether all work submitted so far is done."""
        with self._lock:
            return self._pending == 0 and all(event.done() for event in self._awaited)

    def await_event(self, event):
        """Called on this device's thread: what follows happens after ``event``."""
        event.exception()  # returns when the task is done, well or badly

    def mark(self):
        """Called on this device's thread: a mark of the work done so far; a CPU needs none."""

    def await_mark(self, mark):
        """Called on this device's thread: what follows happens after another device's mark."""


def synchronize(devices):
    """Wait until every device has done all its work; raise the first error of a task nobody waited for."""
    ends = [device.submit(device._finish) for device in devices if not device.is_idle()]
    for end in ends:
        end.result()
    errors = [task.exception() for device in devices for task in device._failed if not task.asked]
    for device in devices:
        device._failed.clear()
    if errors:
        raise errors[0]


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
            # Give up rather than wait: the turn may be held by work that waits for a device whose turn is ours.
            if not device.is_idle() or not device._turn.acquire(timeout=0.001):
                break
            turns.callback(device._turn.release)
        else:
            if all(device.is_idle() for device in devices):
                yield True
                return
    yield False
