"""Locks: only one program at a time, and only one of its threads, writes a result file.

Beside a file ``NAME`` that is being written lies ``.NAME.lock``. The operating system releases the lock when its holder
ends, in whatever way. A file that a killed program has left is taken over, and removed, by the next that writes
``NAME``.
"""

import contextlib
import errno
import os
import threading
import time
from pathlib import Path

from .devices import in_forked_process

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None
try:
    import msvcrt
except ImportError:  # anywhere else; in a browser both are missing, and nobody else writes
    msvcrt = None

PATIENCE = 3.0
"""Seconds for which to wait while another program or thread writes a result to the file."""

STREAMS = ("/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/self/fd/")
"""What these names stand for is written to, and never replaced, even if it is a file."""

_held = {}  # files that are held: by which thread, and the open file that has the lock


@contextlib.contextmanager
def holding(path, patience=0.0):
    """Within the ``with`` block only this thread writes to ``path``; for None there is nothing to lock.

    Raises OSError if another program or thread holds the lock for longer than ``patience`` seconds. On a system, or a
    file system, without locks it does nothing.
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
        if _held.get(path, (None, None))[1] is lock:  # in a process that was forked in the block it is the parent's
            del _held[path]
            if fcntl is None:  # Windows removes no open file
                lock.close()
            with contextlib.suppress(OSError):
                beside(path, "lock").unlink()
            lock.close()  # elsewhere a program that has just opened it finds that it no longer has a name


@in_forked_process
def _hold_nothing():
    """The parent's locks stay with the parent: else both would write, and a lock would outlive its holder."""
    for _, lock in _held.values():
        lock.close()
    _held.clear()


def _wait_for_lock(path, end):
    """An open file that has the lock. Unlike a bare descriptor it is also closed if an interrupt loses it."""
    while True:
        with naming(path):
            lock = open(beside(path, "lock"), "ab", buffering=0)
        locked = _lock(lock.fileno())
        if locked and os.fstat(lock.fileno()).st_nlink:
            return lock
        lock.close()
        if not locked and time.monotonic() >= end:
            raise OSError(f"cannot write {path}: another run is writing it; wait for its end, or give another name")
        time.sleep(0 if locked else 0.01)  # locked without a name: its last holder has just removed it


def _lock(descriptor):
    """Whether the lock was taken, or this file system has no locks."""
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
    """Let an OSError within the ``with`` block say which file could not be written."""
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
    """The file itself where ``path`` is a link to it."""
    return Path(path) if str(path).startswith(STREAMS) else Path(os.path.realpath(path))


def is_stream(path):
    """Whether it is written to, and never replaced."""
    path = target(path)
    return str(path).startswith(STREAMS) or (path.exists() and not path.is_file() and not path.is_dir())
