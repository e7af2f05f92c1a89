"""Odd answers to exercises: functions that return, raise or do what nobody asked for, drawn at random."""

import datetime
import decimal
import fractions
import functools
import random
import sys
from unittest import mock

import numpy as np

import d2lmgpu as d2l


class Shy:
    """Nobody can look at it."""

    def __getattr__(self, name):
        raise RuntimeError(name)

    def __repr__(self):
        raise RuntimeError("no")


class Word(str):
    """A text that is equal to every other."""

    def __eq__(self, other):
        return True

    __hash__ = str.__hash__


def _round():
    """A list that has itself in it."""
    inside = [1.0]
    inside.append(inside)
    return inside


SIMPLE = [
    *(None, ..., NotImplemented, True, False, 0, 1, -1, 2, 10**400, 3.5, float("nan"), float("inf"), -0.0, 1j),
    *("", "abc", "3", "forward", "gpu(0)", "\ud800", b"x", bytearray(3), range(3), slice(2), frozenset({1, 2})),
    *(fractions.Fraction(1, 3), decimal.Decimal("0.5"), datetime.timedelta(1), np.float32(2), np.int64(3)),
    *(np.bool_(True), np.str_("x"), np.datetime64("2020-01-01"), np.complex64(1j)),
    *(int, len, sys, object(), ValueError("x"), mock.ANY, lambda *args: None, lambda *args: args, Word("update")),
]
"""Values that can stand anywhere."""

MADE = [
    *(list, tuple, dict, set, _round, Shy, lambda: np.zeros(0), lambda: np.zeros((2, 3), np.float32)),
    *(lambda: np.full(3, np.nan), lambda: np.array(["a", None], object), lambda: np.array(["a", "b"])),
    *(lambda: np.array([True, False]), lambda: np.array(1.5), lambda: np.zeros(2, "i4,f8"), lambda: np.ones((1,) * 30)),
    *(lambda: (i for i in range(3)), lambda: iter([[1, 2]]), lambda: zip([1], [2], strict=True)),
    *(lambda: d2l.put(np.ones(3, np.float32), d2l.cpu(0)), lambda: d2l.put(np.array(1.0), d2l.cpu(7))),
    lambda: [d2l.put(np.ones((2, 3), np.float32), d2l.cpu(i)) for i in range(3)],
]
"""Values that are made anew."""

ERRORS = (ValueError, KeyError, StopIteration, MemoryError, RecursionError, AssertionError, OSError, UnicodeError)


def value(draw, depth=0):
    """A value of any kind, lists of others included."""
    which = draw.random()
    if depth < 3 and which < 0.35:
        parts = [value(draw, depth + 1) for _ in range(draw.choice((1, 1, 2, 2, 2, 3, 4, 8)))]
        return draw.choice((list, tuple))(parts)
    if depth < 3 and which < 0.45:
        return {draw.choice((1, 2, 3, 4, "forward", None)): value(draw, depth + 1) for _ in range(3)}
    return draw.choice(MADE)() if which < 0.65 else draw.choice(SIMPLE)


def answer(seed):
    """An odd answer, the same for the same seed."""
    draw = random.Random(seed)
    what, own = draw.choices(list(DEEDS), [weight for _, weight in DEEDS.values()])[0], draw.randrange(2**32)
    return functools.partial(DEEDS[what][0], own), what


def _returns(own, *args):
    return value(random.Random(own))


def _raises(own, *args):
    raise random.Random(own).choice(ERRORS)("odd")


def _ends(own, *args):
    raise random.Random(own).choice((SystemExit, GeneratorExit))("odd")


def _gives_back(own, *args):
    return random.Random(own).choice([*args, args, list(args)])


def _spoils(own, *args):
    """Changes what it is given, as far as that can be changed."""
    draw = random.Random(own)
    thing = draw.choice(args)
    if isinstance(thing, list):
        thing[:] = draw.choice(([], thing[::-1], [*thing, None], thing + thing[:1], [value(draw, 2) for _ in thing]))
    elif isinstance(thing, dict):
        thing.clear()
    elif isinstance(thing, np.ndarray | d2l.DeviceArray) and thing.dtype.kind == "f":
        thing[...] = np.nan
    return draw.choice((None, thing, value(draw)))


def _right_in_form(own, *args):
    """As long as what it is given, or with its keys, or a pair."""
    draw = random.Random(own)
    thing = draw.choice(args)
    if isinstance(thing, dict):
        return {key: draw.choice((value(draw, 2), (value(draw, 2), value(draw, 2)))) for key in thing}
    if isinstance(thing, list):
        return [value(draw, 2) for _ in thing]
    pair = value(draw, 2), draw.choice((value(draw, 2), lambda *args: value(random.Random(own))))
    return draw.choice((pair, list(pair), (*pair, 3)))


def _takes_nothing(own):
    return own


DEEDS = {
    "returns": (_returns, 40),
    "is right in form": (_right_in_form, 20),
    "gives back": (_gives_back, 10),
    "spoils": (_spoils, 15),
    "raises": (_raises, 8),
    "ends": (_ends, 4),
    "takes nothing": (_takes_nothing, 2),
}
"""What answers do, and how often."""
