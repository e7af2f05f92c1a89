"""Devices that compute at the same time slow each other, where they share a machine's memory and cores: contention.

If n devices compute, each computation goes on at 1/contention[n] of its speed alone. So a computation that takes
``cost`` alone ends when that speed, summed over the time since it began, has come to ``cost``. Which devices compute at
the same time depends on when all others end. So the plan is gone through again and again, until the contention that is
found is the one that was assumed. Each time what is assumed goes half the way to what was found: all the way, it would
often go round in a circle.
"""

import numpy as np

MOST_ROUNDS, CLOSE = 50, 1e-6


def slowed(timed, contention):
    """How many times as long each computation takes: {(number of the step, computation): factor}.

    ``timed(factors)`` gives the events of computations with such factors. ValueError unless ``contention`` begins with
    1.
    """
    if contention[0] != 1:
        raise ValueError("contention begins with 1: a device that computes alone takes what it costs")
    factors = {}
    for _ in range(MOST_ROUNDS):
        found = _factors([event for event in timed(factors) if event.end > event.start], contention)
        if all(abs(found[key] - factors.get(key, 1)) <= CLOSE for key in found):
            return found
        factors = {key: (factors.get(key, 1) + found[key]) / 2 for key in found}
    return factors


def _factors(events, contention):
    """For each computation the factor over its time."""
    if not events:
        return {}
    starts, ends = (np.array([getattr(event, name) for event in events]) for name in ("start", "end"))
    times = np.unique([*starts, *ends])
    busy = np.searchsorted(np.sort(starts), times, "right") - np.searchsorted(np.sort(ends), times, "right")
    speed = 1 / np.array([1, *contention])[np.minimum(busy, len(contention))]
    done = np.concatenate([[0], np.cumsum(speed[:-1] * np.diff(times))])  # by a computation that goes on all the time
    factors = (ends - starts) / (np.interp(ends, times, done) - np.interp(starts, times, done))
    return {(event.step, event.action): factor for event, factor in zip(events, factors.tolist(), strict=True)}
