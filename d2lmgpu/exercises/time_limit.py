"""A time limit for code in this process, such as a function from a notebook's cell."""

import contextlib
import ctypes
import signal
import threading
import time

from ..arguments import is_number, plain, shown
from ..in_a_tab import IN_A_TAB

SECONDS = 60.0
"""How many seconds an answer may take, unless another limit is given; the course's own answers need less than one."""

AGAIN = 1.0  # seconds until the exception is raised again, in code that has caught it


class TimeIsUp(BaseException):
    """Raised in code that takes too long. ``except Exception`` does not catch it."""


def check_seconds(seconds):
    """Return ``seconds``. Raises ValueError unless this can be a limit: more than 0, and at most a day."""
    if not is_number(seconds) or not 0 < seconds <= 86_400:
        raise ValueError(f"a limit of {shown(seconds)} seconds; it should be more than 0, and 86400 (a day) at most")
    return plain(seconds)


@contextlib.contextmanager
def time_limit(seconds):
    """Raise `TimeIsUp` in the ``with`` block after so many seconds, or at its end if it took longer. None means no
    limit.

    On Linux and macOS, in the main thread, this also interrupts code that sleeps or waits. Elsewhere the exception
    arrives only between two steps of Python code, not while code waits. In a browser's tab nothing interrupts the code;
    the page has a button for that.
    """
    if seconds is None or IN_A_TAB:
        yield
        return
    stop = time.monotonic() + seconds
    in_main = threading.current_thread() is threading.main_thread()
    begin, end = _by_signal(seconds) if in_main and hasattr(signal, "setitimer") else _by_thread(seconds)
    try:  # twice, since the limit may interrupt the inner finally, too
        try:
            begin()
            yield
        finally:
            end()
    finally:
        end()
    if time.monotonic() > stop:  # the code has caught the exception, or waited where it could not be interrupted
        raise TimeIsUp


def _by_signal(seconds):
    def raise_it(*_):
        raise TimeIsUp

    def begin():
        signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)

    def end():
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)

    former = signal.signal(signal.SIGALRM, raise_it)
    return begin, end


def _by_thread(seconds):
    thread, over = ctypes.c_ulong(threading.get_ident()), threading.Event()
    raise_there = ctypes.pythonapi.PyThreadState_SetAsyncExc

    def watch():
        wait = seconds
        while not over.wait(wait):
            raise_there(thread, ctypes.py_object(TimeIsUp))
            wait = AGAIN

    def end():
        over.set()
        watcher.join()
        _let_it_arrive()

    watcher = threading.Thread(target=watch, daemon=True)
    return watcher.start, end


def _let_it_arrive():
    """Do nothing. When a function is called, Python delivers an exception that another thread raised in this one.

    Without this call it might arrive after the block, in code that has no limit.
    """
