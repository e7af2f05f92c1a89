"""What does trials at the same time where no executor is given: a process for each core or GPU.

    Processes ─┬─ thread ── process on core 0, or with GPU 0 as its only one
               ├─ thread ── process on core 1, or GPU 1
               └─ ...

Each thread hands trials to a process of its own, so that a process that dies takes
one trial with it and no other; the next trial gets a new process. Processes are
started afresh ("spawn"): a copy of one that has threads ("fork") may hang.
"""

import contextlib
import multiprocessing
import os
import queue
import signal
import threading
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool

from ..cluster.supervisor import how_it_ended
from ..devices import choose_indices, count_cores, find_gpus
from ..monitor import say
from . import trial

LOOK = 1.0
"""Seconds between two looks whether a process is stopped."""


class WorkerDied(RuntimeError):
    """A process ended while it did a trial, or as it started: killed, perhaps for want of memory, or crashed."""


class NoWorker(OSError):
    """No process can be started."""


class Processes(Executor):
    """``count`` processes, each with one of ``cards`` in turn as its only GPU, if there are any.

    ``hear(number, first, curves)`` is called, in other threads, with what a `trial.Report` tells in a process.
    Leaving the ``with`` block ends trials after their current step.
    """

    def __init__(self, count, cards=(), hear=trial.tell):
        self._hear = hear
        self._context = multiprocessing.get_context("spawn")
        self._stop = self._context.Event()
        self._cards = queue.SimpleQueue()
        for i in range(count):
            self._cards.put(cards[i % len(cards)] if cards else None)
        self._of_thread = threading.local()
        self._pools = []
        self._threads = ThreadPoolExecutor(count, initializer=self._begin_thread)

    def submit(self, function, /, *args):
        """A future of ``function(*args)`` in one of the processes.

        It raises WorkerDied if the process ends meanwhile, or is killed as it starts, and NoWorker if none can be
        started.
        """
        return self._threads.submit(self._run, function, args)

    def shutdown(self, wait=True, *, cancel_futures=False):
        """End the processes when their trials are done; with ``cancel_futures`` after their current steps."""
        if cancel_futures:
            self._stop.set()
        self._threads.shutdown(wait, cancel_futures=cancel_futures)
        for pool in self._pools:
            pool.shutdown(wait)

    def __exit__(self, *exception):
        self.shutdown(cancel_futures=True)

    def _begin_thread(self):
        if hasattr(signal, "pthread_sigmask"):  # a process inherits the mask of the thread that starts it
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        self._of_thread.card = self._cards.get()
        self._of_thread.pool = None

    def _run(self, function, args):
        if self._of_thread.pool is None:
            self._of_thread.pool, self._of_thread.process = self._start()
        try:
            return self._result(self._of_thread.pool.submit(function, *args), self._of_thread.process)
        except BrokenProcessPool:
            pool, self._of_thread.pool = self._of_thread.pool, None
            raise _death(pool, self._of_thread.process) from None

    def _result(self, future, process):
        """What a process returns. A line says that it is stopped by a signal; it is continued when all are to end."""
        told = False
        while not wait([future], LOOK).done:
            stopped = _is_stopped(process.pid)
            if stopped and self._stop.is_set():
                os.kill(process.pid, signal.SIGCONT)
            elif stopped and not told:
                pid = process.pid
                say(f"process {pid} of this sweep is stopped, and its trial waits; kill -CONT {pid} lets it go on")
            told = stopped
        return future.result()

    def _start(self):
        """A pool of one process, which is there, and the process."""
        reports, line = self._context.Pipe(duplex=False)
        begin = self._of_thread.card, self._stop, line
        pool = ProcessPoolExecutor(1, mp_context=self._context, initializer=begin_worker, initargs=begin)
        self._pools.append(pool)
        try:
            future = pool.submit(os.getpid)
            (process,) = pool._processes.values()
            self._result(future, process)
        except RuntimeError as error:  # the process ended, or is not to be started by one that is itself being started
            if isinstance(error, BrokenProcessPool) and (death := _death(pool, process)).by_signal:
                raise death from None
            raise NoWorker(
                "no worker process can be started; a program that calls sweep should be a file, and do so under "
                "if __name__ == '__main__':, since every worker imports it"
            ) from None
        finally:
            line.close()  # the process has its own, whose end is the end of the reports
            threading.Thread(target=_pass_on, args=(reports, self._hear), daemon=True).start()
        return pool, process


def _death(pool, process):
    """The `WorkerDied` of a pool that is broken."""
    pool.shutdown()  # which learns how the process ended
    code = process.exitcode or 0
    why = ", perhaps for want of memory" if code == -9 else ""
    error = WorkerDied(f"the process for this trial {how_it_ended(code)}{why}")
    error.by_signal = code < 0
    return error


def _is_stopped(pid):
    import psutil  # which takes a while

    try:
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    except psutil.Error:  # it ended just now
        return False


def _pass_on(reports, hear):
    """Let ``hear`` hear what comes, until the process ends that sends it."""
    with contextlib.suppress(EOFError, OSError), reports:
        while True:
            hear(*reports.recv())


def begin_worker(card, stop, line):
    """First work of a process: Ctrl-C is left to the program, whose end is this process's end, too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where there are no masks
    threading.Thread(target=_end_with, args=(multiprocessing.parent_process(),), daemon=True).start()
    trial.stopped = stop.is_set
    trial.tell = lambda *report: line.send(report)
    if card is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = card  # read when CuPy is first used


def _end_with(parent):
    parent.join()
    os._exit(1)


def count_workers(count, trials):
    """How many processes do the trials, ``count`` unless it is None, and the GPUs that they use: (number, names).

    One for each GPU if a trial uses them, otherwise one for each core; no more than there are trials.
    """
    uses_gpus = any(choose_indices(settings["environment"])[0] != "cpu" for settings in trials)
    cards = visible_cards(find_gpus()[0]) if uses_gpus else []
    return min(len(trials), count or len(cards) or count_cores()), cards


def visible_cards(count):
    """The names by which CUDA_VISIBLE_DEVICES knows the ``count`` GPUs of this process."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",")[:count] if visible else [str(i) for i in range(count)]
