"""Try fast methods before they are used; if one fails, a note says why, and a slower method is used.

A card may be too old, a driver too new, a cable missing. Code with a fast method tries it once, through `probe`, which
remembers the outcome and prints a note about a failure. `probes` lists all outcomes.
"""

import sys
import threading
import time
from typing import NamedTuple

from ..base.text import one_line


class Probe(NamedTuple):
    """What came of a try on a device, or between two: whether it ``works``, ``why`` not, the ``seconds`` it took."""

    device: str
    tried: str
    works: bool
    why: str | None
    seconds: float


_probes = {}
_turns = {}  # a lock for each probe, so that threads wait only for the one that they need


def probe(device, tried, instead, attempt):
    """Return whether ``attempt()`` succeeds: called once for each ``device`` (a name) and ``tried`` (what is tried).

    Any exception is a failure: a note on standard error then says why, and what is done ``instead``. None: there is no
    other way, so after a failure the next call tries again.
    """
    key = device, tried
    with _turns.setdefault(key, threading.Lock()):
        found = _probes.get(key)
        if found is None or (instead is None and not found.works):
            begin, why = time.perf_counter(), None
            try:
                attempt()
            except Exception as error:  # whatever the error, this method is not used
                why = one_line(error)
                warn(f"{device}: {tried}: does not work here ({why}); {instead or 'there is no other way'}")
            found = _probes[key] = Probe(device, tried, why is None, why, time.perf_counter() - begin)
        return found.works


def warn(message):
    """Print a note on standard error."""
    print(f"note: {message}", file=sys.stderr)


def probes():
    """The latest `Probe` of each device and of each thing tried there, in the order in which they were first tried."""
    return list(_probes.values())


def forget_probes():
    """Forget all outcomes, so that everything is tried again."""
    _probes.clear()
