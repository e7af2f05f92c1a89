"""The judge: it tries an answer to an exercise on cases that reveal the usual mistakes.

An answer is a function that the student writes; it has the exercise's name. A
verdict says what is wrong, and gives a hint, but never the solution.
"""

import importlib
import sys
from typing import NamedTuple

import numpy as np

from ..base.arguments import check_name
from . import faulty
from .exercise import Empty, Wrong, in_case, in_words


def _exercises(topic):
    """The exercises of a module, by name: the classes that it defines."""
    module = importlib.import_module(f".{topic}", __package__)
    own = {name: value for name, value in vars(module).items() if isinstance(value, type)}
    return {name: kind() for name, kind in own.items() if kind.__module__ == module.__name__}


MODULES = """places layers_by_hand splitting synchronisation training collectives rates weights scaling speed bugs plans
    memory machines""".split()

TOPICS = list(map(_exercises, MODULES))
"""The exercises of each topic, by name. A topic consists of the notebooks that have the same number."""

EXERCISES = {name: exercise for topic in TOPICS for name, exercise in topic.items()}
"""All exercises by name."""


def find(name):
    """The `Exercise` of this name. Raises ValueError if there is none."""
    check_name("exercise", name, EXERCISES)
    return EXERCISES[name]


class Verdict(NamedTuple):
    """The result of `judge`: whether the answer is right, and the sentences to print."""

    right: bool
    says: str


def judge(name, answer):
    """The `Verdict` on an answer to the exercise ``name``: a function, or None if there is none yet.

    Raises ValueError for an unknown exercise.
    """
    exercise = find(name)
    if answer is None:
        return Verdict(False, f"{name}: nothing to check yet. {exercise.asks}")
    if not callable(answer):
        return Verdict(False, f"✗ {name}: this is a {type(answer).__name__}, not a function. {exercise.asks}")
    used = []
    try:
        said = _try_cases(exercise, _watched(answer, (name, "right", *exercise.without), used))
        if used:
            raise Wrong(f"all right, but it is the library's own {used[0]}", OWN)
        return Verdict(True, "\n  ".join([f"✓ {name}: {exercise.says}", *said]))
    except Empty as nothing:
        return Verdict(False, f"✗ {name}: {nothing}. {exercise.asks}")
    except Wrong as wrong:
        return Verdict(False, f"✗ {name}: {wrong.what}\n  Hint: {wrong.hint}")
    except KeyboardInterrupt:  # Ctrl-C
        raise
    except BaseException as error:  # sys.exit in the answer, or what the check's own code raised at an odd result
        hint = "it should return the result: print it, and its type"
        return not_yet(name, f"your answer, or the check of what it returned, raised {in_words(error)}", hint)


OWN = "write it yourself: an answer may use the library, but no function of it that does what the exercise asks for"


def _try_cases(exercise, answer):
    """Try the answer on all cases. Returns the sentences on them."""
    named = exercise.cases.items() if isinstance(exercise.cases, dict) else [(None, case) for case in exercise.cases]
    said = []
    for words, arguments in named:
        with np.errstate(all="ignore"), in_case(words or exercise.words(*arguments)):
            said.append(exercise.test(answer, *arguments))
    return [each for each in said if isinstance(each, str)]


def not_yet(name, what, hint):
    """The `Verdict` on an answer that is not right, or could not be tried: what happened, and a hint."""
    return Verdict(False, f"✗ {name}: not right yet: {what}\n  Hint: {hint}")


def _watched(answer, names, used):
    """The answer, which now also adds to ``used`` the full names of the library's functions ``names`` that it uses.

    It does not matter by which name it calls them, from which table or through which other function. Names may be
    preceded by the end of their module's, with a dot.
    """
    ends = tuple(f".{name}" for name in names)

    def look(frame, event, _):
        full_name = f"{frame.f_globals.get('__name__')}.{frame.f_code.co_name}"
        # the functions of faulty.py, which students repair, do not count: the check is to say what is wrong with them
        if full_name.startswith("d2lmgpu.") and full_name.endswith(ends) and not full_name.startswith(faulty.__name__):
            used.append(full_name)

    def watched(*args):
        before = sys.getprofile()
        sys.setprofile(look)
        try:
            return answer(*args)
        finally:
            sys.setprofile(before)

    return watched
