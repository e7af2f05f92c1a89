"""A thousand odd answers to the exercises: none is right, and each gets a sentence and a hint."""

import pytest
from conftest import long
from odd_answers import answer

from d2lmgpu.exercises import EXERCISES, judge

OF_EACH = 25
"""Odd answers to each of the exercises with ``--all``; a fifth of them in the short run."""

PYTHONS = ("of no use", "Traceback")


@pytest.mark.parametrize("part", [0, *long(1, 2, 3, 4)])
@pytest.mark.parametrize("name", EXERCISES)
def test_odd_answers_are_wrong(name, part):
    """A verdict in words that say what to return, and no error of Python's from within the check."""
    for number in range(part * OF_EACH // 5, (part + 1) * OF_EACH // 5):
        odd, what = answer(f"{name} {number}")
        right, says = judge(name, odd)
        assert not right, (number, what)
        assert says.startswith(f"✗ {name}: ") and ("\n  Hint: " in says or EXERCISES[name].asks in says), says
        assert not any(words in says for words in PYTHONS), (number, what, says)
        assert len(says) < 1200, says


def test_there_are_a_thousand():
    assert len(EXERCISES) * OF_EACH >= 1000
