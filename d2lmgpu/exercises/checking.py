"""How an answer to an exercise is checked: it is tried on cases that reveal the usual mistakes.

A check says what is wrong, and gives a hint, but never the solution. An exercise
is a function that the student writes; its name is the exercise's.
"""

import contextlib
import contextvars
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..arguments import is_number
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


def judge(name, exercise, answer, seconds=None, seed=None):
    """The `Verdict` on an answer: a function, or None where there is none yet.

    It may take so many ``seconds``, as far as `time_limit` can interrupt it. ``seed``: of other random numbers, and of
    some cases more, than it is tried with otherwise; a whole number.
    """
    if answer is None:
        return Verdict(False, f"{name}: nothing to check yet. {exercise.asks}")
    if not callable(answer):
        return Verdict(False, f"✗ {name}: this is a {type(answer).__name__}, not a function. {exercise.asks}")
    try:
        with time_limit(seconds), _hidden(seed):
            right = exercise.test(answer)
        if library := librarys_own(name, answer):
            return not_yet(name, f"all right, but it is the library's own {library}", "write the function yourself")
        return Verdict(True, f"✓ {name}: {right}")
    except Empty as nothing:
        return Verdict(False, f"✗ {name}: {nothing}. {exercise.asks}")
    except Wrong as wrong:
        return Verdict(False, f"✗ {name}: {wrong.what}\n  Hint: {wrong.hint}")
    except TimeIsUp as error:
        if seconds is None:  # an answer that is limited from outside, and raises it itself
            return not_yet(name, f"your answer {what_ends(error)}", "return the result, whatever it is")
        hint = "does it wait for what never comes? If devices go on working on it, restart the notebook's kernel"
        return not_yet(name, f"your answer did not end within {seconds:g} seconds", hint)
    except KeyboardInterrupt:  # Ctrl-C
        raise
    except Exception as error:  # where the test looks at it
        return not_yet(name, f"what it returned is of no use: {in_words(error)}", "print it, and its type")
    except BaseException as error:  # sys.exit, and what else would end the program
        return not_yet(name, f"your answer {what_ends(error)}", "return the result, whatever it is")


_seed = contextvars.ContextVar("seed", default=None)


@contextlib.contextmanager
def _hidden(seed):
    token = _seed.set(seed)
    try:
        yield
    finally:
        _seed.reset(token)


def random_numbers(own):
    """What a check draws from: always the same for its ``own`` number, unless a seed was given."""
    return np.random.default_rng(own if _seed.get() is None else (own, _seed.get()))


def with_hidden(cases, draw, count=3):
    """``cases``, and if a seed was given so many more, each of which ``draw(rng)`` makes."""
    if _seed.get() is None:
        return cases
    return (*cases, *(draw(random_numbers(own)) for own in range(count)))


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


def number_of(result, case, hint="return one number"):
    """``result`` as a Python number. Raises `Wrong` for anything else: a truth value, a text, an array of several."""
    value = _plain(result)
    if isinstance(value, np.ndarray | np.generic):
        value = value.item() if value.ndim == 0 and value.dtype.kind in "iuf" else None
    if not is_number(value):
        raise Wrong(f"{case}: it returned {kind(result)}", hint)
    return value if isinstance(value, int) else float(value)


def array_of(result, case, hint="return an array of numbers"):
    """``result`` as a NumPy array. Raises `Wrong` for what is no array of numbers."""
    found = _numbers(result)
    if found is None:
        raise Wrong(f"{case}: it returned {kind(result)}", hint)
    return found


def list_of(result, case, hint):
    """``result``, a list or tuple, as a list. Raises `Wrong` for anything else."""
    if not isinstance(result, list | tuple):
        raise Wrong(f"{case}: it returned {kind(result)}", hint)
    return list(result)


def same_things(some, others):
    """Whether a nested list still holds the very same things as another."""
    if isinstance(others, list):
        return isinstance(some, list) and len(some) == len(others) and all(map(same_things, some, others))
    return some is others


def kind(value):
    """What a value is, for a sentence: "a list", "an int"."""
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def expect_number(result, right, mistakes, case, hint):
    """Raise `Wrong` unless ``result`` is the number ``right``.

    ``mistakes``: triples of a wrong number, what it is, and a hint; ``hint`` is for all other wrong numbers.
    """
    found = number_of(result, case)
    if close(found, right):
        return
    for mistake, what, its_hint in mistakes:
        if not close(mistake, right) and close(found, mistake):
            raise Wrong(f"{case}: {found:.4g} instead of {right:.4g}: {what}", its_hint)
    raise Wrong(f"{case}: {found:.4g} instead of {right:.4g}", hint)


def close(actual, expected, tolerance=1e-5):
    """Whether two arrays, or numbers, have the same shape and values, to a part of the largest magnitude.

    What is no array of numbers is not close to anything.
    """
    actual, expected = _numbers(actual), _numbers(expected)
    if actual is None or actual.shape != expected.shape:
        return False
    with np.errstate(all="ignore"):
        return bool(np.abs(actual - expected).max(initial=0) <= tolerance * np.abs(expected).max(initial=1e-30))


def short(values):
    """A few numbers for a sentence; of anything else what it is."""
    found = _numbers(values)
    if found is None:
        return kind(values)
    found = found.reshape(-1)
    return f"[{', '.join(f'{float(value):.4g}' for value in found[:4])}{', …' if len(found) > 4 else ''}]"


def _numbers(values):
    """As a NumPy array of real numbers; None if they are none."""
    try:
        found = np.asarray(_plain(values))
    except Exception:  # whatever somebody's object does when it is looked at
        return None
    return found if found.dtype.kind in "biuf" else None


def _plain(values):
    return to_host(values) if isinstance(values, DeviceArray) else values
