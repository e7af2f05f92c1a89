"""What all exercises have in common: a question, cases, the right results, and the usual mistakes."""

import copy

import numpy as np

from ..base.arguments import shown
from .results import RUN_IT, call, compare_results, expect, in_case, read, returned, same_value, short


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
        """The mistakes, in the form that `results.compare_results` expects."""
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
        if isinstance(right, dict):
            expect(found.keys() == right.keys(), f"it returned {short(found)}", self.returns)
        self.compare(found, right, *arguments)

    def compare(self, found, right, *arguments, what="", tolerance=1e-5):
        """Raise `Wrong` unless ``found`` is ``right``, with the first of the ``mistakes`` that fits, or with ``hint``.

        ``what`` says in words what the value is, such as "the loss".
        """
        with in_case(what):
            compare_results(found, right, self.mistakes(found, right, *arguments), self.hint, tolerance)


def _typed(value):
    if isinstance(value, float) and float(text := f"{value:g}") == value:
        return text  # 1.6e+10 is easier to read than 16000000000.0
    return short(value) if isinstance(value, np.ndarray) else shown(value)
