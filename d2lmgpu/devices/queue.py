"""The queue of a device: its tasks in the order of submission, done one after the other by workers.

    idle ── wake ──► in line ── a worker calls work ──► at work ── no task is left ──► idle
                        ▲                                │ ▲  │
                        │ wake, when it is done          │ └──┘ the next task
                        └────────── waiting ◄────────────┘
                                    the next task must wait for an event

    state      its tasks    a worker           ``_waits_for``
    idle       none         none               None
    in line    some         is called for      None, or an event that is done
    at work    some         holds ``_turn``    None
    waiting    some         none               the event

The host program only appends to the queue, in one call in C, and then calls for a worker. An interrupt between the two
does no harm: waiting for a task calls for a worker again. Everything else is done by worker threads, which no interrupt
reaches: Python handles signals in its main thread only.
"""

import collections
import threading

from .batch import bind, do_inside, nothing
from .task import DONE, Failures, Task
from .workers import use_devices


class Queue:
    """The part of a device that takes submitted work, and lets workers do it."""

    def __init__(self, workers):
        use_devices()
        self.failures = Failures()
        self._workers = workers
        self.tasks = collections.deque()  # each is removed only when it is done
        self._turn = threading.Lock()  # held by the worker that is at work here; the host program never takes it
        self._waits_for = None  # the event that the first task waits for
        workers.join()

    def run(self, function, *args, **kwargs):
        """Submit ``function(*args, **kwargs)`` to this device and return its `Task` at once.

        Device arrays among the arguments (even inside lists, tuples and dicts) must be on this device. The function
        receives them as plain NumPy or CuPy arrays, and the arrays that it returns become device arrays again.

        Raises DeviceMismatchError if an argument is an array on another device or on the host.
        """
        return self.submit(bind(self, function, args, kwargs))

    def submit(self, function, *args, after=()):
        """Submit a function of *plain* arrays; return its `Task`. `run` and the transfers are built on this.

        ``after``: events that must come first.
        """
        task = Task((self,), function, args, after)
        if not do_inside((self,), task):
            self.tasks.append(task)
            self.wake()
        return task

    def wait(self, event):
        """Let work submitted here from now on start only after ``event``, a `Task` of any device.

        The host program continues at once. Devices cannot wait for each other in a circle, as an event belongs to work
        that was submitted earlier, or is one that the program completes.

        Raises TypeError for anything that is not a `Task`.
        """
        if not isinstance(event, Task):
            raise TypeError(f"wait: {event!r} is no event; allowed is a Task, as run, submit and record return it")
        self.submit(nothing, after=(event,))

    def record(self):
        """A `Task` that completes when all work submitted here so far is done: the last one submitted."""
        try:
            last = self.tasks[-1]
        except IndexError:
            return DONE
        self.wake()  # in case an interrupt came between its submission and the call for a worker
        return last

    def wake(self, task=None):
        """Call for a worker, unless one is at work here or all is done. Any thread may do so, any number of times.

        If this device waits for an event, the devices of that event are woken instead, unless the event is the ``task``
        that calls this.
        """
        event = self._waits_for
        if not self.tasks or self._turn.locked():  # the holder of _turn looks again after releasing it
            return
        if event is None or event.done():
            self._workers.serve(self)
        elif event is not task:
            event.wake()

    # For workers:

    def work(self):
        """Called by a worker: do the next task, unless it must wait. Returns whether the worker should call again."""
        if not self._turn.acquire(blocking=False):
            return False
        try:
            if self.tasks and self._may_begin(task := self.tasks[0]):
                self.do(task)
        finally:
            self._turn.release()
        return bool(self.tasks) and (self._waits_for is None or self._waits_for.done())

    def _may_begin(self, task):
        """Whether the next task can begin. If not, the device now waits, or the task was done already and is gone."""
        if task.done():  # joint work of several devices, done by a worker of another one
            self.tasks.popleft()
            self._waits_for = None
            return False
        for event in task.after:
            if not event.done():
                return self._look_again_after(event)
        # Joint work begins when the last of its devices has reached it; the others wait for it.
        if task.arrivals is not None and (self._waits_for is task or next(task.arrivals) < len(task.devices)):
            return self._look_again_after(task)
        self._waits_for = None
        return True

    def _look_again_after(self, event):
        """Let the device wait for ``event``, which wakes it. Returns False: the next task cannot begin."""
        if self._waits_for is not event:
            self._waits_for = event
            event.add_done_callback(lambda event: self.wake())
            event.wake()
        return False

    def do(self, task):
        """Do a task. It is marked as done last of all, so a thread that waited for it finds it gone from the queue."""
        result, task.error = self._outcome(task)
        try:
            if task.error is not None:
                for device in task.devices:
                    device.failures.keep(task)
        finally:
            if self.tasks and self.tasks[0] is task:  # work that runs here does what it submits outside the queue
                self.tasks.popleft()
            task.finish(result, task.error)

    def _outcome(self, task):
        """Do the work; return its result and its error. An error in what comes before the work counts as its own."""
        try:
            self.prepare()
            for event in task.after:
                self.await_event(event)
            return (None if task.errors else task.function(*task.args)), None
        except BaseException as error:
            if task.errors is not None:
                task.errors.append(error)
            return None, error

    # What the kinds of device add:

    def prepare(self):
        """Called by the worker before each piece of work."""

    def await_event(self, event):
        """Called by the worker when ``event`` is done; a GPU's stream then waits for the event's mark."""
