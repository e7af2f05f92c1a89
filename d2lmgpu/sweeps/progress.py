"""What a sweep knows as it goes on, and the table that shows it: redrawn in a terminal, elsewhere a line a trial."""

import contextlib
import os
import shutil
import sys
from pathlib import Path

from ..devices.errors import one_line
from ..monitor import say
from ..words import seconds, several
from .results import FINISHED, best_row, measure
from .trial import CURVES, make_row
from .trials import describe, show, varying

MEASURED = {"best acc": "best accuracy", "last acc": "last accuracy", "loss": "training loss"}
"""Columns of the table and what `measure` calls them."""


class Record:
    """A row for each of the ``trials`` that ended, in ``rows``, and for those that run one with their curves so far.

    ``watch(rows)`` is called with all of these, in the trials' order, after each epoch and each trial.
    """

    def __init__(self, trials, rows, kept, table, watch=None):
        self.trials, self.rows = trials, rows
        self._kept, self._table, self._watch = kept, table, watch
        self._running = {}

    def begin(self, number):
        """A trial runs, if it was not known to."""
        if number not in self._running:
            curves = {name: [] for name in CURVES}
            self._running[number] = make_row(self.trials[number], "running", "not done yet", None, curves)
            self._table.set(number, "running")

    def epochs(self, number, first, curves):
        """Of a trial that runs, each curve's values from epoch ``first`` on, counted from 0."""
        if self.rows[number] is not None:  # a report that comes after the trial's end
            return
        self.begin(number)
        history = self._running[number]["history"]
        for name in CURVES:
            history[name][first:] = curves[name]
        done = len(history["train_loss"])
        if done:
            reached = {"acc": history["test_accuracy"], "loss": history["train_loss"]}
            figures = [f"{name} {values[-1]:.3f}" for name, values in reached.items() if values]
            epochs = f"{done}/{several(self.trials[number]['num_epochs'], 'epoch')}"
            self._table.set(number, ", ".join(["running", epochs, *figures]))
            with contextlib.suppress(OSError):  # the next row that is to be kept will say so
                self._kept.show(self._running.values())
            self._tell()

    def end(self, number, row):
        """A trial ended with this row."""
        self.rows[number] = row
        self._running.pop(number, None)
        if row["status"] != "interrupted":
            self._kept.add(row, self._running.values())
        self._table.set(number, row)
        self._tell()

    def _tell(self):
        if self._watch is None:
            return
        rows = [row or self._running.get(number) for number, row in enumerate(self.rows)]
        try:
            self._watch([row for row in rows if row is not None])
        except Exception as error:
            self._watch = None
            say(f"watch failed ({one_line(error)}); the sweep goes on without it")


class Table:
    """The trials of a sweep, a line each: the settings in which they differ, and how it went or goes.

    A trial's state is "waiting" or "running", or the row that it ended with.
    """

    def __init__(self, trials, rows, visible=True):
        """``rows``: of trials that are not to be done, otherwise None."""
        self.trials, self.visible = trials, visible
        self.states = [row or "waiting" for row in rows]
        self._names = varying(trials) or ["devices", "lr"]
        self._live = visible and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._drawn = 0  # lines
        done = len(rows) - rows.count(None)
        number = several(len(rows), "trial")
        self._say(number + (f", {done} of them done before" if done else ""))

    def set(self, number, state):
        """Enter the state of a trial, counted from 0, and show it."""
        if state == self.states[number]:
            return
        self.states[number] = state
        if self._live:
            self._draw(self._what_fits())
        elif not isinstance(state, str):
            self._say(f"{self._ended()}: {describe(self.trials[number], self._names)}: {outcome(state)}")

    def end(self, rows, kept_in=None):
        """Print the whole table with these rows, how many trials ended how, which was the best, and how to go on."""
        if not self.visible:
            return
        self.states = rows
        self._draw(self._lines())
        statuses = [row["status"] for row in rows]
        say(", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses)))
        best = best_row(rows)
        if best:
            say(f"best: {describe(best['settings'], self._names)}: {outcome(best)}")
        if kept_in and 0 < sum(status in FINISHED for status in statuses) < len(rows):
            say(f"{kept_in} has what was done; the same sweep, started again with it, does the rest")

    def _say(self, text):
        if self.visible:
            say(text)

    def _ended(self):
        return f"{sum(not isinstance(state, str) for state in self.states)}/{len(self.states)}"

    def _lines(self):
        """Headings, and a line for each trial."""
        cells = [self._names] + [[show(settings[name]) for name in self._names] for settings in self.trials]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        results = ["  ".join([*MEASURED, "seconds"]), *map(_columns, self.states)]
        if any(not isinstance(state, str) and state["model"] for state in self.states):
            results[0] += "  model"
        return ["  ".join([*map(str.rjust, line, widths), result]) for line, result in zip(cells, results, strict=True)]

    def _what_fits(self):
        """Lines that fit the terminal: those of trials that go on, and as many around them as there is room for."""
        columns, height = shutil.get_terminal_size()
        head, *lines = self._lines()
        room = max(1, height - 3)
        first = next((i for i, state in enumerate(self.states) if isinstance(state, str)), 0)
        start = max(0, min(first - 1, len(lines) - room))
        return [line[: columns - 1] for line in (head, *lines[start : start + room], f"{self._ended()} trials ended")]

    def _draw(self, lines):
        """Print lines, in a terminal in place of those printed before."""
        if self._live and self._drawn:
            say(f"\x1b[{self._drawn}F\x1b[J", end="")  # to the beginning of the first of them; clear all below
        say("\n".join(lines))
        self._drawn = len(lines)


def _columns(state):
    """What stands beside a trial's settings."""
    if isinstance(state, str) or state["status"] != "done":
        return state if isinstance(state, str) else outcome(state)
    cells = [_shown(measure(state, name)).rjust(len(heading)) for heading, name in MEASURED.items()]
    model = [Path(state["model"]).name] if state["model"] else []
    return "  ".join([*cells, f"{seconds(state['seconds']):>7}", *model])


def outcome(row):
    """How a trial ended, in a few words."""
    if row["status"] == "done":
        listed = [f"{heading} {_shown(measure(row, name))}" for heading, name in MEASURED.items()]
        return ", ".join([*listed, f"{seconds(row['seconds'])} s"])
    return f"failed: {row['message']}" if row["status"] == "failed" else row["message"].split(":")[0]


def _shown(measured):
    return "-" if measured is None else f"{measured:.3f}"
