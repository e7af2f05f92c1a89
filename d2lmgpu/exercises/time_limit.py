"""A limit of time for code of this process, such as a function from a notebook's cell."""

import contextlib
import ctypes
import signal
import threading
import time

from ..arguments import is_number, shown

SECONDS = 60.0
"""The time that an answer may take unless another limit is given: the course's need less than a second."""

AGAIN = 1.0  # seconds until code that caught the exception gets another


class TimeIsUp(BaseException):
    """Raised in code that takes too long; no Exception, so that ``except Exception`` does not keep it."""


def check_seconds(seconds):
    """``seconds``, or ValueError unless they are a limit: more than 0, and a day at most."""
    if not is_number(seconds) or not 0 < seconds <= 86_400:
        raise ValueError(f"a limit of {shown(seconds)} seconds; it should be more than 0, and 86400 (a day) at most")
    return seconds


@contextlib.contextmanager
def time_limit(seconds):
    """Raise `TimeIsUp` within the ``with`` block after so many seconds, and at its end if it took longer; None: never.

    On the main thread of Linux and macOS this wakes code that sleeps or waits, too. Elsewhere only Python's own steps
    are interrupted: code that waits goes on until it has what it waits for.
    """
    if seconds is None:
        yield
        return
    stop = time.monotonic() + seconds
    in_main = threading.current_thread() is threading.main_thread()
    with _by_signal(seconds) if in_main and hasattr(signal, "setitimer") else _by_thread(seconds):
        yield
    if time.monotonic() > stop:  # the code caught all exceptions
        raise TimeIsUp


@contextlib.contextmanager
def _by_signal(seconds):
    def raise_it(*_):
        raise TimeIsUp

    former = signal.signal(signal.SIGALRM, raise_it)
    try:  # twice, since the alarm may interrupt what comes after the block, too
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


@contextlib.contextmanager
def _by_thread(seconds):
    thread, over = ctypes.c_ulong(threading.get_ident()), threading.Event()
    raise_there = ctypes.pythonapi.PyThreadState_SetAsyncExc

    def watch():
        wait = seconds
        while not over.wait(wait):
            raise_there(thread, ctypes.py_object(TimeIsUp))
            wait = AGAIN

    watcher = threading.Thread(target=watch, daemon=True)
    try:
        try:
            watcher.start()
            yield
        finally:
            over.set()
    finally:
        over.set()
        watcher.join()
        for _ in range(2):  # where what was raised arrives at the latest; to take it back (with None) would leave
            pass  # Python 3.11 looking for it for ever, in which it hangs as soon as somebody traces (a debugger)
