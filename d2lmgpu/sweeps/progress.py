"""The progress of a sweep, and the table that shows it: redrawn in a terminal, printed line by line elsewhere."""

import contextlib
import os
import shutil
import sys
from pathlib import Path

from ..devices.errors import one_line
from ..monitor import say
from ..words import figures, seconds, several
from .results import FINISHED, STATUSES, measure
from .trials import describe, show, varying

MEASURED = {"best acc": "best accuracy", "last acc": "last accuracy", "loss": "training loss"}
"""Columns of the table, and their names for `measure`."""


class Record:
    """A row for each trial in ``rows``; until it ends, its status is "waiting", or "running" with the curves so far.

    If ``visible``, a table shows them: a line for each trial with the settings in which trials differ, and its outcome
    or progress. After each epoch and each trial, ``watch(rows)`` is called with the rows of all trials that have begun,
    in order.
    """

    def __init__(self, rows, kept, visible=True, watch=None):
        self.rows = rows
        self._kept, self._visible, self._watch = kept, visible, watch
        self._names = varying([row["settings"] for row in rows]) or ["devices", "lr"]
        self._live = visible and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._drawn = 0  # lines
        done = len(self._of(*STATUSES))
        self._say(several(len(rows), "trial") + (f", {done} of them done before" if done else ""))

    def runs(self, number, curves):
        """Note that a trial is running, with these `CURVES` so far."""
        row = self.rows[number]
        if row["status"] not in ("waiting", "running"):  # a report that arrives after the trial's end
            return
        row |= {"status": "running", "message": "running", "history": curves}
        self._show()
        if curves["train_loss"]:
            with contextlib.suppress(OSError):  # the next row to be kept will report it
                self._kept.show(self._of("running"))
            self._tell()

    def end(self, number, row):
        """Note that a trial ended with this row."""
        self.rows[number] = row
        if row["status"] != "interrupted":
            self._kept.add(row, self._of("running"))
        self._show(row)
        self._tell()

    def complete(self):
        """Return the rows when no more trials will run. Print all rows, counts of the outcomes, and how to continue."""
        for row in self._of("waiting", "running"):
            row |= {"status": "interrupted", "message": "not begun", "history": None}
        if self._visible:
            self._draw(self._lines())
        statuses = [row["status"] for row in self.rows]
        self._say(", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses)))
        tested = [row for row in self.rows if measure(row, "best accuracy") is not None]
        if tested:  # the first of equals
            self._say(self._told("best", max(tested, key=lambda row: measure(row, "best accuracy"))))
        if self._kept.path and 0 < len(self._of(*FINISHED)) < len(statuses):
            self._say(f"{self._kept.path} has what was done; the same sweep, started again with it, does the rest")
        return self.rows

    def _of(self, *statuses):
        """The rows with these statuses."""
        return [row for row in self.rows if row["status"] in statuses]

    def _tell(self):
        if self._watch is None:
            return
        try:
            self._watch(self._of("running", *STATUSES))
        except Exception as error:
            self._watch = None
            say(f"watch failed ({one_line(error)}); the sweep goes on without it")

    def _show(self, ended=None):
        """Draw the table in a terminal; elsewhere print the line of a trial that has ``ended``."""
        if self._live:
            self._draw(self._what_fits())
        elif ended:
            self._say(self._told(self._count(), ended))

    def _told(self, what, row):
        return f"{what}: {describe(row['settings'], self._names)}: {outcome(row)}"

    def _say(self, text):
        if self._visible:
            say(text)

    def _count(self):
        return f"{len(self._of(*STATUSES))}/{len(self.rows)}"

    def _lines(self):
        """The headings, and a line for each trial."""
        cells = [self._names] + [[show(row["settings"][name]) for name in self._names] for row in self.rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        results = ["  ".join([*MEASURED, "seconds"]), *map(_columns, self.rows)]
        if any(row["model"] for row in self.rows):
            results[0] += "  model"
        return ["  ".join([*map(str.rjust, line, widths), result]) for line, result in zip(cells, results, strict=True)]

    def _what_fits(self):
        """The lines that fit into the terminal: those of running trials, and as many around them as possible."""
        columns, height = shutil.get_terminal_size()
        head, *lines = self._lines()
        room = max(1, height - 3)
        first = next((i for i, row in enumerate(self.rows) if row["status"] not in STATUSES), 0)
        start = max(0, min(first - 1, len(lines) - room))
        return [line[: columns - 1] for line in (head, *lines[start : start + room], f"{self._count()} trials ended")]

    def _draw(self, lines):
        """Print lines; in a terminal they replace those printed before."""
        if self._live and self._drawn:
            say(f"\x1b[{self._drawn}F\x1b[J", end="")  # to the beginning of the first of them; clear all below
        say("\n".join(lines))
        self._drawn = len(lines)


def _columns(row):
    """The table's columns that follow a trial's settings."""
    if row["status"] != "done":
        return outcome(row)
    cells = [_shown(measure(row, name)).rjust(len(heading)) for heading, name in MEASURED.items()]
    model = [Path(row["model"]).name] if row["model"] else []
    return "  ".join([*cells, f"{seconds(row['seconds']):>7}", *model])


def outcome(row):
    """A trial's outcome or progress, in a few words."""
    if row["status"] == "done":
        listed = [f"{heading} {_shown(measure(row, name))}" for heading, name in MEASURED.items()]
        return ", ".join([*listed, f"{seconds(row['seconds'])} s"])
    if row["status"] == "running" and row["history"]["train_loss"]:
        epochs = f"{len(row['history']['train_loss'])}/{several(row['settings']['num_epochs'], 'epoch')}"
        return f"running, {epochs}, {figures({name: values[-1] for name, values in row['history'].items() if values})}"
    return f"failed: {row['message']}" if row["status"] == "failed" else row["message"].split(":")[0]


def _shown(measured):
    return "-" if measured is None else f"{measured:.3f}"
