"""Whether an answer is the student's own."""

import dis
import functools
import inspect
from types import ModuleType

from . import faulty


def librarys_own(name, answer):
    """The full name of the library's function that an answer is, or that it calls in its place; None if it is neither.

    An answer may use all of the library but the function that exercise ``name`` asks for.
    """
    while isinstance(answer, functools.partial):
        answer = answer.func
    answer = inspect.unwrap(answer)
    if _is_librarys(answer):
        return _full_name(answer)
    if inspect.isfunction(answer):
        for used in _named_in(answer):
            if _is_librarys(used) and used.__name__ == name:
                return _full_name(used)
    return None


def _is_librarys(thing):
    module = getattr(thing, "__module__", None) or ""
    # the notebook shows faulty functions, in order that they be repaired: what they lack is for the check to say
    return inspect.isroutine(thing) and module.startswith("d2lmgpu.") and module != faulty.__name__


def _full_name(function):
    return f"{function.__module__}.{function.__qualname__}"


def _named_in(function):
    """What a function's code takes by name from its file or cell, or from modules there: ``ring``, ``d2l.evaluate``."""
    found = None
    for instruction in dis.get_instructions(function):
        if instruction.opname == "LOAD_GLOBAL":
            found = function.__globals__.get(instruction.argval)
        elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD") and isinstance(found, ModuleType):
            found = getattr(found, instruction.argval, None)
        else:
            continue
        yield found
