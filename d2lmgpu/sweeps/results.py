"""The file that keeps a sweep's rows, so that the same sweep goes on where it was left.

    {"format": "d2lmgpu sweep", "version": 1, "data": null, "rows": [...]}

A row belongs to its settings, all of them. Rows of other settings stay in the file,
so that a grid can grow. ``data`` is null for Fashion-MNIST, otherwise checksums.
"""

import json
from pathlib import Path

from ..output import check_writable, write_json
from ..training.resume import data_checksum

FORMAT = "d2lmgpu sweep"
VERSION = 1
FINISHED = ("done", "diverged")
"""Statuses of trials that would end as they did if they were run again."""


class Results:
    """The rows of a file, which is rewritten with every new one; with ``path`` None they are kept here only.

    Raises ValueError for a file that is of something else, damaged, of a later
    version or of other data (it stays as it is), OSError if it could not be written.
    """

    def __init__(self, path, data=None):
        self.path = path
        self._data = None if data is None else [data_checksum(*data[:2]), data_checksum(*data[2:4])]
        self._rows = []
        if path is None:
            return
        check_writable(path)
        if Path(path).exists():
            content = read_results(path)
            if content["data"] != self._data:
                raise ValueError(f"results {path} are of other data; give another file")
            self._rows = content["rows"]

    def finished(self, settings):
        """The row of a trial that need not be run again, or None."""
        rows = [row for row in self._rows if row["settings"] == settings and row["status"] in FINISHED]
        return rows[0] if rows else None

    def add(self, row):
        """Keep a row, instead of an older one with its settings."""
        self._rows = [old for old in self._rows if old["settings"] != row["settings"]] + [row]
        if self.path is not None:
            write_json(self.path, document(self._rows, self._data))


def document(rows, data=None):
    """Rows as they are written to a file."""
    return {"format": FORMAT, "version": VERSION, "data": data, "rows": rows}


def read_results(path):
    """What is in a results file, a dict as above; ValueError if it is none that this version can read."""
    path = Path(path)
    if path.exists() and not path.is_file():
        raise ValueError(f"results {path}: this is no file; rows are kept in a file that can be read again")
    try:
        content = json.loads(path.read_bytes())
        assert content["format"] == FORMAT
        version = content["version"]
        assert isinstance(version, int)
    except (ValueError, TypeError, KeyError, AssertionError):
        raise ValueError(f"results {path}: no results file of a sweep, or a damaged one; give another") from None
    if version > VERSION:
        raise ValueError(f"results {path} is of version {version}, later than this program's {VERSION}; update d2lmgpu")
    rows = content.get("rows")
    if "data" not in content or not isinstance(rows, list) or not all(map(_is_row, rows)):
        raise ValueError(f"results {path}: its rows are damaged; give another file")
    return content


def _is_row(row):
    names = {"settings", "status", "message", "seconds", "history"}
    return isinstance(row, dict) and set(row) == names and isinstance(row["settings"], dict)


def load_sweep(path):
    """The rows that a sweep has kept in a file, in the order in which the trials ended.

    Raises ValueError for a file that is no results file of a sweep, OSError if it cannot be read.
    """
    return read_results(path)["rows"]


MEASURES = {
    "best accuracy": lambda history: max(history["test_accuracy"]),
    "last accuracy": lambda history: history["test_accuracy"][-1],
    "training loss": lambda history: history["train_loss"][-1],
    "seconds per epoch": lambda history: sum(history["seconds_per_epoch"]) / len(history["seconds_per_epoch"]),
}
"""What is asked of a trial's history: of all epochs, or after the last."""


def measure(row, name):
    """A measure of a row whose trial has a result, otherwise None."""
    return MEASURES[name](row["history"]) if row["status"] == "done" else None


def best_row(rows):
    """The row with the best accuracy (of equals the first), or None if no trial has one."""
    done = [row for row in rows if row["status"] == "done"]
    return max(done, key=lambda row: measure(row, "best accuracy"), default=None)
