"""What is known of a sweep as it goes on, and who is told: its file, the table, and whoever watches."""

import contextlib

from ..devices.errors import one_line
from ..monitor import say
from ..words import several
from .trial import CURVES, make_row


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
