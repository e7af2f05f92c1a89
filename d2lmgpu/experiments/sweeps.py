"""Train many networks: send trials to processes, or to any executor, and keep each resulting row as soon as it arrives.

A sweep that is given no executor has a process for each core or GPU. They are started from scratch ("spawn"), because a
copy of a process with threads ("fork") may hang.
"""

import _thread
import contextlib
import hashlib
import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait

from ..base.arguments import check_name, check_path, check_whole
from ..base.files import as_json, check_folder, target
from ..base.text import one_line, several
from ..devices import choose_indices, count_cores, find_gpus
from ..networks import find_loss
from ..training import History
from ..training.checks import network_for
from ..training.monitor import say, stop_on_interrupt
from ..training.resume import data_checksum
from .trials import add_row, complete_trials, describe, make_row, open_results, parts_from, rebuilt, run_trial, varying

MODES = ("simultaneous", "sequential")


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
    that failed or was interrupted is. ``keep_models``: a folder in which each trial that is done leaves its model for
    `load_model`; its row says under "model" where it is. (All workers of an ``executor`` must find the folder under the
    same name.)

    ``data``: as in `train`; they are sent with every trial (workers find Fashion-MNIST by themselves). ``invert``: as
    in `train`. ``progress``: print a line for each trial. ``watch``: a function that is called after each trial with
    the rows of all trials that have ended, in the form that `plot_curves` takes.

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
    parts = parts_from(data)
    for settings in map(rebuilt, trials):
        network_for(parts, settings["network"], settings["width"], find_loss(settings["loss"]))
    checksums = None if data is None else [data_checksum(*parts[:2]), data_checksum(*parts[2:4])]
    if keep_models is not None:
        check_path("keep_models", keep_models)
        check_folder(keep_models)
    models = [_model(keep_models, settings, checksums) for settings in trials]
    kept = [] if results is None else open_results(results, checksums)
    rows = [_finished(settings, kept, keep_models) for settings in trials]
    to_do = {i: (trials[i], data, invert, models[i]) for i, row in enumerate(rows) if row is None}
    done, names = len(rows) - len(to_do), varying(trials) or ["devices", "lr"]
    tell = say if progress else lambda text: None
    tell(several(len(rows), "trial") + (f", {done} of them done before" if done else ""))
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(stop_on_interrupt())
        if to_do and executor is None and mode == "simultaneous":
            executor = stack.enter_context(processes(cards_of_workers(workers, [trials[i] for i in to_do])))
        ended = _in_turn(to_do, stop) if mode == "sequential" else _through(executor, to_do, stop)
        for i, row in stack.enter_context(contextlib.closing(ended)):
            rows[i], status = row, row["status"]
            if results is not None and status != "interrupted":
                add_row(results, row)
            done += 1
            outcome = row["message"] or History.from_dict(row["history"]).summary()
            said = outcome if status in ("done", "diverged") else f"{status}: {outcome}"
            tell(f"{done}/{len(rows)}: {describe(row['settings'], names)}: {said}")
            if watch is not None:
                watch([row for row in rows if row is not None])
    rows = [row or make_row(settings, "interrupted") for settings, row in zip(trials, rows, strict=True)]
    statuses = [row["status"] for row in rows]
    tell(", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses)))
    return rows


def _model(folder, settings, checksums):
    """The file of a trial's model: an absolute path, since a worker may run in another folder; None for no folder."""
    trial = hashlib.sha256(as_json([settings, checksums], sort_keys=True).encode()).hexdigest()
    return None if folder is None else str(target(folder) / f"{trial[:10]}.ckpt")


def _finished(settings, kept, folder):
    """A trial's row among the ``kept`` ones, or None if it is to be trained, as for a model that is not there."""
    row = next((row for row in kept if row["settings"] == settings), {"status": None})
    has_model = folder is None or (row.get("model") is not None and os.path.exists(row["model"]))
    return row if row["status"] == "diverged" or (row["status"] == "done" and has_model) else None


def _in_turn(to_do, stop):
    """Do the trials here, one after another; yield the number and the row of each when it has ended.

    ``to_do``: by the numbers of the trials, the arguments of `run_trial`.
    """
    for i, given in to_do.items():
        row = run_trial(*given)
        yield i, row
        if stop.requested or row["status"] == "interrupted":  # in this case, `train` heard of Ctrl-C
            return


def _through(executor, to_do, stop):
    """Let an executor do the trials; the rest is as for `_in_turn`."""
    futures = {executor.submit(run_trial, *given): i for i, given in to_do.items()}
    try:
        while futures and not stop.requested:
            for future in wait(futures, 0.05, FIRST_COMPLETED).done:  # and then see whether Ctrl-C was pressed
                i = futures.pop(future)
                try:
                    row = future.result()
                except Exception as error:  # the process has died
                    row = make_row(to_do[i][0], "failed", one_line(error))
                yield i, row
    finally:
        for future in futures:
            future.cancel()


@contextlib.contextmanager
def processes(cards):
    """Yield an executor with a process for each of the ``cards``: the name of the only GPU that it sees, or None.

    At the end of the block, trials end after their current step. The processes hear of it by ``line``, a pipe whose
    other end, ``ours``, is closed then, or by the system if this program is killed.
    """
    spawned = multiprocessing.get_context("spawn")
    free = spawned.SimpleQueue()
    for card in cards:
        free.put(card)
    line, ours = spawned.Pipe(duplex=False)
    pool = ProcessPoolExecutor(len(cards), spawned, _begin, (free, line))
    try:
        pool.submit(os.getpid).result()  # an error now if no process can start
        yield pool
    finally:
        ours.close()
        pool.shutdown(cancel_futures=True)


def _begin(free, line):
    """Begin a process of `processes`: take a card of those that are ``free``, and watch the ``line``."""
    signal.signal(signal.SIGINT, lambda *_: None)  # between trials; in a trial, `train` listens to it
    card = free.get()
    if card is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = card  # read when CuPy is first used
    threading.Thread(target=_end_with, args=(line,), daemon=True).start()


def _end_with(line):
    """End this process when the other end of the ``line`` is closed, also because its program was killed."""
    with contextlib.suppress(EOFError, OSError):
        line.recv()
    _thread.interrupt_main()  # as by Ctrl-C
    time.sleep(5)  # for the current step
    os._exit(1)


def cards_of_workers(count, trials):
    """The GPU, by name or None, that each process for the trials sees: a list, of length ``count`` if that is given.

    By default there is a process for each GPU if a trial uses GPUs, otherwise for each core, but no more processes than
    trials.
    """
    uses_gpus = any(choose_indices(settings["environment"])[0] != "cpu" for settings in trials)
    number = find_gpus()[0] if uses_gpus else 0
    names = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(number)))
    cards = names.split(",")[:number]
    count = min(len(trials), count or number or count_cores())
    return [cards[i % number] if cards else None for i in range(count)]
