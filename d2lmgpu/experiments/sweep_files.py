"""The file that keeps a sweep's rows, one a line, so that the same sweep can continue where it stopped.

    {"format": "d2lmgpu sweep", "version": 2, "data": null}
    {"settings": {...}, "status": "done", "message": null, "history": {...}, "model": null}

A row is identified by all its settings. Rows for other settings stay in the file, so a grid can grow. ``data`` is null
for Fashion-MNIST; otherwise it holds checksums. If a program is killed while it writes a row, that row is lost.
"""

import math
import os
from pathlib import Path

from ..base.arguments import check_path
from ..base.files import as_json, check_writable, is_stream, naming, read_json, write_file
from ..training.checks import of_kind
from ..training.history import HISTORY
from .trials import complete_trial

_FORMAT = {"format": "d2lmgpu sweep", "version": 2}
ROW = {"settings": dict, "status": str, "message": str | None, "history": dict | None, "model": str | None}
"""The kinds of values in a row, as `make_row` makes it."""


def open_results(path, data):
    """The latest row of each trial in a results file, which is created if it does not exist.

    ``data``: checksums, or None. Raises ValueError for a file that is not a sweep's, is damaged, or is for other data
    (it stays unchanged), OSError if it could not be written.
    """
    check_writable(path)
    known, rows = _read(path) if os.path.exists(path) else (data, [])
    if known != data:
        raise ValueError(f"results {path} are for other data; give another file")
    lines = [_FORMAT | {"data": data}, *rows]
    write_file(path, lambda file: file.writelines(map(_line, lines)))  # without what a killed program left
    return rows


def add_row(path, row):
    """Add a row at the end of a file."""
    with naming(path), open(path, "ab") as file:
        file.write(_line(row))


def _line(value):
    return as_json(value).encode() + b"\n"


def _read(path):
    """What a file says of its data, and the latest row of each trial.

    Raises ValueError if it is not a results file that this version can read.
    """
    lines = [] if is_stream(path) else Path(path).read_bytes().split(b"\n")[:-1]
    about, *rows = map(read_json, lines or [b""])
    if not isinstance(about, dict) or not _FORMAT.items() <= about.items():
        raise ValueError(f"results {path}: not a sweep's results file, or damaged, or of another version; give another")
    try:
        rows = list(map(_complete, of_kind("rows", rows, list[ROW])))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"results {path}: its rows are damaged ({error}); give another file") from None
    return about.get("data"), list({as_json(row["settings"]): row for row in rows}.values())


def _complete(row):
    history = row["history"] and of_kind("history", row["history"], HISTORY)
    return row | {"settings": complete_trial(row["settings"]), "history": history}


def load_sweep(path) -> list[dict]:
    """The rows that a sweep has kept in a file, in the order in which the trials first ended.

    Raises ValueError for a file that is not a sweep's results file, OSError if it cannot be read.
    """
    check_path("results", path)
    return _read(path)[1]


MEASURES = {
    "best accuracy": lambda history: max(history["test_accuracy"], default=None),
    "last accuracy": lambda history: (history["test_accuracy"] or [None])[-1],
    "test loss": lambda history: (history["test_loss"] or [None])[-1],
    "training loss": lambda history: (history["train_loss"] or [None])[-1],
    "seconds per epoch": lambda history: sum(history["seconds_per_epoch"]) / max(1, len(history["seconds_per_epoch"])),
}
"""Measures of a trial's history: over all epochs, or after the last one; None if there is no value."""


def measure(row, name):
    """A measure of a row whose trial has a result, otherwise None; also if it is not finite."""
    value = MEASURES[name](row["history"]) if row["status"] == "done" and row["history"] else None
    return None if value is None or not math.isfinite(value) else value
