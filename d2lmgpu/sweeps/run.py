"""Train many networks: send trials to executors, and keep each resulting row as soon as it arrives."""

import contextlib
import functools
import hashlib
import os
import time

from ..arguments import check_name, check_path, check_whole
from ..devices.errors import one_line
from ..monitor import stop_on_interrupt
from ..networks import find_loss
from ..output import as_json, check_folder, target
from ..training.checks import network_for
from ..training.resume import data_checksum
from .progress import Record
from .results import open_results
from .trial import make_row, parts_of, run_trial
from .trials import complete_trials, identity, network_of
from .workers import Worker, cards_of_workers

MODES = ("simultaneous", "sequential")
LOOK = 0.05
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

    If a trial fails, or its process dies, its row says so, and the others go on. After Ctrl-C, trials that have not
    ended are "interrupted".

    Raises ValueError for trials that make no sense, or a file with other contents; DeviceError for devices that this
    machine does not have; OSError if the file or the folder cannot be written, or no process
    can be started.
    """
    workers = None if workers is None else check_whole("workers", workers)
    check_name("mode", mode, MODES)
    if (executor is not None) + (workers is not None) + (mode == "sequential") > 1:
        raise ValueError(
            "an executor, a number of workers, mode 'sequential': give one of them, which says what trains"
        )
    trials = complete_trials(trials, mode if executor is None else None)
    checksums = _check_data(data, trials)
    if keep_models is not None:
        check_path("keep_models", keep_models)
        check_folder(keep_models)
    if results is not None:
        check_path("results", results)
    models = [_model(keep_models, settings, checksums) for settings in trials]
    known = {} if results is None else open_results(results, checksums)
    rows = [_finished(settings, known, model) for settings, model in zip(trials, models, strict=True)]
    to_do = {i: (trials[i], data, invert, models[i]) for i, row in enumerate(rows) if row is None}
    record = Record(trials, rows, results, progress, watch)
    if executor is not None:
        _through([executor] * len(to_do), to_do, record)
    elif mode == "simultaneous":
        cards = cards_of_workers(workers, [trials[i] for i in to_do])
        _through(list(map(Worker, cards)), to_do, record)
    else:
        _in_turn(to_do, record)
    return record.complete()


def _check_data(data, trials):
    """Checksums of the data, None for Fashion-MNIST. Raises ValueError unless the data fit the trials' networks."""
    parts = parts_of(data)
    for settings in trials:
        network_for(parts, network_of(settings["network"]), settings["width"], find_loss(settings["loss"]))
    return None if data is None else [data_checksum(*parts[:2]), data_checksum(*parts[2:4])]


def _model(folder, settings, checksums):
    """The file of a trial's model: an absolute path, since a worker may run in another folder; None for no folder."""
    trial = hashlib.sha256(as_json([identity(settings), checksums]).encode()).hexdigest()
    return None if folder is None else str(target(folder) / f"{trial[:10]}.ckpt")


def _finished(settings, known, model):
    """The row of a trial among those ``known`` if it need not be trained again; ``model``: the file that it leaves."""
    row = known.get(identity(settings), {"status": None})
    if row["status"] == "diverged" or (row["status"] == "done" and model is None):
        return row | {"settings": settings}
    return row | {"settings": settings, "model": model} if row["status"] == "done" and os.path.exists(model) else None


def _in_turn(to_do, record):
    """Do the trials here, one after another. ``to_do``: the arguments of `run_trial` by the trials' numbers."""
    with contextlib.suppress(KeyboardInterrupt):  # between trials; in one, `train` ends after its step
        for i, given in to_do.items():
            record.end(i, run_trial(*given, functools.partial(record.runs, i)))
            if record.rows[i]["status"] == "interrupted":
                break


def _through(executors, to_do, record):
    """Let each executor do one trial at a time."""
    free, waiting, running = list(executors), list(to_do.items()), []
    try:
        with stop_on_interrupt() as stop:
            while (waiting or running) and not stop.requested:
                while free and waiting:
                    (i, given), executor = waiting.pop(0), free.pop(0)
                    running.append((i, executor, executor.submit(run_trial, *given)))
                time.sleep(LOOK)
                for trial in list(running):
                    i, executor, future = trial
                    has_ended = future.done()
                    for history in executor.reports() if isinstance(executor, Worker) else ():
                        record.runs(i, history)
                    if has_ended:
                        running.remove(trial)
                        free.append(executor)
                        record.end(i, _row(future, record.trials[i]))
    finally:
        for *_, future in running:
            future.cancel()
        for executor in executors:
            if isinstance(executor, Worker):
                executor.shutdown()


def _row(future, settings):
    """The row of a trial that has ended, or that was lost with its process."""
    try:
        return future.result()
    except Exception as error:
        return make_row(settings, "failed", one_line(error))
