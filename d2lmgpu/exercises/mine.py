"""mine.py: answers that passed, each with all that it needs, in the student's own file.

    # --- allreduce: kept by check ---
    import d2lmgpu as d2l


    def allreduce(data):
        ...


    # --- end of allreduce ---

What stands between such lines is replaced when another version passes. All other text is the student's, and stays.
"""

import ast
import dis
import inspect
import re
import sys
import textwrap
from pathlib import Path
from types import CodeType, ModuleType

from ..output import write_file
from .checking import kind

FILE = "mine.py"
BEGIN, END = "# --- {}: kept by check ---", "# --- end of {} ---"

MODULE = "mine"
"""As which answers import what is in the file already."""


class CannotKeep(Exception):
    """An answer's source cannot be had, or not with all that it needs; the message says why."""


def keep(name, answer, path):
    """Put the source of ``answer``, a function, into the file ``path`` under ``name``. Returns whether that changed it.

    With it come the imports, the helpers and the constants that it uses. Raises `CannotKeep` with
    the reason, OSError if the file cannot be read or written.
    """
    path = Path(path)
    text = path.read_bytes().decode("utf-8") if path.exists() else ""
    block = f"{BEGIN.format(name)}\n{source_of(name, answer, kept_in(text))}\n{END.format(name)}\n"
    found = _block_of(name).search(text)
    if found:
        new = text[: found.start()] + block + text[found.end() :]
    else:
        new = text + ("\n" if text and not text.endswith("\n") else "") + ("\n\n" if text else "") + block
    if new != text:
        write_file(path, lambda file: file.write(new.encode()))
        sys.modules.pop(MODULE, None)  # who imports it next gets this one
    return new != text


def kept_in(text):
    """The names of the answers in a file's text."""
    names = re.findall(r"^" + re.escape(BEGIN).replace(r"\{\}", r"(\w+)") + "$", text, re.MULTILINE)
    return {name for name in names if _block_of(name).search(text)}


def _block_of(name):
    begin, end = re.escape(BEGIN.format(name)), re.escape(END.format(name))
    return re.compile(rf"^{begin}\n.*?^{end}\n", re.MULTILINE | re.DOTALL)


def source_of(name, answer, kept=()):
    """A Python program that defines ``answer`` as ``name``, and what it uses that is not in ``kept``.

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
    """Enter a function and all that it uses, helpers before whoever uses them."""
    if not inspect.isfunction(function) or function.__name__ == "<lambda>":
        raise CannotKeep("only functions that begin with def have a text that can be kept")
    if function.__closure__:
        raise CannotKeep(f"{function.__name__} uses variables of a function around it")
    try:
        text = textwrap.dedent(inspect.getsource(function)).strip()
    except (OSError, TypeError):
        raise CannotKeep(f"the text of {function.__name__} is not to be had") from None
    parts[function.__name__] = None  # it may use itself
    for use in (*_used_by(function), *_used_to_define(text)):
        if use in function.__globals__ and use not in parts and use not in imports and use not in kept:
            _collect_one(use, function.__globals__[use], function, imports, parts, kept)
    del parts[function.__name__]
    parts[function.__name__] = text


def _collect_one(use, value, function, imports, parts, kept):
    if isinstance(value, ModuleType):
        imports[use] = f"import {value.__name__}" + ("" if value.__name__ == use else f" as {use}")
        return
    home, own = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if home == MODULE or (own and home != function.__module__ and getattr(sys.modules.get(home), own, None) is value):
        if home != MODULE or use != own:
            imports[use] = f"from {_public(home, own, value)} import {own}" + ("" if own == use else f" as {use}")
    elif inspect.isfunction(value) and value.__name__ == use:
        _collect(value, imports, parts, kept)
    elif inspect.isclass(value):
        parts[use] = textwrap.dedent(inspect.getsource(value)).strip()
    else:
        parts[use] = f"{use} = {_literal(use, value)}"


def _public(home, own, value):
    """The outermost package that has ``value`` by the name ``own``, as its module ``home`` has it."""
    parent = home.rpartition(".")[0]
    return _public(parent, own, value) if getattr(sys.modules.get(parent), own, None) is value else home


def _literal(use, value):
    """A constant as Python writes it."""
    try:
        if ast.literal_eval(text := repr(value)) == value:
            return text
    except Exception:  # whatever its repr is, or its comparison
        pass
    raise CannotKeep(f"it uses {use}, {kind(value)} of the notebook's; make it in the function, or an argument")


def _used_to_define(text):
    """The names in a function's defaults, annotations and decorators."""
    try:
        (function,) = ast.parse(text).body
    except (SyntaxError, ValueError) as error:
        raise CannotKeep("its text alone is no Python") from error
    function.body = []
    yield from (node.id for node in ast.walk(function) if isinstance(node, ast.Name))


def _used_by(function):
    """The global names that a function's code uses, that of functions within it included."""
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        for instruction in dis.get_instructions(code):
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                yield instruction.argval
