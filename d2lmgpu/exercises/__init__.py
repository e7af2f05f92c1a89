"""The course's exercises: `check` looks at an answer, and what else its notebooks use.

from d2lmgpu.exercises import check

def allreduce(data): ...

check("allreduce", allreduce)
"""

import os
from pathlib import Path

from ..output import write_json
from . import (
    bugs,
    collectives,
    layers_by_hand,
    places,
    rates,
    scaling,
    speed,
    splitting,
    synchronisation,
    training,
    weights,
)
from .checking import Exercise, Verdict, Wrong, judge

TOPICS = (
    places,
    layers_by_hand,
    splitting,
    synchronisation,
    training,
    collectives,
    rates,
    weights,
    scaling,
    speed,
    bugs,
)
"""The files with exercises, in the order of the notebooks."""

EXERCISES = {name: exercise for topic in TOPICS for name, exercise in topic.EXERCISES.items()}
"""All exercises by name."""


def check(name, answer=None):
    """Try an answer, the function that exercise ``name`` asks for, and print what is right or wrong about it.

    Returns whether it is right. Without an answer it prints what is asked for.
    Raises ValueError for an exercise that there is not.
    """
    verdict = judge(name, find(name), answer)
    print(verdict.says)
    return verdict.right


def find(name):
    """The `Exercise` of this name; ValueError if there is none."""
    if name not in EXERCISES:
        raise ValueError(f"exercise {name!r} is unknown; choose from {', '.join(EXERCISES)}")
    return EXERCISES[name]


def setting(full, quick):
    """``full``, or ``quick`` if the environment variable D2LMGPU_QUICK is set: for a first look, and for the tests."""
    return quick if os.environ.get("D2LMGPU_QUICK") else full


def save_data(name, data):
    """Write a figure's data as ``data/NAME.json`` beside the notebook; not in the quick setting."""
    if not os.environ.get("D2LMGPU_QUICK"):
        folder = Path("data")
        folder.mkdir(exist_ok=True)
        write_json(folder / f"{name}.json", data)


def compare(what, predicted, measured, unit=""):
    """Print a prediction beside the measurement, and the ratio; without a prediction, ask for one."""
    found = f"measured {_in_digits(measured, 4)}{unit}"
    if predicted is None or predicted is ...:
        print(f"{what}: {found}. Next time, write your prediction down first.")
    else:
        ratio = f"{_in_digits(measured / predicted, 2)} times" if predicted else "not"
        print(f"{what}: predicted {_in_digits(predicted, 4)}{unit}, {found}: {ratio} what was predicted.")


def _in_digits(number, digits):
    """In so many digits, and a longer number whole: 129,068 rather than 1.291e+05."""
    return f"{number:,.0f}" if 10**digits <= abs(number) < 1e15 else f"{number:.{digits}g}"


__all__ = ["EXERCISES", "Exercise", "Verdict", "Wrong", "check", "compare", "find", "judge", "save_data", "setting"]
