"""The processes of a sweep that is given no executor: one for each core or GPU, each an executor of its own.

So it is known which trial is lost with a process that dies. Processes are started from scratch ("spawn"), because a
copy of a process with threads ("fork") may hang.
"""

import _thread
import contextlib
import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor

from ..devices import choose_indices, count_cores, find_gpus

CONTEXT = multiprocessing.get_context("spawn")
PATIENCE = 5.0
"""Seconds after which a process that should end is ended within a step."""

NO_WORKER = "no worker process can be started; a program that calls sweep should be a file, and do so under "
NO_WORKER += "if __name__ == '__main__':, since every worker imports it"


class Worker(Executor):
    """An executor of one process, which sees only the GPU ``card``, if any. If it dies, the next trial has another."""

    def __init__(self, card):
        self._card = card
        self.start()

    def start(self):
        """Start the process."""
        self._line, other = CONTEXT.Pipe()
        self._pool = ProcessPoolExecutor(1, CONTEXT, _begin, (self._card, other))
        self._begun = self._pool.submit(os.getpid)
        other.close()  # the process has its own copy

    def submit(self, function, /, *given):
        """Have ``function(*given, report)`` called in the process."""
        try:
            return self._pool.submit(_work, function, *given)
        except BrokenExecutor:
            self.start()
            return self._pool.submit(_work, function, *given)

    def reports(self):
        """Yield what ``report`` was called with. Raises OSError if the process died before it could do anything."""
        with contextlib.suppress(EOFError, OSError):  # it has died since
            while self._line.poll():
                yield self._line.recv()
        if self._begun.done() and self._begun.exception() is not None:
            raise OSError(NO_WORKER)

    def shutdown(self, wait=True, *, cancel_futures=False):
        """End the process, and a trial in it after its current step."""
        self._line.close()
        self._pool.shutdown(wait, cancel_futures=cancel_futures)


def _begin(card, line):
    """Begin a process: it ends when the other end of the ``line`` is closed, or lost with the program."""
    global _line
    signal.signal(signal.SIGINT, lambda *_: None)  # between trials; in a trial, `train` listens to it
    if card is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = card  # read when CuPy is first used
    _line = line
    threading.Thread(target=_end_with, args=(line,), daemon=True).start()


def _end_with(line):
    with contextlib.suppress(EOFError, OSError):
        line.recv()
    _thread.interrupt_main()  # as by Ctrl-C
    time.sleep(PATIENCE)
    os._exit(1)


def _work(function, *given):
    return function(*given, _line.send)


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
