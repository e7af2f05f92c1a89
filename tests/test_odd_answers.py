"""A thousand odd answers to the exercises, drawn at random: none is right, and each gets a sentence and a hint."""

import functools
import random

import numpy as np
import pytest
from conftest import long

import d2lmgpu as d2l
from d2lmgpu.exercises import EXERCISES, judge

OF_EACH = 25
"""Odd answers to each of the exercises with ``--all``; a fifth of them in the short run."""

VALUES = [
    *(None, ..., True, 0, 1, -1, 10**400, 3.5, float("nan"), float("inf"), 1j, "", "forward", "gpu(0)", "\ud800", b"x"),
    *(range(3), slice(2), frozenset({1, 2}), np.float32(2), np.int64(3), np.bool_(True), int, len, lambda *args: args),
]
MADE = [
    *(list, tuple, dict, object, lambda: np.zeros(0), lambda: np.zeros((2, 3), np.float32), lambda: np.full(3, np.nan)),
    *(lambda: np.array(["a", None], object), lambda: np.array([True, False]), lambda: np.array(1.5)),
    *(lambda: (i for i in range(3)), lambda: zip([1], [2], strict=True), lambda: d2l.put(np.array(1.0), d2l.cpu(7))),
    lambda: [d2l.put(np.ones((2, 3), np.float32), d2l.cpu(i)) for i in range(3)],
]
ERRORS = (ValueError, KeyError, StopIteration, MemoryError, AssertionError, OSError, SystemExit, GeneratorExit)


def value(draw, depth=0):
    """A value of any kind, lists of others included."""
    which = draw.random()
    if depth < 3 and which < 0.35:
        parts = [value(draw, depth + 1) for _ in range(draw.choice((1, 1, 2, 2, 2, 3, 4, 8)))]
        return draw.choice((list, tuple))(parts)
    if depth < 3 and which < 0.45:
        return {draw.choice((1, 2, 3, 4, "forward", None)): value(draw, depth + 1) for _ in range(3)}
    return draw.choice(MADE)() if which < 0.65 else draw.choice(VALUES)


def answer(seed, *args):
    """Return, raise or change something: the same for the same seed."""
    draw = random.Random(seed)
    which, thing = draw.random(), draw.choice(args)
    if which < 0.1:
        raise draw.choice(ERRORS)("odd")
    if which < 0.2:
        return draw.choice([*args, args, list(args)])
    if which < 0.35:
        if isinstance(thing, list):
            thing[:] = draw.choice(([], thing[::-1], [*thing, None], thing[:1], [value(draw, 2) for _ in thing]))
        elif isinstance(thing, np.ndarray | d2l.DeviceArray) and thing.dtype.kind == "f":
            thing[...] = np.nan
        return draw.choice((None, thing, value(draw)))
    if which < 0.55 and isinstance(thing, list | dict):  # as long, or with the same keys
        return {key: value(draw, 2) for key in thing} if isinstance(thing, dict) else [value(draw, 2) for _ in thing]
    return value(draw)


@pytest.mark.parametrize("part", [0, *long(1, 2, 3, 4)])
@pytest.mark.parametrize("name", EXERCISES)
def test_odd_answers_are_wrong(name, part):
    """A verdict in words that say what to return, and no error of Python's from within the check."""
    for number in range(part * OF_EACH // 5, (part + 1) * OF_EACH // 5):
        right, says = judge(name, functools.partial(answer, f"{name} {number}"))
        assert not right, number
        assert says.startswith(f"✗ {name}: ") and ("\n  Hint: " in says or EXERCISES[name].asks in says), says
        assert not any(words in says for words in ("of no use", "Traceback")), (number, says)
        assert len(says) < 1200, says
