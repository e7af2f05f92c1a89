"""The processes of a sweep that is given no executor: one for each core or GPU.

They are started from scratch ("spawn"), because a copy of a process with threads ("fork") may hang.
"""

import _thread
import contextlib
import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures import ProcessPoolExecutor

from ..devices import choose_indices, count_cores, find_gpus

CONTEXT = multiprocessing.get_context("spawn")
_PATIENCE = 5.0
"""Seconds after which a process that should end is ended within a step."""


@contextlib.contextmanager
def processes(cards):
    """Yield an executor, and the queue to which `send_history` sends in its processes.

    There is a process for each of the ``cards``: the only GPU that it sees, or None. At the end of the block, trials
    end after their current step.
    """
    free, reports = CONTEXT.SimpleQueue(), CONTEXT.SimpleQueue()
    for card in cards:
        free.put(card)
    line, ours = CONTEXT.Pipe(duplex=False)
    pool = ProcessPoolExecutor(len(cards), CONTEXT, _begin, (free, reports, line))
    try:
        pool.submit(os.getpid).result()  # an error now if no process can start
        yield pool, reports
    finally:
        ours.close()
        pool.shutdown(cancel_futures=True)


def _begin(free, reports, line):
    """Begin a process: it ends when the other end of the ``line`` is closed, or lost with the program."""
    global _reports
    signal.signal(signal.SIGINT, lambda *_: None)  # between trials; in a trial, `train` listens to it
    card = free.get()
    if card is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = card  # read when CuPy is first used
    _reports = reports
    threading.Thread(target=_end_with, args=(line,), daemon=True).start()


def _end_with(line):
    with contextlib.suppress(EOFError, OSError):
        line.recv()
    _thread.interrupt_main()  # as by Ctrl-C
    time.sleep(_PATIENCE)
    os._exit(1)


def send_history(number, history):
    """Send the history so far of the trial with this number; in a process that trains."""
    _reports.put((number, history))


def cards_of_workers(count, trials):
    """The GPU, by name or None, that each process for the trials sees: a list, of length ``count`` if that is given.

    By default there is a process for each GPU if a trial uses GPUs, otherwise for each core, but no more processes than
    trials.
    """
    uses_gpus = any(choose_indices(settings["environment"])[0] != "cpu" for settings in trials)
    cards = visible_cards(find_gpus()[0]) if uses_gpus else []
    count = min(len(trials), count or len(cards) or count_cores())
    return [cards[i % len(cards)] if cards else None for i in range(count)]


def visible_cards(count):
    """The names of this process's ``count`` GPUs for CUDA_VISIBLE_DEVICES."""
    return (os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(count)))).split(",")[:count]
