"""Fields of `Settings`: how one is declared, and what can be asked of it by the command line, files and documents."""

from dataclasses import field
from functools import partial
from types import UnionType
from typing import get_args

from ..arguments import MAX_WHOLE, check_flag, check_name, check_number, check_whole, plain

MAX_NUMBER = 1e6
"""Beyond all sense; but within what float32 can take, also times the number of devices."""


def setting(default, help, allowed, check=None, called=None, same=False, recorded=True, **others):
    """A field of `Settings`.

    ``allowed``: its names, or in words what else it may be; ``check(name, value)`` raises ValueError for anything else,
    where these are not names alone. ``called``: its name in the command line and in a
    history, if it is another. ``same``: whether a resumed run must agree in it. ``recorded``: whether a history
    tells it: not what only decides how the same is computed. ``without``: see `flag`. ``read(value)``: what is kept of
    what is given.
    """
    check = check or partial(check_name, known=allowed)
    about = {"help": help, "allowed": allowed, "check": check, "called": called, "same": same}
    return field(default=default, metadata=about | {"recorded": recorded, "without": None, "read": plain} | others)


def flag(help, without=None, **about):
    """A field that is True or False; True unless told otherwise if ``without`` says what is done without it."""
    return setting(without is not None, help, "True or False", check_flag, without=without, **about)


def whole(default, help, least=1, most=MAX_WHOLE, **about):
    """A field that is a whole number within these limits."""
    return setting(default, help, f"at least {least}", partial(check_whole, least=least, most=most), **about)


def number(default, help, above=False, **about):
    """A field that is a number, ``above`` 0 or at least 0."""
    limit, allowed = ("above", "above 0") if above else ("least", "at least 0")
    return setting(default, help, allowed, partial(check_number, **{limit: 0}, most=MAX_NUMBER), **about)


def called(about):
    """The name of a field of `Settings` in the command line (with dashes) and in a history."""
    return about.metadata["called"] or about.name


def kind_of(about):
    """The type that a field's value has in a command and in a file: the first of those that it may be in a program."""
    return get_args(about.type)[0] if isinstance(about.type, UnionType) else about.type


def meaning(about):
    """What a field of `Settings` means, and what it may be, but for flags."""
    help, allowed = about.metadata["help"], about.metadata["allowed"]
    return help if about.type is bool else f"{help}: {', '.join(allowed) if isinstance(allowed, tuple) else allowed}"


def described(about):
    """A field in a line of the docstring."""
    return f"    {about.name} = {about.default!r}: {meaning(about)}"
