"""Errors of tasks whose results were never requested: kept, and raised by the next `synchronize` or `to_host`.

The end of a `record_transfers` block raises them, too.
"""

import collections
import contextlib

from ..base.text import one_line
from .probes import warn
from .task import drained

MAX_ERRORS = 10
"""How many errors are kept for a device: each keeps the arrays alive of the functions through which it passed."""


class Failures:
    """A device's failed tasks whose results were not requested."""

    def __init__(self):
        self._tasks = collections.deque()

    def enter(self, task):
        """Called by a worker: ``task`` has failed and is about to be marked as done."""
        if not task.error_claimed and len(self._tasks) < MAX_ERRORS:
            self._tasks.append(task)

    def forget(self, task):
        """Drop the task's error, because the task's result has been requested or the error is being raised."""
        with contextlib.suppress(ValueError):  # it is not there, or another thread has already removed it
            self._tasks.remove(task)

    def take(self):
        """Return the errors and forget them."""
        return [task.error for task in drained(self._tasks) if not task.error_claimed]

    def look(self, since):
        """Raise the first error of work that was submitted after the `moment` ``since``, if any, and forget it.

        Errors of earlier work stay for `synchronize`: they cannot have spoilt what the caller reads.
        """
        for task in self._tasks.copy():
            if task.submitted > since and not task.error_claimed:
                self.forget(task)
                raise task.error


def finish(devices):
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
