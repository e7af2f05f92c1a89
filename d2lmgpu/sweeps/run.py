"""Train many networks: trials go to whoever does them, rows come back, each is kept as soon as it is there."""

import contextlib
import queue
from concurrent.futures import BrokenExecutor, Future

from ..arguments import check_flag, check_name, check_path, check_whole, shown
from ..data import check_parts
from ..devices.errors import one_line
from ..monitor import stop_on_interrupt
from ..output import holding
from ..training.checks import check_data, find_network, image_shape
from .results import Results
from .table import Table
from .trial import make_row, run_trial
from .trials import complete_trials
from .workers import NoWorker, Processes, count_workers

MODES = ("simultaneous", "sequential")
PATIENCE = 0.2
"""Seconds after which a sweep that waits looks up: has somebody pressed Ctrl-C, which trials are running?"""


def sweep(trials, executor=None, mode="simultaneous", workers=None, results=None, data=None, progress=True):
    """Train a network for each of the ``trials``; returns a row for each, in their order, as `run_trial` makes it.

    ``trials``: dicts of settings, from `grid` or your own; see `trials.DEFAULTS`.
    ``mode``: "simultaneous" trains ``workers`` networks at a time, each in a process
    that has a core or a GPU for itself, as many as there are unless told how many; a
    trial of several devices shares that core or GPU among them. "sequential" trains
    one after another in this process, each on all of its devices. ``executor``: a
    `concurrent.futures.Executor` that does the trials instead, on whatever machines;
    it is not shut down. However a trial is done, its history is that of `train`, bit
    for bit (seconds aside).

    ``results``: a file that at any time has the rows so far. A trial that it has a
    result of is not done again, one that failed is. While a sweep uses it another is
    refused. ``data``: as of `train`, which are sent with every trial (workers find
    Fashion-MNIST themselves). ``progress``: show a table.

    A trial that fails gets a row that says why, and the others go on. Ctrl-C ends
    trials after their current step; those and what was not begun are "interrupted".

    Raises ValueError for trials that make no sense and for a file of something
    else, DeviceError for devices that this machine has not, OSError if the file
    cannot be written, another sweep uses it, or no process can be started.
    """
    _check_ways(executor, mode, workers)
    check_flag("progress", progress)
    if results is not None:
        check_path("results", results)
    trials = complete_trials(trials, mode if executor is None else None)
    _check_own(data, trials)
    with contextlib.ExitStack() as stack:
        stack.enter_context(holding(results))
        kept = Results(results, data)
        rows = [kept.finished(settings) for settings in trials]
        to_do = {i: trials[i] for i, row in enumerate(rows) if row is None}
        table = Table(trials, rows, progress)
        stop = stack.enter_context(stop_on_interrupt())
        if executor is None and mode == "simultaneous" and to_do:
            executor = stack.enter_context(Processes(*count_workers(workers, to_do.values())))
        ended = _in_turn(to_do, data, table, stop) if executor is None else _through(executor, to_do, data, table, stop)
        for i, row in stack.enter_context(contextlib.closing(ended)):
            rows[i] = row
            if row["status"] != "interrupted":
                kept.add(row)
            table.set(i, row)
            stop.requested |= row["status"] == "interrupted"
    rows = [row or make_row(settings, "interrupted", "not begun") for settings, row in zip(trials, rows, strict=True)]
    table.end(rows, kept.path)
    return rows


def _check_ways(executor, mode, workers):
    check_name("mode", mode, MODES)
    if workers is not None:
        check_whole("workers", workers)
    if workers is not None and mode == "sequential":
        raise ValueError("mode 'sequential' trains in this process; leave out workers")
    if executor is not None and not hasattr(executor, "submit"):
        raise ValueError(f"executor is {shown(executor)}; it should be a concurrent.futures.Executor")
    if executor is not None and (mode == "sequential" or workers is not None):
        raise ValueError("an executor decides by itself what runs where; leave out mode and workers")


def _check_own(data, trials):
    """The caller's data must fit all networks."""
    for name in dict.fromkeys(settings["network"] for settings in trials) if data is not None else ():
        X_train, y_train, X_test, y_test, *classes = check_parts(data)
        _, network = find_network(name, classes[0] if classes else None, image_shape(X_train))
        check_data(X_train, y_train, network)
        check_data(X_test, y_test, network)


def _in_turn(to_do, data, table, stop):
    """Do the trials here, one after another; yields a trial's number and its row as it ends."""
    for i, settings in to_do.items():
        if stop.requested:
            return
        table.set(i, "running")
        yield i, run_trial(settings, data, stop)  # which hears Ctrl-C itself


def _through(executor, to_do, data, table, stop):
    """Let an executor do the trials; yields a trial's number and its row as it ends, in whatever order."""
    ended, numbers = queue.SimpleQueue(), {}
    try:
        for i, settings in to_do.items():
            future = _submit(executor, settings, data, stop)
            numbers[future] = i
            future.add_done_callback(ended.put)
        while numbers and not stop.requested:
            for future, i in numbers.items():
                if future.running():
                    table.set(i, "running")
            with contextlib.suppress(queue.Empty):
                future = ended.get(timeout=PATIENCE)
                i = numbers.pop(future)
                yield i, _row(future, to_do[i])
    finally:
        stop.requested = True  # for what is still running in threads of this process
        for future in numbers:
            future.cancel()
    if isinstance(executor, Processes):
        executor.shutdown(cancel_futures=True)
        for future, i in numbers.items():
            if not future.cancelled():
                yield i, _row(future, to_do[i])


def _submit(executor, settings, data, stop):
    """A future, even if the executor can do nothing any more."""
    try:
        return executor.submit(run_trial, settings, data, stop)
    except BrokenExecutor as error:
        future = Future()
        future.set_exception(error)
        return future


def _row(future, settings):
    """The row of a trial that ended, or was lost with its worker."""
    if future.cancelled():
        return make_row(settings, "failed", "cancelled by its executor")
    error = future.exception()
    if isinstance(error, NoWorker):  # nor will there be one for the next
        raise error
    return future.result() if error is None else make_row(settings, "failed", one_line(error))
