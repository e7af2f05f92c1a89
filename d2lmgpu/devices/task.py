"""A task: work that was submitted to devices, its future result, and an event for other work to wait for.

An interrupt (Ctrl-C, a notebook's stop button, a signal's handler) may end or delay the host program between any two of
its instructions. If it held a lock at that moment, the device's worker would wait for the lock for ever. So a task has
no lock, unlike Python's futures: each change is a single call in C (an append, a release), and the order of the calls
ensures that the side that comes second finds what the first has done. A *bell* is a lock that a waiting thread has
taken and tries to take again, so that it sleeps; the worker rings the bell by releasing the lock, which wakes the
thread:

    waiting thread    adds a bell            then looks whether the task is done      then sleeps until the bell rings
    worker            marks the task done    then rings the bells that are there

An error is raised once: by the task's `result` if the program asks for it, otherwise by the next `synchronize`, by
`to_host` of an array that it may have spoilt, or by the end of a `record_transfers` block. Until then the device keeps
the task in its `Failures`.
"""

import collections
import contextlib
import itertools
import threading

from ..base.text import one_line
from .errors import DeviceError
from .probes import warn
from .workers import THREADS, check_not_forked, current_device, moment, no_threads


class Task:
    """The future result of work that was submitted to ``devices``; also the event that this work is done.

    Submitted work is always done: nothing can take it back. ``value`` is what the work has returned, and ``error`` what
    it has raised; both are None before. Reading them neither waits for the result nor requests it.

    A task without devices is a mere event, which the program completes by `finish`. ``places``: if the task fails, work
    that waits for it waits until these devices have done what they have launched (`GPU.await_event`); by default
    ``devices``. ``errors``: a `Batch`'s list, to which an error is added; with an error in it, no work begins.
    """

    def __init__(self, devices=(), function=None, args=(), after=(), places=None, errors=None):
        self.value = self.error = None
        self._is_done = False
        self._callbacks, self._bells = collections.deque(), collections.deque()
        self.devices, self.function, self.args = devices, function, args
        self.places = devices if places is None else places
        self.submitted = moment()
        self.after = after  # events that must be done before it begins
        self.errors = errors
        self.error_claimed = errors is not None  # whether its caller, who asks for the result, gets the error, if any
        self.arrivals = itertools.count(1) if len(devices) > 1 else None  # counts the devices that have reached it

    def __repr__(self):
        places = ", ".join(map(str, self.devices))
        return f"<{'Task of ' + places if places else 'event'}: {'done' if self._is_done else 'not done'}>"

    # For the host program:

    def result(self, timeout=None):
        """Wait for the work, then return what it returned or raise what it raised.

        Raises TimeoutError if it is not done after ``timeout`` seconds.
        """
        if (error := self.exception(timeout)) is None:
            return self.value
        try:
            raise error
        finally:
            del self, error  # otherwise the error would keep this frame alive, and the frame the error

    def exception(self, timeout=None):
        """Wait for the work, then return what it raised, or None."""
        self.error_claimed = True
        if not self.wait(timeout):
            raise TimeoutError(f"{self!r} after {timeout} seconds")
        if self.error is not None:
            for device in self.devices:
                device.failures.forget(self)
        return self.error

    def wait(self, timeout=None):
        """Wait until the work is done or has failed, but at most ``timeout`` seconds; return whether it has ended."""
        if self._is_done:
            return True
        check_not_forked()
        if current_device() in self.devices:
            raise DeviceError(f"work running on {current_device()} waits for work that comes after it: {self!r}")
        if not THREADS:
            return self._catch_up(timeout)
        bell = threading.Lock()
        bell.acquire()
        self._bells.append(bell)
        if not self._is_done:
            self.wake()
            if not bell.acquire(timeout=-1 if timeout is None else max(0, timeout)):
                with contextlib.suppress(ValueError):  # the worker has just removed it, to ring it
                    self._bells.remove(bell)
        return self._is_done

    def _catch_up(self, timeout):
        """`wait` without threads: do all that can be done now. A task that is not done then never will be."""
        self.wake()
        no_threads.catch_up()
        if not self._is_done and timeout is None:
            raise DeviceError(
                f"{self!r} is waited for, but will never be done: without threads nothing else runs meanwhile; what it "
                "waits for must be submitted, or its event completed (finish), before the wait"
            )
        return self._is_done

    def done(self):
        """Whether the work is done."""
        return self._is_done

    # For devices:

    def add_done_callback(self, function):
        """Call ``function(task)`` when the work is done: on the device's thread, or at once if it is done already.

        ``function`` must not fail.
        """
        self._callbacks.append(function)
        if self._is_done:
            self._call_back()

    def finish(self, value, error=None):
        """Mark the work as done, let go of its arguments, and wake every thread that waits."""
        self.function = self.args = None
        self.after = ()
        self.value, self.error = value, error
        self._is_done = True
        for bell in drained(self._bells):
            bell.release()
        self._call_back()

    def wake(self):
        """Make sure that workers are at work on this task's devices, or on those that they wait for."""
        for device in self.devices:
            device.wake(self)

    def _call_back(self):
        for function in drained(self._callbacks):
            function(self)


def drained(items):
    """Take the items of a deque from the left until it is empty; several threads may do so at the same time."""
    while True:
        try:
            item = items.popleft()
        except IndexError:
            return
        yield item


DONE = Task()
"""An event that is done already."""
DONE.finish(None)


MAX_ERRORS = 10
"""How many errors are kept for a device: each keeps the arrays alive of the functions through which it passed."""


class Failures:
    """A device's failed tasks whose results were not requested."""

    def __init__(self):
        self._tasks = collections.deque()

    def keep(self, task):
        """Keep the task, which has failed. A worker calls this just before it marks the task as done."""
        if not task.error_claimed and len(self._tasks) < MAX_ERRORS:
            self._tasks.append(task)

    def forget(self, task):
        """Drop the task's error, because the task's result has been requested or the error is being raised."""
        with contextlib.suppress(ValueError):  # it is not there, or another thread has already removed it
            self._tasks.remove(task)

    def take(self):
        """Return the errors and forget them."""
        return [task.error for task in drained(self._tasks) if not task.error_claimed]

    def raise_since(self, since):
        """Raise the first error of work that was submitted after the `moment` ``since``, if any, and forget it.

        Errors of earlier work stay for `synchronize`: they cannot have spoilt what the caller reads.
        """
        for task in self._tasks.copy():
            if task.submitted > since and not task.error_claimed:
                self.forget(task)
                raise task.error


def wait_and_raise(devices):
    """Wait until every device has done all its work; raise the first error not yet raised, and forget the others."""
    for error in _settled(devices):
        raise error


def _settled(devices):
    """Wait for the devices; return the errors of tasks whose results were not requested, and forget them."""
    for end in [device.end() for device in devices]:
        end.wait()
    return [error for device in devices for error in device.failures.take()]


@contextlib.contextmanager
def isolated_errors(devices):
    """Keep the errors of the ``with`` block apart from those before and after it.

    Errors of earlier work that have not been raised are printed, one line each, and not raised in the block. If the
    block fails, this waits for the devices and forgets all other errors of their work.
    """
    queues = [queue for device in devices for queue in device.queues()]
    for error in _settled(queues):
        warn(f"earlier work failed, and nobody asked for its result: {one_line(error)}")
    try:
        yield
    except BaseException:
        _settled(queues)  # forgets their errors: the block's own is raised below
        raise
