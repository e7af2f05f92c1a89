"""Devices that compute at the same time slow each other, where they share a machine's memory and cores: contention.

If n devices compute, each computation goes on at 1/contention[n] of its speed alone. So a computation that takes
``cost`` alone ends when that speed, summed over the time since it began, has come to ``cost``. Which devices compute at
the same time depends on when all others end. So the plan is gone through again and again, until the contention that is
found is the one that was assumed. Each time what is assumed goes half the way to what was found: all the way, it would
often go round in a circle.
"""

import numpy as np

from ..language.plan import COMPUTES
from .order import order

MOST_ROUNDS, CLOSE = 50, 1e-6


def slowed(plan, timing, contention):
    """How many times as long each computation takes: {(device, action): factor}.

    ``timing(factors)`` is the timing of `order` with such factors. ValueError unless ``contention`` begins with 1.
    """
    if contention[0] != 1:
        raise ValueError("contention begins with 1: a device that computes alone takes what it costs")
    factors = {}
    for _ in range(MOST_ROUNDS):
        found = _factors(list(order(plan, timing(factors))), contention)
        if all(abs(found[key] - factors.get(key, 1)) <= CLOSE for key in found):
            return found
        factors = {key: (factors.get(key, 1) + found[key]) / 2 for key in found}
    return factors


def _factors(events, contention):
    """For each computation the factor over its time."""
    computed = [event for event in events if event.action.what in (*COMPUTES, "update") and event.end > event.start]
    if not computed:
        return {}
    starts, ends = (np.sort([getattr(event, name) for event in computed]) for name in ("start", "end"))
    times = np.unique([*starts, *ends])
    busy = np.searchsorted(starts, times, "right") - np.searchsorted(ends, times, "right")
    speed = 1 / np.array([1, *contention])[np.minimum(busy, len(contention))]
    done = np.concatenate([[0], np.cumsum(speed[:-1] * np.diff(times))])  # by a computation that goes on all the time
    return {
        (event.devices[0], event.action): float((event.end - event.start) / (at_end - at_start))
        for event, at_start, at_end in zip(
            computed,
            np.interp([event.start for event in computed], times, done),
            np.interp([event.end for event in computed], times, done),
            strict=True,
        )
    }
