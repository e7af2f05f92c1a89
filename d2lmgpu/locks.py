"""Locks, which let only one program at a time, and only one of its threads, write a result file.

While a file ``NAME`` is being written, there is a file ``.NAME.lock`` beside it. The operating system releases the lock
when its holder ends, for whatever reason. If a killed program has left the lock file, the next program that writes
``NAME`` takes it over and removes it.
"""

import contextlib
import errno
import os
import threading
import time
from pathlib import Path

from .devices import in_forked_process
from .devices.packages import optional

fcntl, _ = optional("fcntl")  # which Windows does not have
msvcrt, _ = optional("msvcrt")  # which only Windows has; in a browser both are missing, but nothing else writes there

PATIENCE = 3.0
"""Seconds to wait while another program or thread is writing a result to the same file."""

STREAMS = ("/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/self/fd/")
"""Paths that are written to and never replaced, even if they stand for a file."""

_held = {}  # for each file that is held: the thread, and the open file that has the lock


@contextlib.contextmanager
def holding(path, patience=0.0):
    """Within the ``with`` block, only this thread writes to ``path``; if it is None, there is nothing to lock.

    Raises OSError if another program or thread holds the lock for more than ``patience`` seconds. It does nothing on
    systems and file systems without locks.
    """
    path = None if path is None else target(path)
    is_mine = path in _held and _held[path][0] == threading.get_ident()
    if path is None or is_stream(path) or is_mine or (fcntl is None and msvcrt is None):
        yield
        return
    lock = _wait_for_lock(path, time.monotonic() + patience)
    _held[path] = threading.get_ident(), lock
    try:
        yield
    finally:
        if _held.get(path, (None, None))[1] is lock:  # in a process forked within the block, the lock is the parent's
            del _held[path]
            if fcntl is None:  # Windows cannot remove an open file
                lock.close()
            with contextlib.suppress(OSError):
                beside(path, "lock").unlink()
            lock.close()  # elsewhere, a program that has just opened it finds that it no longer has a name


@in_forked_process
def _hold_nothing():
    """Leave the parent's locks with the parent: otherwise both could write, and a lock could outlive its holder."""
    for _, lock in _held.values():
        lock.close()
    _held.clear()


def _wait_for_lock(path, end):
    """An open file that has the lock. Unlike a bare descriptor, it gets closed even if an interrupt drops it."""
    while True:
        with naming(path):
            lock = open(beside(path, "lock"), "ab", buffering=0)
        locked = _lock(lock.fileno())
        if locked and os.fstat(lock.fileno()).st_nlink:
            return lock
        lock.close()
        if not locked and time.monotonic() >= end:
            raise OSError(f"cannot write {path}: another run is writing it; wait until it ends, or give another name")
        time.sleep(0 if locked else 0.01)  # locked without a name: its last holder has just removed it


def _lock(descriptor):
    """Whether the lock was taken; also true if this file system has no locks."""
    try:
        if fcntl is None:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EACCES, errno.EAGAIN)
    return True


@contextlib.contextmanager
def naming(path):
    """Make an OSError within the ``with`` block say which file could not be written."""
    try:
        yield
    except OSError as error:
        named = type(error)(f"cannot write {path}: {error.strerror or error}")
        named.errno = error.errno
        raise named from error


def beside(path, ending):
    """The hidden file ``.NAME.ending``."""
    return path.with_name(f".{path.name}.{ending}")


def target(path):
    """The absolute path of the file or folder that ``path`` names, or links to, whether it exists or not.

    Raises OSError for a relative path if the current folder was deleted.
    """
    try:
        return Path(path) if str(path).startswith(STREAMS) else Path(os.path.realpath(path))
    except OSError:
        raise FileNotFoundError(
            f"{path}: the current folder no longer exists; change to another one, or give a path that begins with /"
        ) from None


def is_stream(path):
    """Whether ``path`` is written to and never replaced."""
    path = target(path)
    return str(path).startswith(STREAMS) or (path.exists() and not path.is_file() and not path.is_dir())
