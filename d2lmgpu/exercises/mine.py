"""mine.py: the student's file of right answers, each with the imports, helpers and constants that it uses.

    # --- allreduce: kept by check ---
    import d2lmgpu as d2l


    def allreduce(data):
        ...


    # --- end of allreduce ---

The text between these two lines is replaced when another version of the answer passes, and the file as it was before
is kept under another name in the same folder. All other text is the student's, and is not changed.
"""

import ast
import codecs
import contextlib
import inspect
import itertools
import re
import symtable
import sys
import textwrap
from pathlib import Path
from types import ModuleType

from ..output import keep_aside, write_file
from .results import kind

FILE = "mine.py"
BEGIN, END = "# --- {}: kept by check ---", "# --- end of {} ---"
MARKER = re.compile(r"^# --- (?:(\w+): kept by check|end of (\w+)) ---[ \t]*(?=\r?$)", re.MULTILINE)
"""Matches a line that marks an answer. Group 1 is the name in the line before the answer, group 2 that in the last."""

MODULE = "mine"
"""The name of the module from which answers import what the file already contains."""


class CannotKeep(Exception):
    """An answer cannot be kept with all that it needs; the message says why."""


def keep(name, answer, path):
    """Put the source of ``answer``, a function, into the file ``path`` under ``name``. Returns whether that changed it.

    The imports, helpers and constants that it uses are put there, too. If an earlier version is replaced, the earlier
    file is kept beside it, and a message is printed. If the earlier version has lost a marker, it stays, and the new
    version is put at the end, so that Python uses the new one. Raises `CannotKeep` with the reason, OSError if the file
    cannot be read or written, UnicodeDecodeError if it is not UTF-8.
    """
    path = Path(path)
    content = path.read_bytes() if path.exists() else b""
    encoding = "utf-8-sig" if content.startswith(codecs.BOM_UTF8) else "utf-8"
    text = content.decode(encoding)
    source = source_of(name, answer, kept_in(text))
    if marker := MARKER.search(source):
        raise CannotKeep(f"its source contains the line {marker[0]}, which marks answers in {path.name}; change it")
    new, replaces = _with_block(text, name, source)
    if new == text:
        return False
    aside = keep_aside(path) if replaces else None
    write_file(path, lambda file: file.write(new.encode(encoding)))
    sys.modules.pop(MODULE, None)  # the next import reads it anew
    begin, end = BEGIN.format(name), END.format(name)
    if aside:
        print(f"  ({path.name} as it was: {aside.name})")
    elif begin in text or end in text:
        print(f"  (The lines {begin} and {end} are not a pair: the old text stays, with the new version at the end.)")
    return True


def try_to_keep(name, answer, path):
    """Call `keep` for a function, and say in words what happened."""
    try:
        return f"{'kept' if keep(name, answer, path) else 'already'} in {FILE}"
    except (CannotKeep, OSError, UnicodeDecodeError) as error:
        return f"not kept in {FILE}: {error}"


def _with_block(text, name, source):
    """A file's text with an answer's source, and whether it replaced an earlier version (or is at the end)."""
    newline = "\r\n" if "\r\n" in text else "\n"
    block = f"{BEGIN.format(name)}\n{source}\n{END.format(name)}".replace("\n", newline)
    if place := _blocks(text).get(name):
        return text[: place.start] + block + text[place.stop :], True
    between = newline * (0 if not text else 2 if text.endswith("\n") else 3)
    return text + between + block + newline, False


def kept_in(text):
    """The names of the answers in a file's text."""
    return {name for name, place in _blocks(text).items() if place}


def _blocks(text):
    """Where the answers are in a file's text: for each name, a slice from the answer's first marker through its second.

    The slice is None if the marker after the first one is not the same answer's second one. If a name occurs several
    times, the last one counts, as it does for Python.
    """
    return {
        begin[1]: slice(begin.start(), end.end()) if end and end[2] == begin[1] else None
        for begin, end in itertools.pairwise([*MARKER.finditer(text), None])
        if begin[1]
    }


def source_of(name, answer, kept=()):
    """A Python program that defines ``answer`` as ``name``, and everything that it uses except what is in ``kept``.

    Raises `CannotKeep`.
    """
    if getattr(answer, "__module__", None) == MODULE:
        raise CannotKeep(f"it comes from {FILE} already")
    imports, parts = {}, {}
    _collect(answer, imports, parts, {*kept} - {name})
    if answer.__name__ != name:
        parts[name] = f"{name} = {answer.__name__}"
    lines = sorted(imports.values(), key=lambda line: (line.startswith("from"), line))
    return "\n\n\n".join([*(["\n".join(lines)] if lines else []), *parts.values()]) + "\n\n"


def _collect(function, imports, parts, kept):
    """Collect a function and everything that it uses, with helpers before the functions that use them."""
    if not inspect.isfunction(function) or function.__name__ == "<lambda>":
        raise CannotKeep("only functions defined with def can be kept")
    if function.__closure__:
        raise CannotKeep(f"{function.__name__} uses variables of the function in which it is defined")
    try:
        text = textwrap.dedent(inspect.getsource(function)).strip()
    except (OSError, TypeError):
        raise CannotKeep(f"the source of {function.__name__} is not available") from None
    parts[function.__name__] = None  # stands for it while its helpers are collected: it may use itself
    for use in _used_by(text):
        if use in function.__globals__ and use not in parts and use not in imports and use not in kept:
            _collect_one(use, function.__globals__[use], function, imports, parts, kept)
    del parts[function.__name__]
    parts[function.__name__] = text


def _collect_one(use, value, function, imports, parts, kept):
    home, own = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if isinstance(value, ModuleType):
        imports[use] = f"import {value.__name__}" + ("" if value.__name__ == use else f" as {use}")
    elif home == MODULE or (own and home != function.__module__ and getattr(sys.modules.get(home), own, None) is value):
        if home != MODULE or use != own:
            imports[use] = f"from {_public(home, own, value)} import {own}" + ("" if own == use else f" as {use}")
    elif inspect.isfunction(value) and value.__name__ == use:
        _collect(value, imports, parts, kept)
    elif inspect.isclass(value):
        parts[use] = textwrap.dedent(inspect.getsource(value)).strip()
    else:
        parts[use] = f"{use} = {_literal(use, value)}"


def _public(home, own, value):
    """The outermost package from which ``value`` can be imported by its name ``own``; ``home`` is its module.

    If its own package does not offer it, this may be another package that does.
    """
    top, *inner = home.split(".")
    rooms = sorted(name for name in sys.modules if name.rpartition(".")[0] == top) if len(inner) > 1 else []
    offers = (name for name in (top, *rooms) if getattr(sys.modules.get(name), own, None) is value)
    return next(offers, home)


def _literal(use, value):
    """The Python source of a constant."""
    with contextlib.suppress(Exception):  # its repr, and its comparison, may raise anything
        if ast.literal_eval(text := repr(value)) == value:
            return text
    raise CannotKeep(f"it uses {use}, {kind(value)} of the notebook; make it in the function, or pass it in")


def _used_by(text):
    """The global names that a function's text uses in its code, defaults, annotations and decorators."""
    try:
        tables = [symtable.symtable(text, FILE, "exec")]
    except (SyntaxError, ValueError) as error:
        raise CannotKeep("its source alone is not valid Python") from error
    for table in tables:  # which become more
        tables += table.get_children()
        yield from (symbol.get_name() for symbol in table.get_symbols() if symbol.is_global())
