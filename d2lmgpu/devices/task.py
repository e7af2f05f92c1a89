"""A task: work that was submitted to devices, its result to come, and the event that it is done.

An interrupt (Ctrl-C, a notebook's ■, a signal's handler) may end or delay the host
program between any two of its instructions. Were it to hold a lock at that moment,
the device's worker would wait for that lock for ever. So a task has none, unlike
Python's futures: whatever a thread does to it is a single call in C (an append, a
release), after which either side finds what the other has done.

    who waits     adds a bell      then looks whether it is done      then sleeps until the bell rings
    who works     marks it done    then rings the bells that are there
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

    What was submitted is done: `cancel` never succeeds, and who stops waiting for a result (in asyncio, for example)
    only does without it. A task of no devices is an event that somebody brings about with `set_result`.
    ``places`` are the devices whose work it marks the end of, which an event may have, too.
    """

    asked = False  # whether somebody has waited for the result, so that an error is told

    def __init__(self, devices=(), function=None, args=(), after=(), places=None):
        self._state, self._result, self._exception = PENDING, None, None
        self._waiters = []  # of `concurrent.futures.wait`
        self._done_callbacks, self._bells = collections.deque(), collections.deque()
        self.devices, self.function, self.args = devices, function, args
        self.places = devices if places is None else places
        self.submitted = moment()
        self.after = after  # events before which it does not begin
        self.arrivals = itertools.count(1) if len(devices) > 1 else None  # of devices that have come to it

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
            del self, error  # else the error would hold this frame, and that the error

    def exception(self, timeout=None):
        """Wait for the work, then return what it raised, or None."""
        self.asked = True
        if not self.wait(timeout):
            raise FutureTimeoutError(f"{self!r} after {timeout} seconds")
        if self._exception is not None:
            for device in self.devices:
                device.failures.forget(self)
        return self._exception

    def wait(self, timeout=None):
        """Wait until the work is done, however it ends, or for ``timeout`` seconds. Returns whether it is done."""
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
                with contextlib.suppress(ValueError):  # it rings just now
                    self._bells.remove(bell)
        return self.done()

    def done(self):
        """Whether the work is done."""
        return self._state == FINISHED

    def running(self):
        """Whether it is being done."""
        return self._state == RUNNING

    def cancel(self):
        """False: work that was submitted is done in its turn."""
        return False

    def cancelled(self):
        """False, likewise."""
        return False

    def add_done_callback(self, function):
        """Call ``function(task)`` when the work is done: on the device's thread, or now if it is done already."""
        self._done_callbacks.append(function)
        if self.done():
            self._call_back()

    def set_result(self, result):
        """Bring about an event. Raises InvalidStateError for a device's work, whose result is what it returns."""
        self._check_event()
        self.finish(result)

    def set_exception(self, exception):
        """Bring about an event that is an error, likewise."""
        self._check_event()
        self.finish(None, exception)

    def _check_event(self):
        if self.devices or self.done():
            raise InvalidStateError(f"{self!r}: its result is not set by hand, and not twice")

    # For devices:

    @property
    def error(self):
        """What the work has raised, or None: a look at it, after which it still counts as not asked for."""
        return self._exception

    @property
    def value(self):
        """What the work has returned, likewise."""
        return self._result

    def begin(self):
        """The work is being done from now on."""
        self._state = RUNNING

    def finish(self, result, error=None):
        """The work is done: lets go of what it was given, and tells everybody who waits."""
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
        """In a forked process, where nobody will ever do the work: it has failed, and nobody is told."""
        self._done_callbacks.clear()
        self.function = self.args = None
        self._exception, self._state = error, FINISHED

    def wake(self):
        """See to it that somebody is at work on what this waits for."""
        for device in self.devices:
            device.wake(self)

    def _call_back(self):
        for function in drained(self._done_callbacks):
            try:
                function(self)
            except BaseException as error:
                if current_device() is None and not isinstance(error, Exception):
                    raise  # an interrupt of the host program
                with contextlib.suppress(
                    Exception if current_device() is None else BaseException
                ):  # of a log's handler
                    logging.getLogger("d2lmgpu").exception("a callback of %r failed", self)

    @property
    def _condition(self):
        """What `concurrent.futures.wait` and its like lock while they enter themselves in ``_waiters``."""
        return vars(self).setdefault("_own_condition", threading.Condition())

    def _tell_waiters(self):
        """Runs on a thread of its own, since whoever was interrupted in `concurrent.futures.wait` may hold the lock."""
        with self._condition:
            for waiter in self._waiters:
                (waiter.add_result if self._exception is None else waiter.add_exception)(self)


def drained(items):
    """Take the items of a deque from its left until there are none; several threads may do so at a time."""
    while True:
        try:
            item = items.popleft()
        except IndexError:
            return
        yield item


HAPPENED = Task()
HAPPENED.finish(None)
