"""A task: work that was submitted to devices, its future result, and an event for other work to wait for.

An interrupt (Ctrl-C, a notebook's stop button, a signal's handler) may end or delay the host program between any two of
its instructions. If it held a lock at that moment, the device's worker would wait for the lock for ever. So a task has
no lock, unlike Python's futures: each change is a single call in C (an append, a release), in an order in which the
side that comes second finds what the first has done. A *bell* is a lock that a waiting thread has taken and tries to
take again, so that it sleeps; the worker rings the bell by releasing the lock, which wakes the thread:

    waiting thread    adds a bell            then looks whether the task is done      then sleeps until the bell rings
    worker            marks the task done    then rings the bells that are there
"""

import collections
import contextlib
import itertools
import logging
import threading
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures._base import FINISHED, PENDING, RUNNING

from .errors import DeviceError
from .workers import current_device, moment


class Task(Future):
    """The future result of work that was submitted to ``devices``; also the event that this work is done.

    It is a `Future`, so `concurrent.futures.wait` and asyncio can wait for it. But submitted work is always done:
    `cancel` never succeeds, and a program that stops waiting (in asyncio, for example) only does not get the result.

    A task without devices is a mere event, which the program completes by `set_result`. ``places``: the devices that a
    GPU's work after this waits for if this fails; they are ``devices`` unless given, as for a mere event.
    """

    asked = False  # whether the result was requested: then its caller gets the error, if there is one

    def __init__(self, devices=(), function=None, args=(), after=(), places=None):
        self._state, self._result, self._exception = PENDING, None, None
        self._waiters = []  # of `concurrent.futures.wait`
        self._done_callbacks, self._bells = collections.deque(), collections.deque()
        self.devices, self.function, self.args = devices, function, args
        self.places = devices if places is None else places
        self.submitted = moment()
        self.after = after  # events that must be done before it begins
        self.arrivals = itertools.count(1) if len(devices) > 1 else None  # counts the devices that have come to it

    def __repr__(self):
        places = ", ".join(map(str, self.devices))
        return f"<{'Task of ' + places if places else 'event'}: {self._state.lower()}>"

    # For the host program:

    def result(self, timeout=None):
        """Wait for the work, then return what it returned or raise what it raised.

        Raises TimeoutError if it is not done after ``timeout`` seconds.
        """
        if (error := self.exception(timeout)) is None:
            return self._result
        try:
            raise error
        finally:
            del self, error  # otherwise the error would keep this frame alive, and the frame the error

    def exception(self, timeout=None):
        """Wait for the work, then return what it raised, or None."""
        self.asked = True
        if not self.wait(timeout):
            raise FutureTimeoutError(f"{self!r}: not done after {timeout} seconds")
        if self._exception is not None:
            for device in self.devices:
                device.failures.forget(self)
        return self._exception

    def wait(self, timeout=None):
        """Wait until the work is done or has failed, but at most ``timeout`` seconds; returns whether it has ended."""
        if self.done():
            return True
        if current_device() in self.devices:
            raise DeviceError(f"work running on {current_device()} waits for work that comes after it: {self!r}")
        bell = threading.Lock()
        bell.acquire()
        self._bells.append(bell)
        if not self.done():
            self.wake()
            if not bell.acquire(timeout=-1 if timeout is None else max(0, timeout)):
                with contextlib.suppress(ValueError):  # the worker has just removed it, to ring it
                    self._bells.remove(bell)
        return self.done()

    def done(self):
        """Whether the work is done."""
        return self._state == FINISHED

    def running(self):
        """Whether the work is being done."""
        return self._state == RUNNING

    def cancel(self):
        """Always False: submitted work cannot be cancelled."""
        return False

    def cancelled(self):
        """Always False: no task is ever cancelled."""
        return False

    def add_done_callback(self, function):
        """Call ``function(task)`` when the work is done: on the device's thread, or at once if it is done already."""
        self._done_callbacks.append(function)
        if self.done():
            self._call_back()

    def set_result(self, result):
        """Complete a mere event. Raises InvalidStateError for a device's work, and for an event that is done."""
        self._check_event()
        self.finish(result)

    def set_exception(self, exception):
        """Complete a mere event with an error. Raises InvalidStateError as `set_result` does."""
        self._check_event()
        self.finish(None, exception)

    def _check_event(self):
        if self.devices or self.done():
            raise InvalidStateError(f"{self!r}: only an event's result is set by hand, and only once")

    # For devices:

    @property
    def error(self):
        """What the work has raised so far, or None. Unlike `exception`, this neither waits nor requests the result."""
        return self._exception

    @property
    def value(self):
        """What the work has returned, or None if it is not done, without waiting."""
        return self._result

    def begin(self):
        """The work begins."""
        self._state = RUNNING

    def finish(self, result, error=None):
        """Mark the work as done, let go of its arguments, and wake every thread that waits."""
        self.function = self.args = None
        self.after = ()
        self._result, self._exception = result, error
        self._state = FINISHED
        for bell in drained(self._bells):
            bell.release()
        self._call_back()
        if "_own_condition" in vars(self):
            threading.Thread(target=self._tell_waiters, name="d2lmgpu", daemon=True).start()

    def abandon(self, error):
        """In a forked process, where the work will never be done: mark it as failed, without any callback."""
        self._done_callbacks.clear()
        self.function = self.args = None
        self._exception, self._state = error, FINISHED

    def wake(self):
        """Make sure that workers are at work on this task's devices, or on those that they wait for."""
        for device in self.devices:
            device.wake(self)

    def _call_back(self):
        for function in drained(self._done_callbacks):
            try:
                function(self)
            except BaseException as error:
                if current_device() is None and not isinstance(error, Exception):
                    raise  # an interrupt of the host program
                ignored = Exception if current_device() is None else BaseException
                with contextlib.suppress(ignored):  # a handler of the log may fail, too
                    logging.getLogger("d2lmgpu").exception("a callback of %r failed", self)

    @property
    def _condition(self):
        """The lock that `concurrent.futures.wait` and the like hold while they add themselves to ``_waiters``.

        It is made when first asked for.
        """
        return vars(self).setdefault("_own_condition", threading.Condition())

    def _tell_waiters(self):
        """Runs on a thread of its own: an interrupted `concurrent.futures.wait` may still hold the lock."""
        with self._condition:
            for waiter in self._waiters:
                (waiter.add_result if self._exception is None else waiter.add_exception)(self)


def drained(items):
    """Take the items of a deque from the left until it is empty; several threads may do so at the same time."""
    while True:
        try:
            item = items.popleft()
        except IndexError:
            return
        yield item


HAPPENED = Task()
"""An event that is done already."""
HAPPENED.finish(None)
