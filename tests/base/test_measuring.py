"""The harness that times things, and the fit of constants to times. No times are asserted."""

import itertools

import numpy as np
import pytest

from d2lmgpu.base import measuring
from d2lmgpu.base.measuring import fit, repeated, repeats_in, seconds_of, take_rounds


def test_contenders_take_turns_and_the_first_round_does_not_count():
    calls = []

    def contender(name):
        return lambda: calls.append(name) or len(calls)

    results = take_rounds({name: contender(name) for name in "abc"}, 2)
    assert "".join(calls) == "abcabcabc"
    assert results == {"a": [4, 7], "b": [5, 8], "c": [6, 9]}
    alone = itertools.count()
    assert repeated(lambda: next(alone), 2) == [1, 2]
    assert [repeats_in(0.3, seconds) for seconds in (1e-9, 2**-9, 0.03, 7)] == [1000, 153, 10, 5]


def test_time_is_taken_from_idle_to_idle(monkeypatch):
    clock, idle = [100.0], []
    monkeypatch.setattr(measuring.time, "perf_counter", lambda: clock[0])

    def passing(seconds):
        clock[0] += seconds

    assert seconds_of(lambda: passing(3), lambda: passing(0.5) or idle.append(clock[0])) == 3.5
    assert idle == [100.5, 104] and seconds_of(lambda: passing(2)) == 2


def error(constants, terms, seconds):
    return ((terms @ constants / seconds - 1) ** 2).sum()


def test_a_fit_has_the_least_error_of_all_without_negative_constants(rng):
    """Against what a search through all sets of constants that are zero finds."""
    for _ in range(8):
        terms = rng.random((12, 3)) * (1, 10, 1e6)
        seconds = np.maximum(terms @ (rng.standard_normal(3) / (1, 10, 1e6)), 0.1) * rng.uniform(0.8, 1.2, 12)
        found = fit(terms, seconds)
        assert (found >= 0).all()
        least = np.inf
        for free in itertools.product([False, True], repeat=3):
            constants, free = np.zeros(3), np.array(free)
            constants[free] = np.linalg.lstsq(terms[:, free] / seconds[:, None], np.ones(12), rcond=None)[0]
            if (constants >= 0).all():
                least = min(least, error(constants, terms, seconds))
        assert error(found, terms, seconds) <= 1.05 * least
    assert fit([(1, 0), (2, 0)], [3, 6]).tolist() == pytest.approx([3, 0])  # of the other constant no time tells
