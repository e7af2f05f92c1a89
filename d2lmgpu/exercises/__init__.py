"""The course's exercises: `check` looks at an answer, and what else its notebooks use.

from d2lmgpu.exercises import check

def allreduce(data): ...

check("allreduce", allreduce)
"""

import os
from pathlib import Path

from ..arguments import check_text, is_number, shown
from ..output import write_json
from .answers import Judged, judge_file
from .checking import Exercise, Verdict, Wrong, judge
from .time_limit import SECONDS, check_seconds
from .topics import EXERCISES, find


def check(name, answer=None, seconds=SECONDS):
    """Try an answer, the function that exercise ``name`` asks for, and print what is right or wrong about it.

    Returns whether it is right; one that takes longer than ``seconds`` is not. Without an answer it prints what is
    asked for. Raises ValueError for an exercise that there is not, and for seconds that are no limit.

    The answer runs in this process. On the main thread of Linux and macOS the limit wakes it even if it waits;
    elsewhere only where it computes. One that ends the process itself (os._exit) ends the notebook's kernel;
    ``d2lmgpu check NAME FILE`` runs it in a process of its own.
    """
    verdict = judge(name, find(name), answer, check_seconds(seconds))
    print(verdict.says)
    return verdict.right


def setting(full, quick):
    """``full``, or ``quick`` if the environment variable D2LMGPU_QUICK is set: for a first look, and for the tests."""
    return quick if os.environ.get("D2LMGPU_QUICK") else full


def save_data(name, data):
    """Write a figure's data as ``data/NAME.json`` beside the notebook; not in the quick setting.

    Raises ValueError for a name that is no text, or data that JSON cannot hold.
    """
    check_text("name", name)
    if not os.environ.get("D2LMGPU_QUICK"):
        folder = Path("data")
        folder.mkdir(exist_ok=True)
        write_json(folder / f"{name}.json", data)


def compare(what, predicted, measured, unit=""):
    """Print a prediction beside the measurement, and the ratio; without a prediction, ask for one.

    Raises ValueError for what are no numbers.
    """
    for name, value in (("measured", measured), ("predicted", predicted)):
        if not is_number(value) and (name == "measured" or (value is not None and value is not ...)):
            raise ValueError(f"compare: {name} is {shown(value)}; it should be a number")
    found = f"measured {_in_digits(measured, 4)}{unit}"
    if predicted is None or predicted is ...:
        print(f"{what}: {found}. Next time, write your prediction down first.")
    else:
        ratio = f"{_in_digits(measured / predicted, 2)} times" if predicted else "not"
        print(f"{what}: predicted {_in_digits(predicted, 4)}{unit}, {found}: {ratio} what was predicted.")


def _in_digits(number, digits):
    """In so many digits, and a longer number whole: 129,068 rather than 1.291e+05."""
    return f"{number:,.0f}" if 10**digits <= abs(number) < 1e15 else f"{number:.{digits}g}"


__all__ = [
    "EXERCISES",
    "Exercise",
    "Judged",
    "Verdict",
    "Wrong",
    "check",
    "compare",
    "find",
    "judge",
    "judge_file",
    "save_data",
    "setting",
]
