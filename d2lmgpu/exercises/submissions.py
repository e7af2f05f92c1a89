"""What a student has handed in: which file, or which notebook, has an answer to which exercise. Nothing is run.

A notebook's answers are its functions. So that they run without its experiments, they are taken out of it, with its
imports, classes and constants, each of which may fail.
"""

import ast
import json
import re
from pathlib import Path
from typing import NamedTuple

MINE = "mine.py"
"""The file of a student's answers."""

LARGEST = 50 * 2**20
"""Bytes of a notebook or a file of answers."""

KEPT = ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef


class Answer(NamedTuple):
    """Where an answer is: the name of a Python file and, if that is to be made from a notebook, its ``source``."""

    file: str
    source: str | None = None


def find_answers(folder, names):
    """Which of the exercises ``names`` a student's folder has answers to: {name: `Answer`}.

    mine.py comes before notebooks; of these the one that checks the answer, or else the first.
    """
    folder, found = Path(folder), {}
    for notebook in sorted(folder.glob("*.ipynb")):
        source, checked = source_of(notebook)
        defined = names_in(source) or set()
        for name in names:
            if name in defined and (name not in found or name in checked):
                found[name] = Answer(f"{notebook.stem}_answers.py", source)
    mine = folder / MINE
    if (text := _read(mine)) is not None:
        defined = names_in(text)
        found |= {name: Answer(MINE) for name in names if defined is None or name in defined}
    return found


def names_in(text):
    """The names that a Python file gives on its top level; None if that cannot be known before it is run."""
    tree = _parse(text)
    if tree is None:
        return None
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name)
    return None if "*" in found else found


def source_of(notebook):
    """The functions, classes, imports and constants of a notebook, and the names that it checks.

    The first is a Python program, "" for what is no notebook.
    """
    try:
        cells = json.loads(_read(notebook) or "")["cells"]
        texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return "", []
    parts = []
    for text in texts:
        text = re.sub(r"^\s*[%!?].*$", "", text, flags=re.MULTILINE)  # IPython's own lines
        tree = _parse(text)
        for node in tree.body if tree else ():
            if isinstance(node, KEPT) or _is_constant(node):
                parts.append(ast.unparse(_that_may_fail(node)))
    return "\n\n\n".join(parts) + "\n", re.findall(r"^check\(['\"](\w+)", "\n".join(texts), re.MULTILINE)


def _that_may_fail(node):
    """A statement that needs what is left out, such as a default that an experiment measured, harms no other."""
    handler = ast.ExceptHandler(ast.Name("Exception", ast.Load()), None, [ast.Pass()])
    return ast.fix_missing_locations(ast.Try([node], [handler], [], []))


def _is_constant(node):
    if not isinstance(node, ast.Assign) or not all(isinstance(target, ast.Name) for target in node.targets):
        return False
    try:
        ast.literal_eval(node.value)
    except (ValueError, TypeError, MemoryError, RecursionError):
        return False
    return True


def _read(file):
    """The bytes of a file of the student's own; None for anything else, such as a link or a folder."""
    if file.is_symlink() or not file.is_file() or file.stat().st_size > LARGEST:
        return None
    return file.read_bytes()


def _parse(text):
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
