"""How large the house is: the code lines of the package, and what one must open to follow a file.

Code lines are those without blank lines, comments and docstrings. To follow a file is to open the files of the package
that it imports at its top, through a room's __init__ to the file that defines a name, and what these import.
"""

import ast
import functools
import io
import tokenize
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "d2lmgpu"
NOT_CODE = {getattr(tokenize, name) for name in "COMMENT NL NEWLINE INDENT DEDENT ENDMARKER".split()}


@functools.cache
def tree_of(file):
    return ast.parse(file.read_text(encoding="utf-8"))


def code_lines(file):
    """How many lines of a file have code."""
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(file.read_text(encoding="utf-8")).readline):
        if token.type not in NOT_CODE:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, node.end_lineno + 1))
    return len(lines)


def imports_of(file):
    """What a file imports at its top from the package: (module, name, the name that it gets here)."""
    for node in tree_of(file).body:
        if isinstance(node, ast.ImportFrom) and node.level:
            module = file.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            yield from ((module, alias.name, alias.asname or alias.name) for alias in node.names)


def file_that_defines(module, name):
    """The file that defines a ``name`` which ``module``, a path without ending, offers."""
    if inner := _file_of(module / name):
        return inner
    file = _file_of(module)
    if file.name == "__init__.py":
        for other, imported, called in imports_of(file):
            if called == name:
                return file_that_defines(other, imported)
    return file


def _file_of(module):
    return next(filter(Path.is_file, (module.with_suffix(".py"), module / "__init__.py")), None)


def followed(file):
    """All files that one must open to follow this one, a set."""
    seen, left = set(), [file]
    while left:
        file = left.pop()
        if file not in seen:
            seen.add(file)
            left += [file_that_defines(module, name) for module, name, _ in imports_of(file)]
    return seen
