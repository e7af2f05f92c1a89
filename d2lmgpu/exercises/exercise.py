"""What all exercises have in common: a question, cases, the right results and the usual mistakes, and how to check.

Below `Exercise` are the checks of answers' results: do they have the right form, are they right, and if not, which
mistake was made?
"""

import contextlib
import copy
import itertools

import numpy as np

from ..base.arguments import is_number, plain, shown
from ..base.text import one_line
from ..devices import DeviceArray, DeviceMismatchError, record_transfers, to_host

RUN_IT = "run the function yourself on such a case, and read the error message from the bottom up"
MIXED = "you cannot mix arrays of two devices: put(x, device) copies x to the device, and to_host(x) to the host"
SLIPS = (NameError, AttributeError, ImportError)
"""Errors that do not depend on the case, so that a hint about the case would be misleading."""


class Exercise:
    """What an exercise asks, and how an answer is tried on a table of cases.

    Each exercise is a subclass that has the exercise's name. Its docstring has two paragraphs. The first is the
    question (`asks`): the function to write, and what its arguments are. The second is the sentence that is printed for
    a right answer (`says`).
    """

    cases = ((),)
    """The cases, tuples of arguments. If they are in a dict, its keys name the cases in words."""
    hint = ""
    """The hint for a wrong result that fits none of the ``mistakes``."""
    form = float
    """The form that a result should have, as for `read`."""
    returns = "return one number"
    """The hint for a result of another form."""
    raises = RUN_IT
    """The hint if the answer raises an error."""
    without = ()
    """The library's functions that an answer may not use, besides one with the exercise's name: they do its work.

    A name may be preceded by the end of its module's, with a dot.
    """
    tolerance = 1e-4
    """How far numbers may be from the right result, relative to the largest."""
    optional = False
    """Whether the exercise's notebook is optional, although the notebook's number belongs to the core path."""

    def __init_subclass__(cls):
        paragraphs = (cls.__doc__ or "\n\n").split("\n\n")  # with -OO there is none
        cls.asks, *says = (" ".join(paragraph.split()) for paragraph in paragraphs)
        if says:  # otherwise it is inherited
            (cls.says,) = says

    def right(self, *arguments):
        """The right result, or None if several are right; then ``mistakes`` decides."""

    def mistakes(self, found, right, *arguments):
        """The mistakes, in the form that `compare_results` expects."""
        return ()

    def words(self, *arguments):
        """A case in words: the call of the answer, as a student could type it."""
        return f"{type(self).__name__}({', '.join(map(_typed, arguments))})"

    def test(self, answer, *arguments):
        """Raise `Wrong` or `Empty` unless the answer is right in a case; here, unless it returns the right result.

        If this method returns a string, that is a sentence to print about a right answer.
        """
        given = copy.deepcopy(arguments)
        result = returned(call(answer, *given, hint=self.raises))
        expect(same_value(given, arguments), "it changed its arguments", "work on a copy: they belong to the caller")
        found, right = read(result, self.form, self.returns), self.right(*arguments)
        self.compare(found, right, *arguments)

    def compare(self, found, right, *arguments, what=""):
        """Raise `Wrong` unless ``found`` is ``right``, with the first of the ``mistakes`` that fits, or with ``hint``.

        ``what`` says in words what the value is, such as "the loss".
        """
        with in_case(what):
            compare_results(found, right, self.mistakes(found, right, *arguments), self.hint, self.tolerance)


def _typed(value):
    if isinstance(value, float) and float(text := f"{value:g}") == value:
        return text  # 1.6e+10 is easier to read than 16000000000.0
    return short(value) if isinstance(value, np.ndarray) else shown(value)


class Wrong(Exception):
    """An answer is wrong. ``what`` says what it did; ``hint`` helps to find the mistake."""

    def __init__(self, what, hint=""):
        super().__init__(what)
        self.what, self.hint = what, hint


class Empty(Wrong):
    """An answer does nothing yet; ``what`` says how this is known. There is no hint: the question is printed again."""


@contextlib.contextmanager
def in_case(words):
    """Begin the message of any `Wrong` raised in the ``with`` block with these words (if any), which name the case."""
    try:
        yield
    except Wrong as wrong:
        raise type(wrong)(f"{words}: {wrong.what}" if words else wrong.what, wrong.hint) from wrong


def call(answer, *args, hint=RUN_IT):
    """Return ``answer(*args)``. Raises `Wrong` if that raises an error.

    ``hint`` is the hint for any error except `SLIPS`, and except arrays of two devices in one operation, whose hint is
    `MIXED`.
    """
    try:
        return answer(*args)
    except Exception as error:  # whatever a student's function may raise
        hint = RUN_IT if isinstance(error, SLIPS) else MIXED if isinstance(error, DeviceMismatchError) else hint
        raise Wrong(f"it raised {in_words(error)}", hint) from error


def call_recorded(answer, *args, hint=RUN_IT):
    """Call an answer as `call` does, but return the result and the list of transfers.

    Errors in work on devices count as the answer's.
    """

    def recorded():
        with record_transfers() as transfers:
            return answer(*args), transfers

    return call(recorded, hint=hint)


def returned(result):
    """The ``result`` of a function that should return something. Raises `Empty` if that is None or ``...``."""
    if result is None or result is ...:
        raise Empty("it returned nothing")
    return result


def expect(right, what, hint):
    """Raise `Wrong` unless ``right`` is true."""
    if not right:
        raise Wrong(what, hint)


def compare_results(found, right, mistakes, hint, tolerance=1e-5):
    """Raise `Wrong` unless ``found`` is ``right``, with the hint of the first mistake that fits, or else with ``hint``.

    A mistake is a tuple (wrong, what, hint) or (wrong, hint): ``wrong`` is the result to which the mistake leads, or a
    bool that says whether it was made; ``what`` describes it in words. If ``mistakes`` is a generator, it computes the
    next one only if no earlier one fits. If ``right`` is None, ``found`` is wrong only if one of the mistakes fits.
    """
    tolerance = 1e-12 if isinstance(right, int) else tolerance
    if same_value(found, right, tolerance):
        return
    said = short(found) + ("" if right is None else f" instead of {short(right)}")
    for wrong, *what, its_hint in itertools.chain(mistakes, [(right is not None, hint)]):
        if not isinstance(wrong, bool | np.bool_):
            wrong = same_value(found, wrong, tolerance) and not same_value(right, wrong, tolerance)
        if wrong:
            raise Wrong(": ".join([said, *what]), its_hint)


def same_value(found, right, tolerance=1e-5):
    """Whether a result is right: floats and arrays within ``tolerance``, everything else exactly.

    ``...`` in ``right`` stands for any value.
    """
    if isinstance(right, dict):
        return found.keys() == right.keys() and all(same_value(found[key], right[key], tolerance) for key in right)
    if isinstance(right, list | tuple):
        return len(found) == len(right) and all(same_value(*pair, tolerance) for pair in zip(found, right, strict=True))
    if isinstance(right, float | np.ndarray):
        return close(found, right, tolerance) or (isinstance(found, int | float) and abs(found - right) < 1e-12)
    return right is ... or (right is not None and found == right)


def close(actual, expected, tolerance=1e-5):
    """Whether two arrays, or numbers, have the same shape, and values that differ only a little.

    ``tolerance`` is relative to the largest magnitude. Anything that is not an array of numbers is never close.
    """
    actual, expected = _numbers(actual), _numbers(expected)
    if actual is None or actual.shape != expected.shape:
        return False
    if np.array_equal(actual, expected, equal_nan=True):
        return True
    return bool(np.abs(actual - expected).max(initial=0) <= tolerance * np.abs(expected).max(initial=1e-30))


def same_things(some, others):
    """Whether two nested lists hold identical objects."""
    if isinstance(others, list):
        return isinstance(some, list) and len(some) == len(others) and all(map(same_things, some, others))
    return some is others


def read(result, form, hint):
    """The ``result``, converted to Python's own numbers and lists. Raises `Wrong` unless it has this ``form``.

    A form is float (any number), int (a whole number), bool, str, np.ndarray (an array of numbers), object (anything),
    [form] (a list of any length), (form, form) (a list or tuple of this length), or {form: form} (a dict).
    """
    try:
        return _read(result, form)
    except TypeError:
        raise Wrong(f"it returned {shown(result)}", hint) from None


def _read(result, form):
    if isinstance(result, np.ndarray) and isinstance(form, list | tuple):
        result = result.tolist()
    match form:
        case list() if isinstance(result, list | tuple):
            return [_read(part, form[0]) for part in result]
        case tuple() if isinstance(result, list | tuple) and len(result) == len(form):
            return tuple(map(_read, result, form))
        case dict() if isinstance(result, dict):
            ((key_form, value_form),) = form.items()
            return {_read(key, key_form): _read(value, value_form) for key, value in result.items()}
        case type():
            return _read_one(result, form)
    raise TypeError


def _read_one(result, kind):
    """Read a number, a string or an array."""
    if kind is object:
        return result
    if kind is np.ndarray:
        if (found := _numbers(result)) is not None:
            return found
    elif not isinstance(result, list | tuple):
        value = plain(to_host(result) if isinstance(result, DeviceArray) else result)
        if is_number(value) if kind is float else type(value) is kind:
            return value
    raise TypeError


def short(value):
    """A result as text: numbers with a few digits, the first elements of arrays and lists, or else the type."""
    if isinstance(value, int | str) or value is None:
        return f"{value:,}" if type(value) is int else shown(value)
    if isinstance(value, list | tuple):
        text = ", ".join(map(short, value[:_FEW])) + (", …" if len(value) > _FEW else "")
        return f"[{text}]" if isinstance(value, list) else f"({text})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {short(of_it)}' for key, of_it in value.items())}}}"
    found = _numbers(value)
    if found is None:
        return kind(value)
    if found.ndim == 0:
        return f"{float(found):.4g}"
    return f"[{', '.join(f'{float(number):.4g}' for number in found.reshape(-1)[:4])}{', …' if found.size > 4 else ''}]"


_FEW = 8
"""How many elements of a list are shown."""


def kind(value):
    """The type of a value, for a sentence: "a list"."""
    return f"a {type(value).__name__}"


def in_words(error):
    """An exception's class and message, printable and not too long."""
    return one_line(error)[:500].encode("utf-8", "backslashreplace").decode()


def _numbers(values):
    """``values`` as a NumPy array of real numbers; None if they are something else."""
    try:
        found = to_host(values)
    except Exception:  # whatever a student's object raises
        return None
    return found if found.dtype.kind in "biuf" else None
