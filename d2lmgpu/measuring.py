"""Measuring: how long something takes, again and again, and the constants that explain such times.

Contenders take turns. In every round each has one, so that a machine whose speed drifts treats all alike; the first
round warms up (memory is taken, kernels are compiled) and does not count:

    round 0    a    b    c    not counted
    round 1    a    b    c
    round 2    a    b    c
"""

import time

import numpy as np

LEAST, MOST = 5, 1000
"""How often something is repeated, however long or short it takes."""

PAUSE, COST = 0.5, 0.05
"""Seconds from one time that something is shown to the next, at least, and the part of the time for it."""

REWEIGHTED, SMALL_ERROR = 50, 1e-3
"""How often the errors of a fit are weighed anew, and the relative error below which they weigh the same."""


def seconds_of(work, finish=lambda: None):
    """Seconds that ``work()`` takes. ``finish()`` is called before and after it, to wait until devices are idle."""
    finish()
    begin = time.perf_counter()
    work()
    finish()
    return time.perf_counter() - begin


def take_rounds(contenders, repeats):
    """Let functions without arguments, by name, take turns: a round that does not count, then ``repeats`` that do.

    Returns for each name the list of what its function returned in the rounds that count.
    """
    rounds = [{name: contender() for name, contender in contenders.items()} for _ in range(repeats + 1)]
    return {name: [each[name] for each in rounds[1:]] for name in contenders}


def repeated(function, repeats):
    """What ``function()`` returns time after time: a list, without a first time that does not count."""
    return take_rounds({"alone": function}, repeats)["alone"]


def repeats_in(budget, seconds):
    """How many repeats that take so many ``seconds`` each there are in a ``budget`` of seconds: from 5 to 1000."""
    return int(min(MOST, max(LEAST, budget / seconds)))


class Sparingly:
    """A ``with`` block for what shows how work goes on: so often is it ``due`` that it costs little."""

    _ended = spent = 0.0

    def due(self):
        """Whether enough time has gone by since the last block."""
        return time.perf_counter() - self._ended > max(PAUSE, self.spent / COST)

    def __enter__(self):
        self._begun = time.perf_counter()

    def __exit__(self, *error):
        self._ended = time.perf_counter()
        self.spent = self._ended - self._begun


def fit(terms, seconds, robust=False):
    """The constants, none of them negative, that explain measured times best: terms @ constants ≈ seconds.

    ``terms`` (n, constants): what each constant is multiplied by in each of n measurements, ``seconds`` (n,): what
    they took. The sum of the squares of the relative errors is the least, since times range over many magnitudes;
    with ``robust`` the sum of the relative errors themselves, of which a few odd measurements do not decide.

    Source: iteratively reweighted least squares, for least absolute deviations (Schlossmacher 1973).
    """
    terms = np.asarray(terms, float) / np.asarray(seconds, float)[:, None]
    weights = np.ones(len(terms))
    for _ in range(REWEIGHTED if robust else 1):
        constants = _least_squares(terms * weights[:, None], weights)
        weights = 1 / np.sqrt(np.maximum(np.abs(terms @ constants - 1), SMALL_ERROR))
    return constants


def _least_squares(terms, wanted):
    """The least squares solution of terms @ constants = wanted, without the most negative one, until none is."""
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
