"""Errors of work that nobody has asked for yet: remembered until somebody does, and told to whoever comes next."""

import builtins
import collections
import contextlib
import traceback

from ..arguments import check_list, shown
from .errors import one_line
from .task import drained
from .trials import tell

GROUP = getattr(builtins, "BaseExceptionGroup", ())  # since Python 3.11
LEADS = (
    BaseException.__traceback__,
    BaseException.__cause__,
    BaseException.__context__,
)  # not what a class makes of them
MOST = 100
"""Errors that are remembered for a device; only the first is ever raised."""


class Failures:
    """A device's failed tasks whose results nobody waited for."""

    def __init__(self):
        self._tasks = collections.deque()  # with their errors

    def enter(self, task, error):
        """Called by a worker: ``task`` is about to fail with ``error``.

        The frames of an error hold the arrays that it came up with, so only the first error keeps them.
        """
        if task.asked or len(self._tasks) >= MOST:
            return
        if self._tasks:
            clear_frames(error)
        self._tasks.append((task, error))

    def forget(self, task):
        """Somebody has asked for the task."""
        for entry in list(self._tasks):
            if entry[0] is task:
                with contextlib.suppress(ValueError):  # another thread was faster
                    self._tasks.remove(entry)

    def take(self):
        """The errors, which are then forgotten."""
        return [error for task, error in drained(self._tasks) if not task.asked]

    def look(self, since):
        """Raise the first error of work that was submitted after the `moment` ``since``, and forget it.

        Older errors are not those of who looks: they stay.
        """
        for task, error in self._tasks.copy():
            if task.submitted > since and not task.asked:
                self.forget(task)
                raise error


def clear_frames(error):
    """Let go of the local variables of all functions that an error came through, and those that led to it.

    They may lead to each other in a circle.
    """
    errors, seen = [error], set()
    while errors:
        error = errors.pop()
        if error is not None and id(error) not in seen:
            seen.add(id(error))
            trace, *causes = (attribute.__get__(error) for attribute in LEADS)
            traceback.clear_frames(trace)
            errors += causes
            if isinstance(error, GROUP):
                errors += GROUP.exceptions.__get__(error)


def synchronize(devices):
    """Wait until every device has done all its work; raise the first error of a task nobody waited for.

    Raises ValueError for what are no devices.
    """
    devices = check_list("synchronize: devices", devices, of="devices, such as [cpu(0), cpu(1)]")
    for device in devices:
        if not hasattr(device, "failures"):
            raise ValueError(f"synchronize: {shown(device)} is no device; make one with cpu(i), gpu(i) or try_gpu(i)")
    for error in _settled(devices):
        raise error


def _settled(devices):
    """Wait for the devices; the errors nobody asked for, which are then forgotten."""
    for end in [device.end() for device in devices]:
        end.wait()
    return [error for device in devices for error in device.failures.take()]


@contextlib.contextmanager
def nothing_left_behind(devices):
    """Keep what happens in the ``with`` block apart from what was before and what comes after.

    Errors of earlier work that nobody asked for are told in a line each, and are not
    raised in the block. After an error in it the devices are waited for, and what
    else failed on them because of it is forgotten.
    """
    for error in _settled(devices):
        tell(f"earlier work failed, and nobody asked for its result: {one_line(error)}")
    try:
        yield
    except BaseException:
        _settled(devices)  # the first error is told already
        raise
