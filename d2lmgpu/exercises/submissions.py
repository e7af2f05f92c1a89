"""Find what a student has handed in: which file or notebook answers which exercise. Nothing is run here.

A notebook's answers are its functions. They are extracted with its imports, classes and those assignments that call
nothing, so that they run without its experiments. Each of these statements may fail without harm to the others.

A cell is read by IPython's own code, since only that knows which lines are commands, such as ``%time``, and which are
Python. Without IPython, cells without such commands can be read.
"""

import ast
import symtable
from importlib.util import decode_source
from pathlib import Path

from ..arguments import shortened
from ..devices.packages import optional
from ..folders import visible
from ..output import read_json
from .mine import FILE
from .topics import EXERCISES

BEGIN = "from __future__ import annotations\n\n__name__ = '__main__'\ndisplay = lambda *_, **__: None\n"
"""How a notebook's program begins: annotations may name what was left out, and what IPython defines is there."""

END = "from unittest.mock import MagicMock as get_ipython\n"
"""How a notebook's program ends: IPython's commands in its functions, such as ``!ls``, do nothing."""

RUN_HERE = "time", "capture", "prun", "debug"
"""IPython's magics that run a cell's code as if they were not there."""

IPYTHON = "IPython.core.inputtransformer2"
"""IPython's module that makes Python of a cell's text."""

KEPT = ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef
BLOCK = ast.stmt, ast.ExceptHandler, ast.match_case
NO_FUNCTION = ast.Constant, ast.UnaryOp, ast.BinOp, ast.List, ast.ListComp, ast.Dict


def find_answers(folder, names, made):
    """The files that answer the exercises ``names`` in a student's folder.

    For each exercise, mine.py comes first, then the last notebook that defines and checks it, then the first notebook
    that defines it. Code from notebooks is written to files in the folder ``made``. Returns a dict from names to paths,
    and a list of sentences that say what cannot be used, and why.
    """
    folder, found, unusable = Path(folder), {}, []
    try:
        notebooks = [path for path in visible(folder) if path.suffix == ".ipynb"]
    except OSError as error:
        return {}, [f"the folder cannot be read: {error.strerror}"]
    for notebook in notebooks:
        file = Path(made, notebook.name)  # so that errors name the notebook
        try:
            source, defined, checked, unread = source_of(notebook)
            file.write_text(source, encoding="utf-8")
        except Exception as error:  # whatever is wrong with one file, the others are used
            unusable.append(_sentence(notebook.name, error))
            continue
        unusable += (f"{notebook.name}, {sentence}" for sentence in unread)
        here = [name for name in names if name in defined or ("*" in defined and name in checked)]
        found |= {name: file for name in here if name not in found or name in checked}
    mine, text = folder / FILE, ""
    try:
        text = decode_source(mine.read_bytes()) if mine.exists() else ""
        defined = names_in(text)
        found |= {name: mine for name in names if name in defined or ("*" in defined and name not in found)}
    except Exception as error:
        unusable.append(_sentence(FILE, error, text))
    return found, unusable


def _sentence(where, error, text=""):
    """What is wrong with a file, or with a cell. A SyntaxError is about a line of its ``text``."""
    if not isinstance(error, SyntaxError):
        return f"{where}: {getattr(error, 'strerror', None) or str(error) or type(error).__name__}"
    wrong = (error.text or "").strip()
    same = [number for number, line in enumerate(text.splitlines(), 1) if wrong and line.strip() == wrong]
    number = f", line {min(same, key=lambda number: abs(number - error.lineno))}" if same else ""
    return f"{where}{number}: {type(error).__name__}: {error.msg}" + (f": {shortened(wrong)}" if wrong else "")


def names_in(text):
    """The names that a Python file may define, and "*" if it may define others by ``import *``.

    Raises SyntaxError, which has the line, if Python cannot compile the file.
    """
    try:
        compile(text, FILE, "exec", dont_inherit=True)
    except SyntaxError as error:
        error.text = error.text or (error.lineno and text.splitlines()[error.lineno - 1])
        raise
    symbols = symtable.symtable(text, FILE, "exec").get_symbols()
    found = {symbol.get_name() for symbol in symbols if symbol.is_assigned() or symbol.is_imported()}
    return found | {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.alias) and node.name == "*"}


def source_of(notebook):
    """A notebook's definitions as a Python program, the names that it defines and checks, and what cannot be read.

    The last is a list of sentences, each on a cell, of which the statements above the wrong one are used if IPython
    can tell them apart. Raises ValueError if the file is not a notebook, OSError if it cannot be read.
    """
    content, program, unread = read_json(notebook.read_bytes()), BEGIN, []
    called, defined, checked = {"check"}, set(), set()
    try:
        texts = [_code(cell) for sheet in content.get("worksheets", [content]) for cell in sheet["cells"]]
    except (AttributeError, TypeError, KeyError):
        raise ValueError("this is not a notebook") from None
    for number, text in enumerate(texts, 1):
        try:
            for node in read_cell(text):
                answers = dict(_checks(node, called))
                checked |= answers.keys()
                for definition in (*_definitions(node), *filter(None, answers.values())):
                    statement = ast.unparse(definition) + "\n"
                    defined |= names_in(BEGIN + statement)
                    program += statement
        except Exception as error:
            why = isinstance(error, SyntaxError) and optional(IPYTHON)[1]
            advice = f"; if this is meant for IPython, that {why}: pip install ipython" if why else ""
            unread.append(_sentence(f"cell {number}", error, text) + advice)
    return program + END * ("get_ipython" in program), defined, checked, unread


def _code(cell):
    """The code in a cell of a notebook in format 4, or in format 3, where it has another name."""
    text = "".join(cell.get("source") or cell.get("input") or ())
    return text.replace("\r\n", "\n") if cell.get("cell_type", "code") == "code" else ""


def read_cell(text):
    """A cell's statements as IPython reads them. Raises SyntaxError if it cannot."""
    if module := optional(IPYTHON)[0]:
        text = module.TransformerManager().transform_cell(text)
    return _InPlace().visit(ast.parse(text)).body


class _InPlace(ast.NodeTransformer):
    """Puts the code that IPython's magics run, as in ``%time step()`` or a cell under ``%%time``, in their place."""

    def visit_Expr(self, node):
        return _run_by(node.value) or self.generic_visit(node)

    def visit_Call(self, node):
        match _run_by(node):
            case [ast.Expr(value)]:
                return value
        return self.generic_visit(node)


def _run_by(node):
    """The statements that a magic runs, if the node calls one that does."""
    match node:
        case ast.Call(ast.Attribute(ast.Call(ast.Name("get_ipython"))), [ast.Constant(magic), line, *cell]):
            code = cell or [line] * (magic == "time")
            return read_cell(ast.literal_eval(code[0])) if code and magic in RUN_HERE else []
    return []


def _checks(tree, called):
    """The exercises in calls of `check`, each with an assignment if the answer has another name, as ``repaired`` has.

    ``called``: the names of `check`, to which those are added under which it is imported.
    """
    for node in ast.walk(tree):
        match node:
            case ast.alias("check", str(own)):
                called.add(own)
            case ast.Call(ast.Name(function) | ast.Attribute(attr=function), arguments, keywords) if function in called:
                given = dict(zip(("name", "answer"), arguments, strict=False))
                given |= {keyword.arg: keyword.value for keyword in keywords}
                name, answer = (given.get(each, ast.Constant(None)) for each in ("name", "answer"))
                if isinstance(name, ast.Constant) and name.value in EXERCISES:
                    named = isinstance(answer, ast.Constant) or ast.unparse(answer) == name.value
                    target = [ast.Name(name.value, ast.Store())]
                    yield name.value, None if named else _may_fail(ast.Assign(target, answer))


def _definitions(node):
    """What a statement, or those in its blocks, define without the notebook's experiments, as a list of statements."""
    if getattr(node, "module", None) == "__future__":  # BEGIN has all that it may import
        return []
    if isinstance(node, KEPT) or _is_kept(node):
        return [_may_fail(node)]
    blocks = [inner for inner in ast.iter_child_nodes(node) if isinstance(inner, BLOCK)]
    # what is meant to happen comes last, and wins
    blocks.sort(key=lambda inner: inner in node.body if isinstance(node, ast.If) else isinstance(inner, ast.stmt))
    inside = [definition for inner in blocks for definition in _definitions(inner)]
    if isinstance(node, ast.If) and inside and not _runs(node.test):
        body, other = ([each for inner in block for each in _definitions(inner)] for block in (node.body, node.orelse))
        return [_may_fail(ast.If(node.test, body or [ast.Pass()], other), inside)]
    return inside


def _is_kept(node):
    """Whether this is an assignment that calls nothing, and does not put, say, a number in the place of an answer."""
    if not isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) or _runs(node):
        return False
    names = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)}
    return not isinstance(node.value, NO_FUNCTION) or names.isdisjoint(EXERCISES)


def _runs(node):
    """Whether an expression calls something when it is evaluated, or a statement, or changes an object."""
    match node:
        case ast.Lambda() | ast.Call(ast.Name("partial") | ast.Attribute(attr="partial")):
            return False
        case ast.Call() | ast.Await() | ast.Attribute(ctx=ast.Store()) | ast.Subscript(ctx=ast.Store()):
            return True
    return any(map(_runs, ast.iter_child_nodes(node)))


def _may_fail(node, otherwise=None):
    """Put a statement into a ``try``, since it may need something left out, such as a default that was measured."""
    handler = ast.ExceptHandler(ast.Name("Exception", ast.Load()), None, otherwise or [ast.Pass()])
    return ast.fix_missing_locations(ast.Try([node], [handler], [], []))
