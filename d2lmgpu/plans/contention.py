"""Contention: devices that compute at the same time slow each other down if they share memory and cores.

While n devices compute, each computation runs at 1/contention[n] of the speed that it has alone. So a computation that
takes ``cost`` alone ends when the integral of its speed since its beginning reaches ``cost``. But which devices compute
at the same time depends in turn on when computations end. So the plan is simulated again and again, until the slowdown
that results is the one that was assumed. Each time, the assumption moves half way towards the result; moving it all the
way would often lead to cycles.
"""

import numpy as np

MOST_ROUNDS, CLOSE = 50, 1e-6


def slowed(timed, contention):
    """By which factor each computation is slowed down: a dict {(number of the step, computation): factor}.

    ``timed(factors)`` returns the events of the computations with these factors. Raises ValueError unless
    ``contention`` begins with 1.
    """
    if contention[0] != 1:
        raise ValueError("contention begins with 1: a device that computes alone is not slowed down")
    factors = {}
    for _ in range(MOST_ROUNDS):
        found = _factors([event for event in timed(factors) if event.end > event.start], contention)
        if all(abs(found[key] - factors.get(key, 1)) <= CLOSE for key in found):
            return found
        factors = {key: (factors.get(key, 1) + found[key]) / 2 for key in found}
    return factors


def _factors(events, contention):
    """For each computation, the mean factor during its run."""
    if not events:
        return {}
    starts, ends = (np.array([getattr(event, name) for event in events]) for name in ("start", "end"))
    times = np.unique([*starts, *ends])
    busy = np.searchsorted(np.sort(starts), times, "right") - np.searchsorted(np.sort(ends), times, "right")
    speed = 1 / np.array([1, *contention])[np.minimum(busy, len(contention))]
    done = np.concatenate([[0], np.cumsum(speed[:-1] * np.diff(times))])  # the work of a computation that always runs
    factors = (ends - starts) / (np.interp(ends, times, done) - np.interp(starts, times, done))
    return {(event.step, event.action): factor for event, factor in zip(events, factors.tolist(), strict=True)}
