"""The judge: it tries an answer to an exercise on cases that reveal the usual mistakes.

An answer is a function that the student writes; it has the exercise's name. A
verdict says what is wrong, and gives a hint, but never the solution.
"""

import sys
from typing import NamedTuple

import numpy as np

from . import faulty
from .exercise import SEED, random_numbers
from .results import Empty, Wrong, in_case, in_words
from .topics import find


class Verdict(NamedTuple):
    """The result of `judge`: whether the answer is right, and the sentences to print."""

    right: bool
    says: str


def judge(name, answer, seed=None):
    """The `Verdict` on an answer to the exercise ``name``: a function, or None if there is none yet.

    With a ``seed``, a whole number, the answer is tried with other random numbers, and with additional, hidden cases.
    Raises ValueError for an unknown exercise.
    """
    exercise = find(name)
    if answer is None:
        return Verdict(False, f"{name}: nothing to check yet. {exercise.asks}")
    if not callable(answer):
        return Verdict(False, f"✗ {name}: this is a {type(answer).__name__}, not a function. {exercise.asks}")
    before, used = SEED.set(seed), []
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
    except Exception as error:  # raised by the test's own code when it looked at the result
        return not_yet(name, f"the check cannot use what it returned: {in_words(error)}", "print it, and its type")
    except BaseException as error:  # sys.exit, and all else that would end the program
        return not_yet(name, f"your answer {what_ends(error)}", "return the result instead")
    finally:
        SEED.reset(before)


OWN = "write it yourself: an answer may use the library, but no function of it that does what the exercise asks for"


def _try_cases(exercise, answer):
    """Try the answer on all cases and, with a seed, on three hidden ones. Returns the sentences on cases not hidden."""
    named = exercise.cases.items() if isinstance(exercise.cases, dict) else [(None, case) for case in exercise.cases]
    drawn = [(None, exercise.draw(random_numbers(own))) for own in range(3)] if SEED.get() is not None else []
    said = []
    for words, arguments in (*named, *drawn):
        with np.errstate(all="ignore"), in_case(words or exercise.words(*arguments)):
            said.append(exercise.test(answer, *arguments))
    return [each for each in said[: len(exercise.cases)] if isinstance(each, str)]


def not_yet(name, what, hint):
    """The `Verdict` on an answer that is not right, or could not be tried: what happened, and a hint."""
    return Verdict(False, f"✗ {name}: not right yet: {what}\n  Hint: {hint}")


def what_ends(error):
    """In words, how code ended that raised ``error``, which is a BaseException but not an Exception."""
    if isinstance(error, SystemExit):
        return f"ended the program (sys.exit({in_words(error).partition(': ')[2]}))"
    return f"raised {in_words(error)}"


def _watched(answer, names, used):
    """The answer, which now also adds to ``used`` the full names of the library's functions ``names`` that it uses.

    It does not matter by which name it calls them, from which table or through which other function. A function that
    it gives to a device to run counts as called. Names may be preceded by the end of their module's, with a dot.
    """
    ends = tuple(f".{name}" for name in names)

    def look(frame, event, _):
        module, name = str(frame.f_globals.get("__name__")), frame.f_code.co_name
        if name == "run" and module.startswith("d2lmgpu.devices."):
            function = frame.f_locals.get("function")
            module, name = str(getattr(function, "__module__", "")), getattr(function, "__name__", "")
        # the functions of faulty.py, which students repair, do not count: the check is to say what is wrong with them
        if event == "call" and module.startswith("d2lmgpu.") and module != faulty.__name__:
            if (full_name := f"{module}.{name}").endswith(ends):
                used.append(full_name)

    def watched(*args):
        before = sys.getprofile()
        sys.setprofile(look)
        try:
            return answer(*args)
        finally:
            sys.setprofile(before)

    return watched
