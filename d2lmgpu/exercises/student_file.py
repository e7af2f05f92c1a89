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
import contextlib
import inspect
import re
import symtable
import sys
import textwrap
from pathlib import Path
from types import ModuleType

from ..base.files import backup, write_file
from .results import kind

FILE = "mine.py"
BLOCK = re.compile(r"^# --- (\w+): kept by check ---$(?:\n(?!# --- \w+: kept).*)*?\n# --- end of \1 ---$", re.MULTILINE)
"""Matches an answer in the file with its two marks, and no other first mark between. Group 1 is its name."""

MODULE = "mine"
"""The name of the module from which answers import what the file already contains."""


def keep_answer(name, answer, path):
    """Put the source of ``answer``, a function, into the file ``path`` under ``name``. Returns whether that changed it.

    The imports, helpers and constants that it uses are put there, too. If an earlier version is replaced, the earlier
    file is kept beside it, and a message is printed. Raises ValueError if the answer cannot be kept with all that it
    needs, or if the file is not UTF-8; OSError if the file cannot be read or written, or if the source is not known.
    """
    path = Path(path)
    text = path.read_text(encoding="utf-8-sig") if path.exists() else ""
    blocks = {block[1]: block for block in BLOCK.finditer(text)}  # if a name occurs twice, the last, as for Python
    source = source_of(name, answer, blocks)
    new = f"# --- {name}: kept by check ---\n{source}\n# --- end of {name} ---"
    if old := blocks.get(name):
        if old[0] == new:
            return False
        print(f"  ({path.name} as it was: {backup(path).name})")
        text = text[: old.start()] + new + text[old.end() :]
    else:
        text += f"\n\n{new}\n"
    write_file(path, lambda file: file.write(text.encode()))
    sys.modules.pop(MODULE, None)  # the next import reads it anew
    return True


def try_to_keep(name, answer, path):
    """Call `keep_answer` for a function, and say in words what happened."""
    try:
        return f"{'kept' if keep_answer(name, answer, path) else 'already'} in {FILE}"
    except Exception as error:  # whatever is odd about a function or a file is no reason to end a notebook
        return f"not kept in {FILE}: {error}"


def source_of(name, answer, kept=()):
    """A Python program that defines ``answer`` as ``name``, and everything that it uses except what is in ``kept``.

    Raises ValueError if it uses something that the program cannot define, OSError if a function's source is not known.
    """
    if getattr(answer, "__module__", None) == MODULE:
        raise ValueError(f"it comes from {FILE} already")
    imports, parts = {}, {}
    _collect(answer, imports, parts, {*kept} - {name})
    if answer.__name__ != name:
        parts[name] = f"{name} = {answer.__name__}"
    lines = sorted(imports.values(), key=lambda line: (line.startswith("from"), line))
    return "\n\n\n".join([*(["\n".join(lines)] if lines else []), *parts.values()]) + "\n\n"


def _collect(function, imports, parts, kept):
    """Collect a function and everything that it uses, with helpers before the functions that use them."""
    if not inspect.isfunction(function) or function.__name__ == "<lambda>":
        raise ValueError("only functions defined with def can be kept")
    if function.__closure__:
        raise ValueError(f"{function.__name__} uses variables of the function in which it is defined")
    text = textwrap.dedent(inspect.getsource(function)).strip()
    parts[function.__name__] = None  # stands for it while its helpers are collected: it may use itself
    for use in _used_by(text):
        if use in function.__globals__ and use not in parts and use not in imports and use not in kept:
            _collect_one(use, function.__globals__[use], function, imports, parts, kept)
    del parts[function.__name__]
    parts[function.__name__] = text


def _collect_one(use, value, function, imports, parts, kept):
    home, own = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    own = value.__name__ if isinstance(value, ModuleType) else own
    alias = "" if own == use else f" as {use}"
    if isinstance(value, ModuleType):
        imports[use] = f"import {own}{alias}"
    elif home == MODULE:  # it is in the file already
        if alias:
            parts[use] = f"{use} = {own}"
    elif own and home != function.__module__ and getattr(sys.modules.get(home), own, None) is value:
        imports[use] = f"from {_public(home, own, value)} import {own}{alias}"
    elif inspect.isfunction(value) and value.__name__ == use:
        _collect(value, imports, parts, kept)
    elif inspect.isclass(value):
        parts[use] = textwrap.dedent(inspect.getsource(value)).strip()
    else:
        parts[use] = f"{use} = {_literal(use, value)}"


def _public(home, own, value):
    """The outermost package from which ``value`` can be imported by its name ``own``; ``home`` is its module."""
    top, *inner = home.split(".")
    rooms = sorted(name for name in sys.modules if name.rpartition(".")[0] == top) if len(inner) > 1 else []
    return next(name for name in (top, *rooms, home) if getattr(sys.modules.get(name), own, None) is value)


def _literal(use, value):
    """The Python source of a constant."""
    with contextlib.suppress(Exception):  # its repr, and its comparison, may raise anything
        if ast.literal_eval(text := repr(value)) == value:
            return text
    raise ValueError(f"it uses {use}, {kind(value)} of the notebook; make it in the function, or pass it in")


def _used_by(text):
    """The global names that a function's text uses in its code, defaults, annotations and decorators."""
    tables = [symtable.symtable(text, FILE, "exec")]
    for table in tables:  # which become more
        tables += table.get_children()
        yield from (symbol.get_name() for symbol in table.get_symbols() if symbol.is_global())
