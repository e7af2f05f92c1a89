"""The queue of a device: its tasks in the order of submission, done one after the other by workers.

    idle ── wake ──► in line ── a worker calls work ──► at work ── no task is left ──► idle
                        ▲                                │ ▲  │
                        │ wake, when it has happened     │ └──┘ the next task
                        └────────── waiting ◄────────────┘
                                    the next task comes after an event

    state      its tasks    a worker        ``_waits_for``
    idle       none         none            None
    in line    some         will come       None, or an event that has happened
    at work    some         has the turn    None
    waiting    some         none            the event

The host program only appends to the queue, in one call in C, and then calls for a worker. An interrupt between the two
does no harm: waiting for a task calls again. Everything else is done by workers, which no interrupt reaches.
"""

import collections
import threading

from . import forks
from .batch import bind, check_event, is_inside, nothing
from .failures import Failures
from .task import HAPPENED, Task


class Queue:
    """What a device is to the program that submits work, and to the workers that do it."""

    def __init__(self, workers):
        self.failures = Failures()
        self._workers = workers
        self._begin()
        workers.join(self)
        forks.renew(self)

    def _begin(self):
        self.tasks = collections.deque()  # the first stays there until it is done
        self._turn = threading.Lock()  # held by the worker that is at work here; only workers take it
        self._waits_for = None  # the event that the first task waits for

    def run(self, function, *args, **kwargs):
        """Submit ``function(*args, **kwargs)`` to this device and return its `Task` at once.

        Device arrays among the arguments (also inside lists, tuples and dicts) must be on this device. The function
        receives them as plain NumPy or CuPy arrays, and the arrays that it returns become device arrays again.

        Raises DeviceMismatchError if an argument is an array of another place.
        """
        return self.submit(*bind(self, function, args, kwargs))

    def submit(self, function, *args):
        """Submit work on *plain* arrays, from which `run` and the transfers are built; returns its `Task`."""
        return self._submit(function, args)

    def wait(self, event):
        """Let work submitted here from now on start only after ``event``, a `Task` of any device.

        The host program goes on at once. Each event comes from work submitted earlier, so devices cannot wait for each
        other in a circle.

        Raises TypeError for anything that is not a `Task`.
        """
        self._submit(nothing, (), (check_event(event),))

    def _submit(self, function, args, after=()):
        task = Task((self,), function, args, after)
        if not is_inside((self,), task):
            self.tasks.append(task)
            self.wake()
        return task

    def record(self):
        """An event that happens when all work submitted here so far is done."""
        try:
            last = self.tasks[-1]
        except IndexError:
            return HAPPENED
        self.wake()
        return last

    def wake(self, task=None):
        """Call for a worker, unless one is at work here or all is done. Any thread may do so, at any time and again.

        A device that is itself waiting wakes the devices of the event it waits for, unless that is the ``task`` which
        calls this.
        """
        event = self._waits_for
        if not self.tasks or self._turn.locked():  # the worker that has the turn looks again after giving it back
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
        if task.done():  # for all its devices, by a worker of another one
            self.tasks.popleft()
            self._waits_for = None
            return False
        for event in task.after:
            if not event.done():
                return self._look_again_after(event)
        if task.arrivals is not None:  # it begins when it is the next task of all its devices
            if self._waits_for is task or next(task.arrivals) < len(task.devices):
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
        """Do a task, and mark it as done last of all, so that a thread that waits for it may find the device idle."""
        task.begin()
        result, error = self._outcome(task.after, task.function, task.args)
        try:
            if error is not None:
                for device in task.devices:
                    device.failures.enter(task, error)
        finally:
            if self.tasks and self.tasks[0] is task:  # not if it was submitted by work that runs here
                self.tasks.popleft()
            task.finish(result, error)

    def _outcome(self, awaited, function, args):
        try:
            self.prepare()
            for event in awaited:
                self.await_event(event)
            return function(*args), None
        except BaseException as error:
            return None, error

    def after_fork(self):
        """In a forked process, which has none of the parent's threads: start anew. Returns the tasks not done."""
        tasks = list(self.tasks)
        self._begin()
        self.failures = Failures()
        return tasks

    # What the kinds of device add:

    def prepare(self):
        """Called by the worker before each piece of work."""

    def await_event(self, event):
        """Called by the worker when ``event`` has happened; a GPU's stream then waits for the event's mark."""
