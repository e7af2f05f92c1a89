"""mine.py: the student's file of right answers, each with all that it uses, and the framework that they make.

    # --- allreduce: kept by check ---
    import d2lmgpu as d2l


    def allreduce(data):
        ...


    # --- end of allreduce ---

The text between these two lines is replaced when another version of the answer passes, and the file as it was before
is kept under another name in the same folder. All other text is the student's, and is not changed.

`my_framework` puts the answers to work. In a student's copy of the course, the library's functions stand in for missing
answers, and are labelled as such. In the repository, which has no mine.py, the course's solutions stand in for the
student's answers.
"""

import ast
import contextlib
import inspect
import re
import runpy
import symtable
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from ..base.files import backup, write_file
from ..collectives import allreduce, ring
from ..devices import put
from ..parallel import split_batch, train_batch
from .checking import EXERCISES, TOPICS, judge
from .course import FILE, begun, find_notebooks
from .exercise import in_words, kind

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


CORE = {name: number for number in (1, 2, 4, 5, 6) for name, each in TOPICS[number - 1].items() if not each.optional}
"""For each exercise of the core path, the number of its notebook."""


def sum_on(arrays, device):
    """A stand-in: the sum of arrays from any devices, on ``device``."""
    return sum((put(array, device) for array in arrays[1:]), put(arrays[0], device))


STAND_INS = {
    "sum_on": sum_on,
    "log_softmax": EXERCISES["log_softmax"].right,
    "split_batch": split_batch,
    "allreduce": allreduce,
    "train_batch": train_batch,
    "examples_per_second": EXERCISES["examples_per_second"].right,
    "ring": ring,
}
"""The library's stand-ins for the answers that training uses, in the order of the notebooks."""


class Framework(NamedTuple):
    """The functions to train with, and where they come from.

    ``use``: for each name in `STAND_INS`, a function, which is the student's if that is right. ``answers``: all answers
    to the core path's exercises. ``whose``: for each of these exercises, where its answer comes from, in words
    ("yours"), or why the library's function is used. ``text``: the answers' source.
    """

    use: dict
    answers: dict
    whose: dict
    text: str

    @property
    def lines(self):
        """The number of lines in the text that are not empty."""
        return sum(bool(line.strip()) for line in self.text.splitlines())


def my_framework():
    """The `Framework` made from mine.py in a student's copy of the course, or elsewhere from the course's solutions.

    Raises ValueError if mine.py cannot be read or run.
    """
    mine, use = begun(), {}
    # an installed package has no solutions
    files = [mine.folder / FILE] if mine else (find_notebooks()[0].parent / "solutions").glob("*.py")
    answers, text = _answers_in(sorted(file for file in files if file.exists()))
    own = "yours" if mine else "the course's solution"
    whose = {name: own if name in answers else "missing" for name in CORE}
    for name, stand_in in STAND_INS.items():
        use[name] = answers.get(name, stand_in)
        if name not in answers:
            whose[name] = "missing; the library's is used"
        elif not (verdict := judge(name, answers[name])).right:
            use[name], whose[name] = stand_in, "not right; the library's is used"
            print(verdict.says)
    return Framework(use, answers, whose, text)


def _answers_in(paths):
    """The answers to the core path's exercises in Python files, and the text of the files that have some."""
    found, texts = {}, []
    for path in paths:
        try:
            names, text = runpy.run_path(str(path)), path.read_text(encoding="utf-8-sig")
        except Exception as error:  # whatever the student's file does
            raise ValueError(f"{path.name} cannot be run: {in_words(error)}; mend it") from error
        answers = {name: names[name] for name in CORE if callable(names.get(name))}
        found |= answers
        texts += [text] * bool(answers)
    return found, "\n".join(texts)


def add_to_mine(*functions):
    """In a student's copy of the course, put functions that are not exercises into mine.py, with all they use.

    Returns whether this is a student's copy. Raises ValueError if one of them has the name of an exercise: putting an
    answer into mine.py is left to `check`, which keeps only right ones.
    """
    mine = begun()
    for function in functions:
        if (name := function.__name__) in EXERCISES:
            raise ValueError(f"add_to_mine: {name} is an exercise; check({name!r}, {name}) keeps a right answer")
        if mine:
            print(f"{name}: {try_to_keep(name, function, mine.folder / FILE)}.")
    return mine is not None
