"""A student's copy of the course: notebooks without outputs, their data, a file for answers, and predictions.

Predictions are shown beside what is measured afterwards. In a student's copy they are saved, and `compare` hides a
result until there is a prediction, or until it is called a second time. The notebooks of this repository show results
at once, since they are also meant for reading.
"""

import json
import math
import os
import re
from pathlib import Path
from typing import NamedTuple

from ..base.arguments import check_name, check_text, is_number, shown
from ..base.files import as_json, backup, read_json, shipped, target, write_file, write_json
from ..base.text import several
from ..data.fashion_mnist import FILES, find_file

FILE = "mine.py"

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


PREDICTIONS = "predictions.json"
"""The JSON file that keeps predictions: {notebook: {what was compared: [entry, ...]}}, with the newest entry last.

An entry contains the prediction (or None), what was found, its unit, and how it was found. A number that is not finite
is null there, and so is left out when one looks back.
"""

WAYS = ("measured", "counted", "computed", "simulated", "published")
"""The ways in which the number beside a prediction may have been found."""

RIGHT = 1.25
"""A prediction counts as right in `look_back` if it is off by at most this factor."""


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
    entry = {"predicted": predicted and float(predicted), "found": float(found), "unit": unit, "how": how}
    mine = begun()
    seen = _keep(mine, what, entry) if mine else True
    if predicted is None and not seen:
        print(
            f"{what}: the answer is hidden. First put your prediction into the call, or run it again to see the answer."
        )
    else:
        print(_in_words(what, entry), *[details] * bool(details), sep="\n")


def look_back():
    """Print all predictions of this notebook, and by how much they were off, the worst first.

    Raises ValueError outside of a student's copy of the course.
    """
    mine = begun()
    if not mine:
        raise ValueError("look_back works only in a copy of the course; make one with d2lmgpu course DIR")
    try:
        kept = _read(mine.folder / PREDICTIONS)
    except OSError as error:
        print(f"(Predictions cannot be read: {error})")
        kept = {}
    entries = [(what, found[-1]) for what, found in kept.get(mine.name, {}).items()]
    made = [(what, entry) for what, entry in entries if None not in (entry["predicted"], entry["found"])]
    made.sort(key=lambda pair: _off(pair[1]), reverse=True)
    for what, entry in made:
        print(_in_words(what, entry))
    right = sum(_off(entry) <= math.log(RIGHT) for _, entry in made)
    left = sum(entry["predicted"] is None for _, entry in entries)
    print(f"{several(len(made), 'prediction')}, {right} right within a factor of {RIGHT:g}; {left} still to be made.")


def _in_words(what, entry):
    predicted, ratio = entry["predicted"], _in_digits(_ratio(entry), 2)
    found = f"{entry['how']} {_in_digits(entry['found'], 4)}{entry['unit']}"
    if predicted is None:
        return f"{what}: {found}."
    times = {"nan": "not what was predicted", "1": "as predicted"}.get(ratio, f"{ratio} times what was predicted")
    return f"{what}: predicted {_in_digits(predicted, 4)}{entry['unit']}, {found}: {times}."


def _ratio(entry):
    """What was found, divided by what was predicted; NaN if only the prediction is 0."""
    predicted, found = entry["predicted"], entry["found"]
    return 1.0 if predicted == found else found / predicted if predicted else math.nan


def _off(entry):
    """By how much a prediction is off: the magnitude of the ratio's logarithm."""
    ratio = _ratio(entry)
    return abs(math.log(ratio)) if 0 < ratio < math.inf else math.inf


def _keep(mine, what, entry):
    """Record a comparison in the copy's file. Returns whether this notebook has shown or hidden it before."""
    path = mine.folder / PREDICTIONS
    try:
        kept = _read(path)
        entries = kept.setdefault(mine.name, {}).setdefault(what, [])
        if entries and entries[-1]["predicted"] in (None, entry["predicted"]):
            entries.pop()  # the same prediction again, or the first one after none
        entries.append(entry)
        write_json(path, kept)
    except OSError as error:  # no reason to end a notebook
        print(f"(Predictions cannot be kept: {error})")
    seen = what in mine.seen
    mine.seen.add(what)
    return seen


def _read(path):
    """The content of the copy's file; {} if there is none. If it is damaged, it is kept aside."""
    if not path.exists():
        return {}
    found = read_json(path.read_bytes())
    if isinstance(found, dict):
        return found
    print(f"({PREDICTIONS} is damaged. A copy is kept as {backup(path).name}.)")
    return {}


def _in_digits(number, digits):
    """A number with this many digits; a larger one without its fraction, such as 129,068 rather than 1.291e+05."""
    return f"{number:,.0f}" if 10**digits <= abs(number) < 1e15 else f"{number:.{digits}g}"
