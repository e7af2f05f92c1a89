"""Fields of `Settings`: how to declare a field, and what the command line, files and documents need to know of it."""

import math
from dataclasses import field
from functools import partial
from types import NoneType, UnionType
from typing import get_args, get_origin

from ..base.arguments import MAX_WHOLE, check_flag, check_name, check_number, check_whole, is_number, plain

MAX_NUMBER = 1e6
"""Larger than any sensible value, but in the range of float32 even when multiplied by the number of devices."""


def setting(default, help, allowed, check=None, called=None, same=False, recorded=True, **others):
    """A field of `Settings`.

    ``allowed``: a tuple of the names that are allowed, or a description of the allowed values. ``check(name, value)``
    raises ValueError for a value that is not allowed; it is needed unless only these names are allowed. ``called``: the
    field's name on the command line and in a history, if it is different there. ``same``: whether a resumed run must
    have the same value. ``recorded``: whether a history records the field; False if it only changes how the same result
    is computed. ``without``: see `flag`. ``read(value)`` returns the value to be stored.
    """
    check = check or partial(check_name, known=allowed)
    about = {"help": help, "allowed": allowed, "check": check, "called": called, "same": same}
    return field(default=default, metadata=about | {"recorded": recorded, "without": None, "read": plain} | others)


def flag(help, without=None, **about):
    """A field that is True or False; its default is True if ``without`` describes what happens when it is False."""
    return setting(without is not None, help, "True or False", check_flag, without=without, **about)


def whole(default, help, least=1, most=MAX_WHOLE, **about):
    """A field for a whole number from ``least`` to ``most``."""
    return setting(default, help, f"at least {least}", partial(check_whole, least=least, most=most), **about)


def number(default, help, above=False, **about):
    """A field for a number that is at least 0 or, with ``above``, more than 0."""
    limit, allowed = ("above", "above 0") if above else ("least", "at least 0")
    return setting(default, help, allowed, partial(check_number, **{limit: 0}, most=MAX_NUMBER), **about)


def cli_name(about):
    """The name of a field of `Settings` on the command line (with dashes) and in a history."""
    return about.metadata["called"] or about.name


def kind_of(about):
    """The type of a field's value in commands and files: the first of the types that it may have in a program."""
    return get_args(about.type)[0] if isinstance(about.type, UnionType) else about.type


def kind_in_files(about):
    """The kind (see `of_kind`) of a dataclass's field in files, including None if that is allowed."""
    return kind_of(about) | None if NoneType in get_args(about.type) else kind_of(about)


def of_kind(what, value, kind):
    """A ``value`` from JSON as this ``kind``: NaN for null where a float should be, as JSON has no such numbers.

    A kind is a type (a whole number also counts as float), list[kind of all elements], dict[str, kind of all values],
    {name: kind} with at least these names, of which others are left out, or kind | None for a value that may be null.
    Raises ValueError for another value.
    """
    if isinstance(kind, UnionType):
        return None if value is None else of_kind(what, value, get_args(kind)[0])
    if kind is float and value is None:
        return math.nan
    wanted, parts = dict if isinstance(kind, dict) else get_origin(kind) or kind, get_args(kind)
    if not (is_number(value) if wanted is float else type(value) is wanted):
        raise ValueError(f"its {what} is a {type(value).__name__}, which should be a {wanted.__name__}")
    if isinstance(kind, dict):
        if missing := sorted(set(kind) - set(value)):
            raise ValueError(f"its {what} has no {', '.join(missing)}")
        return {name: of_kind(name, part, kind[name]) for name, part in value.items() if name in kind}
    if wanted is list:
        return [of_kind(f"element of {what}", element, *parts) for element in value]
    return {name: of_kind(name, part, parts[1]) for name, part in value.items()} if parts else value


def meaning(about):
    """What a field of `Settings` means, and its allowed values unless it is a flag."""
    help, allowed = about.metadata["help"], about.metadata["allowed"]
    return help if about.type is bool else f"{help}: {', '.join(allowed) if isinstance(allowed, tuple) else allowed}"


def described(about):
    """A line about a field, for the docstring of `Settings`."""
    return f"    {about.name} = {about.default!r}: {meaning(about)}"
