"""What the program relies on is tried before it is relied upon; what does not work is named, and something slower used.

A card may be too old, a driver too new, a cable missing. Who finds a fast way tries it once, through `works`, which
remembers the outcome, tells it in one line if it is a failure, and lists all of them in `trials`.
"""

import contextlib
import sys
import threading
import time
from typing import NamedTuple

from .errors import one_line
from .forks import in_forked_process


class Trial(NamedTuple):
    """Something that was tried on a device, or between two: ``works``, or ``why`` not; ``seconds`` that it took."""

    device: str
    tried: str
    works: bool
    why: str | None
    seconds: float


_trials = {}
_turns = {}  # a lock for each: whoever asks for what is being tried waits, and nobody else
_lock = threading.Lock()  # of both
_silent = False


@in_forked_process
def _begin_anew():
    """Whoever held a lock is a thread of the parent's."""
    global _lock
    _lock = threading.Lock()
    _turns.clear()


def works(device, tried, instead, attempt):
    """Whether ``attempt()`` succeeds, tried once for each ``device`` (a name) and ``tried`` (what is tried).

    It fails by raising anything; then one line on standard error says why, and what is done ``instead``. Where there
    is nothing else to do (None), it is tried again the next time.
    """
    key = device, tried
    with _lock:
        turn = _turns.setdefault(key, threading.Lock())
    with turn:
        trial = _trials.get(key)
        if trial is None or (instead is None and not _silent and not trial.works):
            trial = _try(device, tried, instead, attempt)
            with _lock:
                _trials[key] = trial
        return trial.works


def _try(device, tried, instead, attempt):
    begin, why = time.perf_counter(), None
    try:
        attempt()
    except Exception as error:  # whatever it is: this way is not taken
        why = one_line(error)
        if not _silent:
            tell(f"{device}: {tried}: does not work here ({why}); {instead or 'there is no other way'}")
    return Trial(device, tried, why is None, why, time.perf_counter() - begin)


def tell(message):
    """One line on standard error."""
    print(f"note: {message}", file=sys.stderr)


@contextlib.contextmanager
def all_again():
    """Try everything again within the ``with`` block, without notes on failures."""
    global _silent
    forget_trials()
    _silent = True
    try:
        yield
    finally:
        _silent = False


def trials():
    """All that was tried so far, in order."""
    with _lock:
        return list(_trials.values())


def forget_trials():
    """Let everything be tried again."""
    with _lock:
        _trials.clear()
