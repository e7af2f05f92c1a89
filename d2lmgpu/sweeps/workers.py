"""Do trials at the same time without an executor: one process for each core or GPU.

    program ─┬─ pipe ── process on core 0, or with GPU 0 as its only one
             ├─ pipe ── process on core 1, or GPU 1
             └─ ...

Each process asks for a trial, reports progress, returns its row, and asks for the next. If a process dies, only its
current trial is lost, and a new process replaces it. Processes are started from scratch ("spawn"), because a copy of a
process with threads ("fork") may hang.
"""

import contextlib
import itertools
import multiprocessing
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import connection

from ..cluster.supervisor import how_it_ended
from ..devices import choose_indices, count_cores, find_gpus
from ..devices.forks import start
from ..monitor import say
from .trial import make_row

CONTEXT = multiprocessing.get_context("spawn")
LOOK = 1.0
"""Seconds after which the waiting program checks whether Ctrl-C was pressed or a process is stopped."""

NO_WORKER = (
    "no worker process can be started; a program that calls sweep should be a file, and do so under "
    "if __name__ == '__main__':, since every worker imports it"
)


def on_workers(function, to_do, cards, record, stop):
    """Do trials in processes, one for each of ``cards`` (the GPU that it sees, or None); yield numbers and rows.

    ``to_do``: the arguments of ``function`` (`run_trial`), by the trials' numbers, except ``stop`` and ``report``. When
    ``stop`` is requested, trials end after their current step, and no new ones begin. Raises OSError if no process can
    be started.
    """
    ending, to_do, workers = CONTEXT.Event(), list(to_do.items()), []
    try:
        workers += (_Worker(card, ending) for card in cards)
        while workers:
            if stop.requested:
                ending.set()
                to_do.clear()
            ready = connection.wait([worker.line for worker in workers], LOOK)
            for worker in [worker for worker in workers if worker.line in ready]:
                try:
                    event, *what = worker.line.recv()
                except (EOFError, OSError):
                    event = "death"
                if event == "ask" and to_do:
                    worker.begin(function, *to_do.pop(0))
                elif event == "report":
                    record.runs(worker.number, *what)
                elif event == "row":
                    number, worker.number = worker.number, None
                    yield number, *what
                else:  # there is nothing left to do, or it has died
                    workers.remove(worker)
                    worker.end()
                    if event == "death" and (worker.number is not None or to_do):
                        why = worker.death()  # if it was killed while it started, the next trial is lost
                        number = to_do.pop(0)[0] if worker.number is None else worker.number
                        yield number, make_row(record.rows[number]["settings"], "failed", why)
                        workers += [_Worker(worker.card, ending)] if to_do else []
            for worker in workers:
                worker.look()
    finally:
        ending.set()
        for worker in workers:
            worker.end()


class _Worker:
    """A process that sees only the GPU ``card``, if any; ``number``: the number of its current trial, or None."""

    def __init__(self, card, ending):
        self.card, self.number, self._ending, self._told = card, None, ending, False
        self.line, other = CONTEXT.Pipe()
        self._process = CONTEXT.Process(target=work, args=(card, ending, other))
        with ThreadPoolExecutor(1, initializer=_block_ctrl_c) as thread:  # the process inherits its signal mask
            try:
                thread.submit(start, self._process).result()
            except RuntimeError:  # this process is itself still being started
                raise OSError(NO_WORKER) from None
        other.close()  # the process has its own copy; when that closes, the pipe ends

    def begin(self, function, number, given):
        """Start a trial in the process."""
        self.number = number
        with contextlib.suppress(OSError):  # it has died, which will be noticed next
            self.line.send((function, given))

    def look(self):
        """Report the process if a signal has stopped it; let it continue when all processes should end."""
        import psutil  # importing it takes a while

        pid, stopped = self._process.pid, False
        with contextlib.suppress(psutil.Error):  # it has just ended
            stopped = psutil.Process(pid).status() == psutil.STATUS_STOPPED
        if stopped and self._ending.is_set():
            os.kill(pid, signal.SIGCONT)
        elif stopped and not self._told:
            say(f"process {pid} of this sweep is stopped, and its trial waits; kill -CONT {pid} lets it go on")
        self._told = stopped

    def end(self):
        """Wait until the process has ended."""
        self.line.close()
        while self._process.exitcode is None:
            self.look()
            self._process.join(LOOK)

    def death(self):
        """How the process died, in a line. Raises OSError if it was not killed but ended before it got a trial."""
        code = self._process.exitcode
        if self.number is None and code >= 0:
            raise OSError(NO_WORKER)
        why = ", perhaps for want of memory" if code == -9 else ""
        return f"WorkerDied: the process for this trial {how_it_ended(code)}{why}"


def _block_ctrl_c():
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def work(card, ending, line):
    """Do trials in a process. The program handles Ctrl-C; when the program is gone, reports fail, and so this ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where there are no masks
    if card is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = card  # read when CuPy is first used
    with contextlib.suppress(EOFError, OSError):  # there is nothing left to do
        while True:
            line.send(("ask",))
            function, given = line.recv()
            line.send(("row", function(*given, ending.is_set, lambda curves: line.send(("report", curves)))))


def cards_of_workers(count, trials):
    """The GPU, by name or None, that each process for the trials sees: a list, of length ``count`` if that is given.

    By default there is a process for each GPU if a trial uses GPUs, otherwise for each core, but no more processes than
    trials.
    """
    uses_gpus = any(choose_indices(settings["environment"])[0] != "cpu" for settings in trials)
    cards = visible_cards(find_gpus()[0]) if uses_gpus else []
    count = min(len(trials), count or len(cards) or count_cores())
    return list(itertools.islice(itertools.cycle(cards or [None]), count))


def visible_cards(count):
    """The names of this process's ``count`` GPUs for CUDA_VISIBLE_DEVICES."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",")[:count] if visible else [str(i) for i in range(count)]
