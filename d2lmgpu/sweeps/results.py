"""The file that keeps a sweep's rows, so that the same sweep can continue where it stopped.

    {"format": "d2lmgpu sweep", "version": 1, "data": null, "rows": [...], "running": [...]}

A row is identified by all its settings. Rows for other settings stay in the file, so a grid can grow. ``data`` is null
for Fashion-MNIST; otherwise it holds checksums. While trials run, ``running`` holds their rows, with the curves so far.
"""

import contextlib
import math
from pathlib import Path

from ..arguments import check_flag, check_path, shown
from ..measuring import Sparingly
from ..output import check_writable, read_json, write_json
from ..training.fields import of_kind
from ..training.resume import data_checksum
from .trial import CURVES
from .trials import complete_trial, identity

FORMAT = "d2lmgpu sweep"
VERSION = 1
STATUSES = ("done", "diverged", "interrupted", "failed")
FINISHED = STATUSES[:2]
"""Statuses of trials that would end the same way if they were run again."""

ROW = {"settings": dict, "status": str, "message": str | None, "seconds": float | None, "history": dict | None}
ROW |= {"model": str | None}
CONTENT = {"format": str, "version": int, "data": list[str] | None, "rows": list[ROW], "running": list[ROW]}
"""The kinds of values in a row, as `make_row` makes it, and in a file."""


class Results:
    """The rows of a file, which is rewritten with every new row; if ``path`` is None, they are kept only in memory.

    Raises ValueError for a file that is not a sweep's, is damaged, or is for another version
    or other data (it stays unchanged), OSError if it could not be written.
    """

    def __init__(self, path, data=None):
        self.path = path
        self.data = None if data is None else [data_checksum(*data[:2]), data_checksum(*data[2:4])]
        self._rows, self._shown, self._sparingly = [], [], Sparingly()
        if path is None:
            return
        check_writable(path)
        if Path(path).exists():
            content = read_results(path)
            if content["data"] != self.data:
                raise ValueError(f"results {path} are for other data; give another file")
            self._rows = content["rows"]

    def finished(self, settings):
        """The row of a trial that need not be run again, or None."""
        rows = [row for row in self._rows if row["status"] in FINISHED and _same(row["settings"], settings)]
        return rows[0] | {"settings": settings} if rows else None

    def add(self, row, running=()):
        """Keep a row, replacing an older one with the same settings; ``running``: rows of running trials."""
        self._rows = [old for old in self._rows if not _same(old["settings"], row["settings"])] + [row]
        self._write(running)

    def show(self, running):
        """Also write the rows of running trials, unless this was done a moment ago."""
        if self._sparingly.due():
            self._write(running)

    def close(self):
        """Note that no trial is running any more."""
        with contextlib.suppress(OSError):  # the rows are there, perhaps with extra ones
            if self._shown:
                self._write(())

    def _write(self, running):
        if self.path is not None:
            self._shown = list(running)
            with self._sparingly:
                write_json(self.path, document(self._rows, self.data, self._shown))


def _same(settings, others):
    return identity(settings) == identity(others)


def document(rows, data=None, running=()):
    """The content of a file with these rows."""
    content = {"format": FORMAT, "version": VERSION, "data": data, "rows": rows}
    return content | ({"running": running} if running else {})


def read_results(path):
    """The content of a results file, a dict as above; raises ValueError if this version cannot read it."""
    check_path("results", path)
    path = Path(path)
    if path.exists() and not path.is_file():  # such as /dev/zero
        raise ValueError(f"results {path}: this is not a regular file; give one that can be read again")
    content = read_json(path.read_bytes())
    if not isinstance(content, dict) or (content.get("format"), content.get("version")) != (FORMAT, VERSION):
        raise ValueError(f"results {path}: not a sweep's results file, or damaged, or of a newer version; give another")
    content.setdefault("running", [])
    try:
        content = of_kind("content", content, CONTENT)
        for row in content["rows"]:
            _check_row(row, STATUSES)
        for row in content["running"]:
            _check_row(row, ("running",))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"results {path}: its rows are damaged ({error}); give another file") from None
    return content


def _check_row(row, statuses):
    """Raise ValueError unless the row is like those of `make_row`, and has the data for `MEASURES`."""
    row["settings"] = complete_trial(row["settings"])
    status, history = row["status"], row["history"] or {}
    if status not in statuses:
        raise ValueError(f"a row has the status {shown(status)}")
    if history or status in ("done", "running"):
        curves = {name: history.get(name) for name in CURVES}
        row["history"] = history | of_kind("history", curves, dict.fromkeys(CURVES, list[float]))
    if status == "done":
        losses, seconds = row["history"]["train_loss"], row["history"]["seconds_per_epoch"]
        if not (losses and seconds and all(map(math.isfinite, [*losses, *seconds, row["seconds"] or math.nan]))):
            raise ValueError("a trial that is done has no epoch, or a number that is not finite")


def load_sweep(path, running=False) -> list[dict]:
    """The rows that a sweep has kept in a file, in the order in which the trials ended.

    ``running``: add the rows of trials that were running when the file was written, with their curves so far.

    Raises ValueError for a file that is not a sweep's results file, OSError if it cannot be read.
    """
    check_flag("running", running)
    content = read_results(path)
    return content["rows"] + (content["running"] if running else [])


MEASURES = {
    "best accuracy": lambda history: max(history["test_accuracy"], default=None),
    "last accuracy": lambda history: (history["test_accuracy"] or [None])[-1],
    "test loss": lambda history: (history.get("test_loss") or [None])[-1],
    "training loss": lambda history: history["train_loss"][-1],
    "seconds per epoch": lambda history: sum(history["seconds_per_epoch"]) / len(history["seconds_per_epoch"]),
}
"""Measures of a trial's history: over all epochs, or after the last one; None if there is no value."""


def measure(row, name):
    """A measure of a row whose trial has a result, otherwise None; also if it is not finite."""
    value = MEASURES[name](row["history"]) if row["status"] == "done" else None
    return None if value is None or not math.isfinite(value) else value
