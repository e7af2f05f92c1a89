"""Measure how long something takes, repeatedly, and find the constants that explain such times.

The functions to compare, the contenders, take turns. Each has one turn per round, so a drift in the machine's speed
affects all alike. The first round is a warm-up (memory is allocated, kernels are compiled) and does not count:

    round 0    a    b    c    not counted
    round 1    a    b    c
    round 2    a    b    c
"""

import time

import numpy as np

MIN_REPEATS, MAX_REPEATS = 5, 1000
"""The smallest and the largest number of repeats, however long something takes."""

_PAUSE, COST = 0.5, 0.05
"""The shortest time between two displays, in seconds, and the largest fraction of the time that displays may take."""


def seconds_of(work, finish=lambda: None):
    """The seconds that ``work()`` takes. ``finish()`` is called before and after, to wait until devices are idle."""
    finish()
    begin = time.perf_counter()
    work()
    finish()
    return time.perf_counter() - begin


def take_rounds(contenders, repeats):
    """Let functions without arguments take turns: one round that does not count, then ``repeats`` rounds that do.

    ``contenders``: a dict of the functions by name. Returns, for each name, the list of the function's results in the
    rounds that count.
    """
    rounds = [{name: contender() for name, contender in contenders.items()} for _ in range(repeats + 1)]
    return {name: [each[name] for each in rounds[1:]] for name in contenders}


def repeated(function, repeats):
    """The results of calling ``function()`` repeatedly: a list, without a first call that does not count."""
    return take_rounds({"alone": function}, repeats)["alone"]


def repeats_in(budget, seconds):
    """How many repeats that take ``seconds`` each fit into a ``budget`` of seconds; at least 5 and at most 1000."""
    return int(min(MAX_REPEATS, max(MIN_REPEATS, budget / seconds)))


class Throttle:
    """A ``with`` block for displaying progress: `due` says when to do so, so that it takes little of the time."""

    _ended = spent = 0.0

    def due(self):
        """Whether enough time has passed since the last block."""
        return time.perf_counter() - self._ended > max(_PAUSE, self.spent / COST)

    def __enter__(self):
        self._begun = time.perf_counter()

    def __exit__(self, *error):
        self._ended = time.perf_counter()
        self.spent = self._ended - self._begun


def fit(terms, seconds):
    """The non-negative constants that explain measured times best: terms @ constants ≈ seconds.

    ``terms`` (n, constants): the factor of each constant in each of n measurements; ``seconds`` (n,): the measured
    times. The fit minimises the sum of squared relative errors, since times range over many orders of magnitude.
    """
    return least_squares(np.asarray(terms, float) / np.asarray(seconds, float)[:, None], np.ones(len(terms)))


def least_squares(terms, wanted):
    """The least squares solution of terms @ constants = wanted; negative constants are dropped, the lowest first."""
    scale = np.abs(terms).max(axis=0)
    free = list(np.flatnonzero(scale))
    while True:
        found, *_ = np.linalg.lstsq(terms[:, free] / scale[free], wanted, rcond=None)
        if (found >= 0).all():
            break
        free.pop(int(found.argmin()))
    constants = np.zeros(terms.shape[1])
    constants[free] = found / scale[free]
    return constants
