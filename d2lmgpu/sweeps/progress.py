"""The rows of a sweep while it runs: a line when a trial ends, and a function of the user's that sees them all."""

from ..monitor import say
from ..training import History
from ..words import several
from .results import add_row
from .trial import make_row
from .trials import describe, varying


class Record:
    """A row for each of the trials in ``rows``, or None before it begins; ``rows`` may have some from earlier.

    When a trial ends, its row is added to the file ``results``, unless that is None; if ``visible``, a line says how it
    ended. After each epoch and each trial, ``watch(rows)`` is called with the rows of all trials that have begun, in
    order; the status of those that have not ended is "running".
    """

    def __init__(self, trials, rows, results, visible, watch):
        self.trials, self.rows, self._results, self._watch = trials, rows, results, watch
        self._say = say if visible else lambda text: None
        self._names = varying(trials) or ["devices", "lr"]
        self._say(several(len(rows), "trial") + (f", {self._ended()} of them done before" if any(rows) else ""))

    def runs(self, number, history):
        """Note that a trial is running, with this history so far."""
        self._enter(number, make_row(self.trials[number], "running", history=history))

    def end(self, number, row):
        """Note that a trial ended with this row."""
        if self._results is not None and row["status"] != "interrupted":
            add_row(self._results, row)
        self._enter(number, row)
        how = row["message"] or History.from_dict(row["history"]).summary()
        how = how if row["status"] in ("done", how[: len(row["status"])]) else f"{row['status']}: {how}"
        self._say(f"{self._ended()}/{len(self.rows)}: {describe(row['settings'], self._names)}: {how}")

    def complete(self):
        """Return the rows when no more trials will run. Print counts of the outcomes."""
        for i, row in enumerate(self.rows):
            if row is None or row["status"] == "running":
                self.rows[i] = make_row(self.trials[i], "interrupted")
        statuses = [row["status"] for row in self.rows]
        self._say(", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses)))
        return self.rows

    def _ended(self):
        return sum(row is not None and row["status"] != "running" for row in self.rows)

    def _enter(self, number, row):
        self.rows[number] = row
        if self._watch is not None:
            self._watch([row for row in self.rows if row is not None])
