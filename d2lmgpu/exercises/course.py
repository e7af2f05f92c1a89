"""A student's copy of the course: notebooks without outputs, their data, a file for answers, and predictions.

In a student's copy, `compare` hides a result until there is a prediction, or until it is called a second time. The
notebooks of this repository show results at once, since they are also meant for reading.
"""

import json
import math
import os
import re
from pathlib import Path
from typing import NamedTuple

from ..base.arguments import check_name, is_number, shown
from ..base.files import as_json, shipped, target, write_file
from ..data.fashion_mnist import FILES, find_file

FILE = "mine.py"

MINE = '''"""My own framework: `check` saves right answers to the course's exercises here.

A notebook uses them with ``from mine import allreduce``. When another version of an answer passes, check replaces the
text between that answer's two lines ``# ---``, and keeps the old file as mine.py.before-1, -2 and so on. All other
text in this file is yours. ``d2lmgpu check allreduce mine.py`` checks the answer to allreduce again.
"""
'''

_BEGIN = """from d2lmgpu.exercises import begin

begin()  # saves your answers in mine.py, and hides results until you have predicted them"""


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
    """A notebook as bytes, without outputs, but with a cell that calls `begin`."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    first, *cells = notebook["cells"]
    begin = {"cell_type": "code", "id": "begin", "metadata": {}, "source": _BEGIN.splitlines(keepends=True)}
    notebook["cells"] = [_plain(cell) for cell in (first, begin, *cells)]
    return (as_json(notebook, indent=1, ensure_ascii=False) + "\n").encode()


def _plain(cell):
    """A cell as it was before it was run. Links to the repository's pages, which are not copied, become plain text."""
    if cell["cell_type"] == "code":
        return cell | {"outputs": [], "execution_count": None}
    text = re.sub(r"\[([^\]]+)\]\(\.\./[^)]*\)", r"\1", "".join(cell["source"]))
    return cell | {"source": text.splitlines(keepends=True)}


class Begun(NamedTuple):
    """A copy's notebook that has called `begin`: its folder, and the names that `compare` has shown or hidden."""

    folder: Path
    seen: set


_begun = []  # at most one


def begin():
    """From now on, put right answers into mine.py in the current folder, and let `compare` hide results.

    The notebooks that ``d2lmgpu course`` copies begin with this call; those of the repository do not.
    """
    _begun[:] = [Begun(target("."), set())]


def begun():
    """The `Begun` of this notebook; None if it has not called `begin`."""
    return _begun[0] if _begun else None


WAYS = ("measured", "counted", "computed", "simulated", "published")
"""The ways in which the number beside a prediction may have been found."""


def compare(what, predicted, found, unit="", how="measured", details=""):
    """Print a prediction beside what was found, and the ratio. ``how``, one of `WAYS`, says how it was found.

    In a student's copy of the course (after `begin`), what was found stays hidden until there is a prediction, or until
    a second call. ``details`` is a string that is shown below what was found, or hidden with it. ``predicted`` may be
    None or ``...`` if there is no prediction yet. Raises ValueError for anything else that is not a number.
    """
    predicted = None if predicted is ... else predicted
    for name, value in (("found", found), ("predicted", 0 if predicted is None else predicted)):
        if not is_number(value):
            raise ValueError(f"compare: {name} is {shown(value)}; it should be a number")
    check_name("compare: how", how, WAYS)
    mine = begun()
    if mine and predicted is None and what not in mine.seen:
        said = "the answer is hidden. First put your prediction into the call, or run it again to see the answer."
    else:
        said = "\n".join([_in_words(predicted, float(found), unit, how), *[details] * bool(details)])
    if mine:
        mine.seen.add(what)
    print(f"{what}: {said}")


def _in_words(predicted, found, unit, how):
    said = f"{how} {_in_digits(found, 4)}{unit}"
    if predicted is None:
        return f"{said}."
    ratio = 1.0 if predicted == found else found / predicted if predicted else math.nan
    ratio = _in_digits(ratio, 2)
    times = {"nan": "not what was predicted", "1": "as predicted"}.get(ratio, f"{ratio} times what was predicted")
    return f"predicted {_in_digits(float(predicted), 4)}{unit}, {said}: {times}."


def _in_digits(number, digits):
    """A number with this many digits; a larger one without its fraction, such as 129,068 rather than 1.291e+05."""
    return f"{number:,.0f}" if 10**digits <= abs(number) < 1e15 else f"{number:.{digits}g}"
