"""Predictions, shown beside what is measured afterwards. In a student's copy of the course, they are saved.

In such a copy, `compare` hides a result until there is a prediction, or until it is called a second time. The notebooks
of this repository show results at once, since they are also meant for reading.
"""

import math

from ..base.arguments import check_name, is_number, shown
from ..base.files import backup, read_json, write_json
from ..base.text import several
from . import course

_FILE = "predictions.json"
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
    mine = course.begun()
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
    mine = course.begun()
    if not mine:
        raise ValueError("look_back works only in a copy of the course; make one with d2lmgpu course DIR")
    try:
        kept = _read(mine.folder / _FILE)
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
    path = mine.folder / _FILE
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
    print(f"({_FILE} is damaged. A copy is kept as {backup(path).name}.)")
    return {}


def _in_digits(number, digits):
    """A number with this many digits; a larger one without its fraction, such as 129,068 rather than 1.291e+05."""
    return f"{number:,.0f}" if 10**digits <= abs(number) < 1e15 else f"{number:.{digits}g}"
