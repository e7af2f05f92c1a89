"""A student's copy of the course: notebooks without outputs, the data that they read, and a file for answers."""

import json
import os
import re
from pathlib import Path
from typing import NamedTuple

from ..base.arguments import check_text
from ..base.files import as_json, shipped, target, write_file
from ..data.fashion_mnist import FILES, find_file
from .student_file import FILE

MINE = '''"""My own framework: `check` saves right answers to the course's exercises here.

A notebook uses them with ``from mine import allreduce``. When another version of an answer passes, check replaces the
text between that answer's two lines ``# ---``, and keeps the old file as mine.py.before-1, -2 and so on. All other
text in this file is yours. ``d2lmgpu check allreduce mine.py`` checks the answer to allreduce again.
"""
'''

_BEGIN = """from d2lmgpu.exercises import begin

begin({name!r})  # saves your predictions beside this notebook, and your answers in mine.py"""
LAST_TEXT = """## Looking back

Which of your predictions were wrong, and by how much? The worst ones come first."""
_LAST = """from d2lmgpu.exercises import look_back

look_back()"""


def copy_course(folder, data=True):
    """Copy the course into a folder, which is made if it does not exist. Files that exist already are not changed.

    ``data``: copy Fashion-MNIST's files, too, so that the copy needs no network. Returns a dict of the names of the
    files that were ``written``, and the names of those that existed before and were ``kept``.

    Raises OSError if the folder cannot be written, ValueError if it is the folder of the course's own notebooks or if
    this installation has no notebooks, DataError if it has no Fashion-MNIST.
    """
    folder, notebooks = Path(folder), find_notebooks()
    if target(folder) == target(notebooks[0].parent):
        raise ValueError(f"{folder} has the course's own notebooks; give another folder")
    files = {path.name: _for_a_student(path) for path in notebooks} | {FILE: MINE.encode()}
    if data:
        files |= {f"data/fashion-mnist/{name}": find_file(name).read_bytes() for name in FILES}
    copied = {"written": [], "kept": []}
    for name, content in files.items():
        path = folder / name
        exists = os.path.lexists(path)
        if not exists:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, lambda file, content=content: file.write(content))
        copied["kept" if exists else "written"].append(name)
    return copied


def find_notebooks():
    """The paths of the course's notebooks, in a clone or in an installed package.

    Raises ValueError if there are none.
    """
    found = sorted(shipped("notebooks").glob("*.ipynb"))
    if not found:
        raise ValueError("this installation of d2lmgpu has no notebooks; install it from a clone or a wheel")
    return found


def _for_a_student(path):
    """A notebook as bytes, without outputs, but with cells that keep predictions and answers."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    first, *cells = notebook["cells"]
    begin = _cell("code", "begin", _BEGIN.format(name=path.stem))
    last = _cell("markdown", "looking-back", LAST_TEXT), _cell("code", "look-back", _LAST)
    notebook["cells"] = [_plain(cell) for cell in (first, begin, *cells, *last)]
    return (as_json(notebook, indent=1, ensure_ascii=False) + "\n").encode()


def _plain(cell):
    """A cell as it was before it was run. Links to the repository's pages, which are not copied, become plain text."""
    if cell["cell_type"] == "code":
        return cell | {"outputs": [], "execution_count": None}
    text = re.sub(r"\[([^\]]+)\]\(\.\./[^)]*\)", r"\1", "".join(cell["source"]))
    return cell | {"source": text.splitlines(keepends=True)}


def _cell(kind, name, text):
    return {"cell_type": kind, "id": name, "metadata": {}, "source": text.splitlines(keepends=True)}


class Begun(NamedTuple):
    """A notebook that has called `begin`: its name, its folder, and the results that `compare` has shown or hidden."""

    name: str
    folder: Path
    seen: set


_begun = []  # at most one


def begin(name):
    """From now on, keep predictions under this name, and right answers in mine.py, both in the current folder.

    The notebooks that ``d2lmgpu course`` copies begin with this call; those of the repository do not. Raises ValueError
    if ``name`` is not a string.
    """
    check_text("name", name)
    _begun[:] = [Begun(name, target("."), set())]


def begun():
    """The `Begun` of this notebook; None if it has not called `begin`."""
    return _begun[0] if _begun else None
