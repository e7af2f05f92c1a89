"""How an answer to an exercise is checked: it is tried on cases that reveal the usual mistakes.

A check says what is wrong, and gives a hint, but never the solution. An exercise
is a function that the student writes; its name is the exercise's.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..devices import DeviceArray, to_host
from .own import librarys_own
from .time_limit import TimeIsUp, time_limit


class Wrong(Exception):
    """An answer is wrong: ``what`` it did, in which case, and a ``hint``."""

    def __init__(self, what, hint):
        super().__init__(what)
        self.what, self.hint = what, hint


class Empty(Exception):
    """An answer does nothing yet; the message says in which case."""


class Exercise(NamedTuple):
    """``asks``: what to write, its arguments and what they are. ``test(answer)`` says what is right, or raises."""

    asks: str
    test: Callable


class Verdict(NamedTuple):
    """What `judge` found: whether the answer is right, and the sentences to print."""

    right: bool
    says: str


def judge(name, exercise, answer, seconds=None):
    """The `Verdict` on an answer: a function, or None where there is none yet.

    It may take so many ``seconds``, as far as `time_limit` can interrupt it.
    """
    if answer is None:
        return Verdict(False, f"{name}: nothing to check yet. {exercise.asks}")
    if not callable(answer):
        return Verdict(False, f"✗ {name}: this is a {type(answer).__name__}, not a function. {exercise.asks}")
    try:
        with time_limit(seconds):
            right = exercise.test(answer)
        if library := librarys_own(name, answer):
            return not_yet(name, f"all right, but it is the library's own {library}", "write the function yourself")
        return Verdict(True, f"✓ {name}: {right}")
    except Empty as nothing:
        return Verdict(False, f"✗ {name}: {nothing}. {exercise.asks}")
    except Wrong as wrong:
        return Verdict(False, f"✗ {name}: {wrong.what}\n  Hint: {wrong.hint}")
    except TimeIsUp:
        hint = "does it wait for what never comes? If devices go on working on it, restart the notebook's kernel"
        return not_yet(name, f"your answer did not end within {seconds:g} seconds", hint)
    except KeyboardInterrupt:  # Ctrl-C
        raise
    except Exception as error:  # where the test looks at it
        return not_yet(name, f"what it returned is of no use: {in_words(error)}", "print it, and its type")
    except BaseException as error:  # sys.exit, and what else would end the program
        return not_yet(name, f"your answer {what_ends(error)}", "return the result, whatever it is")


def not_yet(name, what, hint):
    """The `Verdict` on an answer that could not be tried to the end."""
    return Verdict(False, f"✗ {name}: not right yet: {what}\n  Hint: {hint}")


def in_words(error):
    """An exception's type and message, which are somebody's: of a decent length, and printable."""
    message = _message(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def what_ends(error):
    """What somebody's code did that raised an exception which is no `Exception`."""
    if isinstance(error, SystemExit):
        return f"ended the program (sys.exit({_message(error)}))"
    return f"raised {in_words(error)}"


def _message(error):
    try:
        return str(error)[:500].encode("utf-8", "backslashreplace").decode()
    except Exception:
        return ""


def call(answer, *args, case, hint="run the function yourself on such a case, and read the error from its end"):
    """``answer(*args)``. Raises `Wrong` if that raises an error: ``case`` says in words what the arguments were."""
    try:
        return answer(*args)
    except Exception as error:  # whatever a student's function may raise
        raise Wrong(f"{case}: it raised {in_words(error)}", hint) from error


def result_of(answer, *args, case, **options):
    """As `call`, for functions that return something: nothing at all is an empty answer."""
    result = call(answer, *args, case=case, **options)
    if result is None or result is ...:
        raise Empty(f"{case}: it returned nothing")
    return result


def expect(right, what, hint):
    """Raise `Wrong` unless it is ``right``."""
    if not right:
        raise Wrong(what, hint)


def expect_number(result, right, mistakes, case, hint):
    """Raise `Wrong` unless ``result`` is the number ``right``.

    ``mistakes``: triples of a wrong number, what it is, and a hint; ``hint`` is for all other wrong numbers.
    """
    try:
        found = float(_plain(result))
    except (TypeError, ValueError) as error:
        raise Wrong(f"{case}: it returned a {type(result).__name__}", "return one number") from error
    if close(found, right):
        return
    for mistake, what, its_hint in mistakes:
        if not close(mistake, right) and close(found, mistake):
            raise Wrong(f"{case}: {found:.4g} instead of {right:.4g}: {what}", its_hint)
    raise Wrong(f"{case}: {found:.4g} instead of {right:.4g}", hint)


def close(actual, expected, tolerance=1e-5):
    """Whether two arrays, or numbers, have the same shape and values, to a part of the largest magnitude."""
    actual, expected = np.asarray(_plain(actual)), np.asarray(_plain(expected))
    if actual.shape != expected.shape:
        return False
    return bool(np.abs(actual - expected).max(initial=0) <= tolerance * np.abs(expected).max(initial=1e-30))


def short(values):
    """A few numbers for a sentence."""
    values = np.asarray(_plain(values)).reshape(-1)
    numbers = ", ".join(f"{value:.4g}" for value in values[:4])
    return f"[{numbers}{', …' if len(values) > 4 else ''}]"


def _plain(values):
    return to_host(values) if isinstance(values, DeviceArray) else values
