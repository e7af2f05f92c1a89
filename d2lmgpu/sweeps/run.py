"""Train many networks: send trials to an executor, and keep each resulting row as soon as it arrives."""

import contextlib
import functools
import queue
from concurrent.futures import BrokenExecutor

from ..arguments import check_name, check_whole
from ..data import check_parts
from ..devices.errors import one_line
from ..locks import holding
from ..monitor import stop_on_interrupt
from ..networks import FASHION_MNIST, Network, find_loss
from ..training.checks import network_for
from .files import trial_files
from .progress import Record
from .results import Results
from .trial import OnlyHere, make_row, run_trial
from .trials import complete_trials, network_of, show
from .workers import cards_of_workers, on_workers

MODES = ("simultaneous", "sequential")
PATIENCE = 0.2
"""Seconds after which a waiting sweep checks whether Ctrl-C was pressed."""


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

    ``results``: a file that always has the rows so far. A trial with a result in it is not repeated; a failed trial is.
    While a sweep uses the file, other sweeps are refused. ``keep_models``: a folder in which each finished trial leaves
    a checkpoint for `load_model`; its row says under "model" where it is. With either of them, an interrupted trial
    resumes the next time, and ends as it would have without the break. (With an ``executor`` this needs
    ``keep_models``, a folder that all its workers find under the same name.)

    ``data``: as in `train`; they are sent with every trial (workers find Fashion-MNIST by themselves). ``invert``: as
    in `train`. ``progress``: show a table. ``watch``: a function that is called after each epoch and each trial with
    the rows so far, in the form that `plot_curves` takes: running trials have the status "running" and their curves in
    ``history``. (Trials in an ``executor``'s processes are reported only when they end.)

    If a trial fails, its row says why, and the others go on. Ctrl-C ends trials after their current step; these, and
    trials that have not begun, are "interrupted".

    Raises ValueError for trials that make no sense, or a file with other contents; DeviceError for devices that this
    machine does not have; OSError if the file or the folder cannot be written, another sweep uses it, or no process can
    be started.
    """
    workers = None if workers is None else check_whole("workers", workers)
    _check_ways(executor, mode, workers)
    trials = complete_trials(trials, mode if executor is None else None)
    _check_data(data, trials)
    with contextlib.ExitStack() as stack:
        stack.enter_context(holding(results))
        kept = Results(results, data)
        files = stack.enter_context(trial_files(keep_models, results if executor is None else None, kept.data))
        rows = [_known(settings, kept, files) for settings in trials]
        record = Record(rows, kept, progress, watch)
        stack.callback(kept.close)
        stop = stack.enter_context(stop_on_interrupt())
        waiting = {i: row["settings"] for i, row in enumerate(rows) if row["status"] == "waiting"}
        to_do = {i: (settings, data, invert, files.path(settings)) for i, settings in waiting.items()}
        if executor is not None:
            ended = _through(executor, to_do, record, stop)
        elif mode == "simultaneous":
            ended = on_workers(run_trial, to_do, cards_of_workers(workers, waiting.values()), record, stop)
        else:
            ended = _in_turn(to_do, record, stop)
        for i, row in stack.enter_context(contextlib.closing(ended)):
            row = files.with_model(row)
            record.end(i, row)
            files.remove(row)
            stop.wanted |= row["status"] == "interrupted"
    return record.complete()


def _check_ways(executor, mode, workers):
    check_name("mode", mode, MODES)
    if workers is not None and mode == "sequential":
        raise ValueError("mode 'sequential' trains in this process; leave out workers")
    if executor is not None and (mode == "sequential" or workers is not None):
        raise ValueError("an executor decides what runs where; leave out mode and workers")


def _check_data(data, trials):
    """Raise ValueError unless the data (Fashion-MNIST for None) fit all networks."""
    ways = [(settings["network"], settings["loss"], settings["width"]) for settings in trials]
    for setting, loss, width in (way for i, way in enumerate(ways) if way not in ways[:i]):
        network = network_of(setting)
        if data is not None:
            network_for(check_parts(data), network, width, find_loss(loss))
        elif isinstance(network, Network) and (network.input_shape != FASHION_MNIST or network.classes < 10):
            raise ValueError(
                f"network {show(setting)} takes images of shape {network.input_shape} and has {network.classes} "
                f"classes; Fashion-MNIST has {FASHION_MNIST} and 10: give data, too"
            )


def _known(settings, kept, files):
    """The row of a trial that need not be done again, or else a row with the status "waiting"."""
    row = kept.finished(settings)
    if row is None or files.lack(row):
        return make_row(settings, "waiting", "waiting")
    files.remove(row)  # left by a killed program
    return files.with_model(row)


def _in_turn(to_do, record, stop):
    """Do the trials here, one after another; yield each trial's number and its row when it ends.

    ``to_do``: the arguments of `run_trial`, by the trials' numbers, except ``stop`` and ``report``.
    """
    for i, given in to_do.items():
        if stop.requested:
            return
        report = functools.partial(record.runs, i)
        yield i, run_trial(*given, lambda: stop.requested, report)  # `train` handles Ctrl-C itself


def _through(executor, to_do, record, stop):
    """Let an executor do the trials; yield each trial's number and its row when it ends, in any order."""
    numbers, events = {}, queue.SimpleQueue()  # finished futures, and reports of running trials
    try:
        for i, given in to_do.items():
            report = OnlyHere(lambda curves, i=i: events.put((i, curves)))
            try:
                future = executor.submit(run_trial, *given, OnlyHere(lambda: stop.requested), report)
            except BrokenExecutor as error:  # the executor is unusable now
                yield i, make_row(given[0], "failed", one_line(error))
                continue
            numbers[future] = i
            future.add_done_callback(events.put)
        while numbers and not stop.requested:
            with contextlib.suppress(queue.Empty):
                event = events.get(timeout=PATIENCE)
                if isinstance(event, tuple):
                    record.runs(*event)
                else:
                    i = numbers.pop(event)
                    yield i, _row(event, to_do[i][0])
    finally:
        stop.wanted = True  # for trials still running in threads of this process
        for future in numbers:
            future.cancel()


def _row(future, settings):
    """The row of a trial that has ended, or that was lost with its worker."""
    if future.cancelled():
        return make_row(settings, "failed", "cancelled by its executor")
    error = future.exception()
    return future.result() if error is None else make_row(settings, "failed", one_line(error))
