"""Train many networks: send trials to executors, and keep each resulting row as soon as it arrives."""

import contextlib
import functools
import hashlib
import os
import time

from ..base.arguments import check_name, check_path, check_whole
from ..base.files import as_json, check_folder, target
from ..base.text import one_line, several
from ..networks import find_loss
from ..training import History
from ..training.checks import network_for
from ..training.monitor import say, stop_on_interrupt
from ..training.resume import data_checksum
from .executors import cards_of_workers, processes, send_history
from .sweep_files import add_row, open_results
from .trials import complete_trials, describe, make_row, network_of, parts_of, run_trial, varying

MODES = ("simultaneous", "sequential")
_LOOK = 0.05
"""Seconds after which a waiting sweep checks whether a trial has ended or Ctrl-C was pressed."""


def sweep(
    trials,
    executor=None,
    mode="simultaneous",
    workers=None,
    results=None,
    keep_models=None,
    data=None,
    invert=False,
    progress=True,
    watch=None,
) -> list[dict]:
    """Train a network for each of the ``trials``; return a row for each, in their order, as `run_trial` makes it.

    ``trials``: dicts of settings, from `grid` or your own; see `trials.DEFAULTS`. ``mode``: "simultaneous" trains
    ``workers`` networks at a time (by default one per core or GPU), each in a process that has a core or a GPU to
    itself; a trial with several devices shares that core or GPU among them. "sequential" trains one network after
    another in this process, each on all of its devices. ``executor``: a `concurrent.futures.Executor` that does the
    trials instead, on any machines; it is not shut down. Whichever way a trial is done, its history is the same as from
    `train`, bit for bit (except for the seconds).

    ``results``: a file to which each row is added when its trial ends. A trial with a result in it is not repeated; one
    that failed or was interrupted is. While a sweep uses the file, other sweeps are refused. ``keep_models``: a folder
    in which each trial that is done leaves its model for `load_model`; its row says under "model" where it is. (All
    workers of an ``executor`` must find the folder under the same name.)

    ``data``: as in `train`; they are sent with every trial (workers find Fashion-MNIST by themselves). ``invert``: as
    in `train`. ``progress``: print a line for each trial. ``watch``: a function that is called after each epoch and
    each trial with the rows so far, in the form that `plot_curves` takes: running trials have the status "running" and
    their curves in ``history``. (Trials of an ``executor`` are reported only when they end.)

    If a trial fails, its row says so, and the others go on. If a process dies, as by lack of memory, all trials that
    have not ended fail. After Ctrl-C, trials that have not ended are "interrupted".

    Raises ValueError for trials that make no sense, or a file with other contents; DeviceError if there is no GPU for
    trials that are to have one each; OSError if the file or the folder cannot be written; what ``watch`` raises.
    """
    workers = None if workers is None else check_whole("workers", workers)
    check_name("mode", mode, MODES)
    if (executor is not None) + (workers is not None) + (mode == "sequential") > 1:
        raise ValueError("executor, workers, mode 'sequential': give one of them, which says what trains")
    trials = complete_trials(trials)
    checksums = _check_data(data, trials)
    if keep_models is not None:
        check_path("keep_models", keep_models)
        check_folder(keep_models)
    if results is not None:
        check_path("results", results)
    models = [_model(keep_models, settings, checksums) for settings in trials]
    known = [] if results is None else open_results(results, checksums)
    rows = [_finished(settings, known, keep_models) for settings in trials]
    to_do = {i: (trials[i], data, invert, models[i]) for i, row in enumerate(rows) if row is None}
    record = Record(trials, rows, results, progress, watch)
    if executor is not None:
        _through(executor, to_do, record)
    elif mode == "sequential":
        _in_turn(to_do, record)
    elif to_do:
        to_do = {i: (*given, functools.partial(send_history, i)) for i, given in to_do.items()}
        with processes(cards_of_workers(workers, [trials[i] for i in to_do])) as (pool, reports):
            _through(pool, to_do, record, reports)
    return record.complete()


def _check_data(data, trials):
    """Checksums of the data, None for Fashion-MNIST. Raises ValueError unless the data fit the trials' networks."""
    parts = parts_of(data)
    for settings in trials:
        network_for(parts, network_of(settings["network"]), settings["width"], find_loss(settings["loss"]))
    return None if data is None else [data_checksum(*parts[:2]), data_checksum(*parts[2:4])]


def _model(folder, settings, checksums):
    """The file of a trial's model: an absolute path, since a worker may run in another folder; None for no folder."""
    trial = hashlib.sha256(as_json([settings, checksums], sort_keys=True).encode()).hexdigest()
    return None if folder is None else str(target(folder) / f"{trial[:10]}.ckpt")


def _finished(settings, known, folder):
    """The row of a trial among those ``known`` if it need not be trained again: its model is there, if it is wanted."""
    row = next((row for row in known if row["settings"] == settings), {"status": None})
    has_model = folder is None or (row.get("model") is not None and os.path.exists(row["model"]))
    return row if row["status"] == "diverged" or (row["status"] == "done" and has_model) else None


def _in_turn(to_do, record):
    """Do the trials here, one after another. ``to_do``: the arguments of `run_trial` by the trials' numbers."""
    with contextlib.suppress(KeyboardInterrupt):  # between trials; in one, `train` ends after its step
        for i, given in to_do.items():
            record.end(i, run_trial(*given, functools.partial(record.runs, i)))
            if record.rows[i]["status"] == "interrupted":
                break


def _through(executor, to_do, record, reports=None):
    """Let an executor do the trials. ``reports``: a queue of the numbers and histories of those that run."""
    futures = {executor.submit(run_trial, *given): i for i, given in to_do.items()}
    try:
        with stop_on_interrupt() as stop:
            while futures and not stop.requested:
                time.sleep(_LOOK)
                ended = [future for future in futures if future.done()]
                while reports is not None and not reports.empty():
                    record.runs(*reports.get())
                for future in ended:
                    i = futures.pop(future)
                    record.end(i, _row(future, record.trials[i]))
    finally:
        for future in futures:
            future.cancel()


def _row(future, settings):
    """The row of a trial that has ended, or that was lost with its process."""
    try:
        return future.result()
    except Exception as error:
        return make_row(settings, "failed", one_line(error))


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
        outcome = row["message"] or History.from_dict(row["history"]).summary()
        outcome = outcome if row["status"] in ("done", outcome[: len(row["status"])]) else f"{row['status']}: {outcome}"
        self._say(f"{self._ended()}/{len(self.rows)}: {describe(row['settings'], self._names)}: {outcome}")

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
