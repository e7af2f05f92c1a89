"""Devices that compute at the same time slow each other, where they share a machine's memory and cores.

If n devices compute, each computation goes on at 1/company[n] of its speed alone. So what takes ``cost`` alone ends
when that speed, over the time since it began, has come to ``cost``. But who computes beside whom depends on when all
others end. So the plan is walked again and again, each time with the company of the time before, until that stays.
"""

import numpy as np

from ..arguments import check_list, check_number
from .plan import COMPUTES
from .walk import walk

MOST_ROUNDS, CLOSE = 50, 1e-6


def check_company(company):
    """The factors as a list. Raises ValueError unless it begins with 1, and none is less."""
    company = check_list("company", company, of="factors, for 1, 2, … devices that compute")
    for factor in company:
        check_number("company: a factor", factor, least=1)
    if not company or company[0] != 1:
        raise ValueError("company begins with 1: a device that computes alone takes what it costs")
    return company


def slowed(plan, timing, company):
    """How many times as long each computation takes: {(device, action): factor}.

    ``timing(factors)`` is the timing of `walk` with such factors.
    """
    factors = {}
    for number in range(MOST_ROUNDS):
        found = _factors(list(walk(plan, timing(factors))), company)
        if all(abs(found[key] - factors.get(key, 1)) <= CLOSE for key in found):
            break
        part = 1 if number < MOST_ROUNDS // 2 else 0.5  # if it goes round in a circle, the middle
        factors = {key: factors.get(key, 1) + part * (found[key] - factors.get(key, 1)) for key in found}
    return factors


def _factors(events, company):
    """For each computation the factor over its time."""
    computed = [event for event in events if event.action.what in (*COMPUTES, "update") and event.end > event.start]
    if not computed:
        return {}
    starts, ends = (np.sort([getattr(event, name) for event in computed]) for name in ("start", "end"))
    times = np.unique([*starts, *ends])
    busy = np.searchsorted(starts, times, "right") - np.searchsorted(ends, times, "right")
    speed = 1 / np.array([1, *company])[np.minimum(busy, len(company))]
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
