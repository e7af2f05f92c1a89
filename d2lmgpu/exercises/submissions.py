"""Find what a student has handed in: which file or notebook answers which exercise. Nothing is run here.

A notebook's answers are its functions. They are extracted with its imports, classes and constants, so that they run
without its experiments. Each of these statements may fail without harm to the others.
"""

import ast
import os
import re
import sys
from pathlib import Path

from ..folders import visible
from ..output import read_json
from .mine import FILE

LARGEST_FILE, LARGEST_TEXT = 50 * 2**20, 2**20
"""The most bytes of a notebook with its pictures, and the most bytes of a Python file or characters of a notebook."""

DEEPEST = 10_000
"""Python's recursion limit while programs are read, because a sum of 400 terms is a tree of 400 levels."""

KEPT = ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef


def find_answers(folder, names, made):
    """The files that answer the exercises ``names`` in a student's folder.

    For each exercise, mine.py comes first, then the last notebook that defines and checks it, then the first notebook
    that defines it. Code from notebooks is written to files in the folder ``made``. Returns a dict from names to files,
    which are "mine.py" or paths in ``made``, and a list of sentences that say what cannot be used.

    This function should run in a process of its own, since reading a file may take all memory, or crash Python.
    """
    sys.setrecursionlimit(DEEPEST)
    folder, found, unusable = Path(folder), {}, []
    if folder.is_symlink():
        return {}, ["the folder is a link; hand in the folder itself"]
    try:
        notebooks = [path for path in visible(folder) if path.suffix == ".ipynb"]
    except OSError as error:
        return {}, [f"the folder cannot be read: {error.strerror}"]
    for notebook in notebooks:
        try:
            source, checked = source_of(notebook)
        except (ValueError, OSError) as error:
            unusable.append(_named(notebook, error))
            continue
        file = Path(made, notebook.name)  # so that errors name the notebook
        file.write_text(source, encoding="utf-8")
        defined = names_in(source)
        found |= {name: str(file) for name in names if name in defined and (name not in found or name in checked)}
    mine = folder / FILE
    try:
        defined = names_in(_read(mine, LARGEST_TEXT)) if os.path.lexists(mine) else ()
        found |= {name: FILE for name in names if name in defined or "*" in defined}
    except (ValueError, OSError) as error:
        unusable.append(_named(mine, error))
    return found, unusable


def _named(file, error):
    return f"{file.name}: {getattr(error, 'strerror', None) or error}"


def names_in(text):
    """The names that a Python file may define, and "*" if there may be others, due to import * or invalid code."""
    tree = _parse(text)
    if tree is None:
        return {"*"}
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name)
    return found


def source_of(notebook):
    """A notebook's functions, classes, imports and constants as a Python program, and the names that it checks.

    Raises ValueError if the file is not a notebook, or is too large, OSError if it cannot be read.
    """
    try:
        cells = read_json(_read(notebook, LARGEST_FILE))["cells"]
        texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (TypeError, KeyError):
        raise ValueError("this is not a notebook") from None
    if sum(map(len, texts)) > LARGEST_TEXT:
        raise ValueError(f"its code is larger than {LARGEST_TEXT >> 20} MB")
    kept = []
    for text in texts:
        text = re.sub(r"^[ \t]*[%!?].*$", "", text, flags=re.MULTILINE)  # IPython's commands: %time, !ls, ?name
        if tree := _parse(text):
            kept += (_that_may_fail(node) for node in tree.body if isinstance(node, KEPT) or _is_constant(node))
    try:
        program = ast.unparse(ast.Module(kept, []))
    except (RecursionError, ValueError):
        raise ValueError("Python cannot write one of its statements, which is very long") from None
    return program, re.findall(r"^check\(['\"](\w+)", "\n".join(texts), re.MULTILINE)


def _that_may_fail(node):
    """Put a statement into a ``try``, since it may need something left out, such as a default that was measured."""
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


def _read(file, largest):
    """The bytes of a student's file. Raises ValueError for anything but a file, such as a link or a folder."""
    if file.is_symlink():
        raise ValueError("this is a link; hand in the file itself")
    if not file.is_file():
        raise ValueError("this is not a file")
    if file.stat().st_size > largest:
        raise ValueError(f"larger than {largest >> 20} MB")
    return file.read_bytes()


def _parse(text):
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
