"""Student code in a process of its own, with limits of time and memory, and with its output captured.

    this program ── a job ──► supervisor ── forks ──► the job's process ── calls the function
                 ◄─ outcome ──           ◄── result ──

multiprocessing starts the supervisor, a new Python, which imports what takes long once for all of its jobs.
It holds each job to its limits, and afterwards ends all processes that the job has started. If a job kills its
supervisor, the next job gets a new one. So this program is safe from mistakes, whatever the code does: run for ever,
exit, crash, print without end, take all memory. It is no sandbox: the code can still read and delete all files that
the user can.

Jobs and outcomes are JSON, because unpickling what a student's process sends would run it. multiprocessing's own fork
server is not used: all of its processes hang on one that a job can reach, and whose pipe it can write to.
"""

import contextlib
import json
import multiprocessing
import os
import sys
import threading
import time

import psutil

from ..cluster.supervisor import how_it_ended
from .jobs import ENVIRONMENT, PATIENCE, RESULT_LIMIT, Outcome, end_all, late, supervise
from .time_limit import SECONDS, check_seconds

SPAWN = multiprocessing.get_context("spawn")
STARTING = 120.0  # the most seconds that Python may take to start; it takes long on a busy machine


class Supervisor:
    """Runs jobs one after the other, for one thread at a time. Its process starts with the first job.

    ``modules``: the names of modules that its process imports before the first job.
    """

    _starting = threading.Lock()  # for all supervisors, since a start changes the environment for a moment

    def __init__(self, *modules):
        self._forks = hasattr(os, "fork")  # not on Windows
        self._modules, self._number, self._over = modules, 0, False
        self._process, self._seen, self._connection = None, None, None  # _seen: the process, for psutil

    def run(self, function, *arguments, seconds=SECONDS, folder=None):
        """Call ``function``, one of a module, in a process of its own. Returns an `Outcome`.

        JSON must be able to hold arguments and result. The limit of ``seconds`` does not include the start of Python.
        ``folder`` (optional) is the current folder of the job's process, and its home.

        Raises ValueError if ``seconds`` is not a valid limit.
        """
        check_seconds(seconds)
        self._start()
        self._number += 1
        job = {"module": function.__module__, "name": function.__name__, "arguments": arguments, "folder": folder}
        job |= {"number": self._number, "forks": self._forks, "seconds": seconds}
        begun, keep = time.monotonic(), False
        try:
            self._connection.send_bytes(json.dumps(job).encode())
            number, *outcome = json.loads(self._read(seconds + PATIENCE if self._forks else seconds))
            keep = number == self._number and self._forks
            return Outcome(*outcome) if number == self._number else GONE
        except (OSError, EOFError, ValueError, RecursionError):  # the supervisor is gone, or no longer answers
            return GONE if self._forks else self._what_ended_it(seconds, begun)
        finally:
            if not keep:
                self.close()

    def _what_ended_it(self, seconds, begun):
        """The `Outcome` of a job without a result on a system without fork: there the supervisor runs it itself."""
        if time.monotonic() - begun >= seconds:
            return Outcome(None, late(seconds), "")
        self._process.join(PATIENCE)
        return Outcome(None, how_it_ended(self._process.exitcode or 0), "")

    def _start(self):
        with contextlib.suppress(psutil.Error):
            if self._seen and self._seen.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                return
        self.close()
        self._connection, theirs = multiprocessing.Pipe()
        with theirs, self._starting, _environment():
            if self._over:  # close_for_good was called
                raise KeyboardInterrupt
            process = SPAWN.Process(target=supervise, args=(theirs, self._modules), daemon=True)
            process.start()
            self._process, self._seen = process, psutil.Process(process.pid)
        self._read(STARTING)

    def _read(self, seconds):
        """Read a supervisor's message. If not all of it comes in time, kill the supervisor, and raise EOFError."""
        watch = threading.Timer(seconds, self._kill)
        watch.start()
        try:
            return self._connection.recv_bytes(2 * RESULT_LIMIT)
        finally:
            watch.cancel()

    def _kill(self):
        """Kill the supervisor's process, and all processes that it has started."""
        if self._seen is not None:
            family = [self._seen]
            with contextlib.suppress(psutil.Error):
                family = [*self._seen.children(recursive=True), self._seen]
            end_all(family)
            psutil.wait_procs(family[:-1], PATIENCE)  # `close` waits for the last, the supervisor itself

    def close(self):
        """End the process, and a job that is under way. The next job starts a new process."""
        self._kill()
        if self._process is not None:
            self._process.join(PATIENCE)
        if self._connection is not None:
            self._connection.close()
        self._process = self._seen = self._connection = None

    def close_for_good(self):
        """From another thread: end the process, and start no other. A job that is under way has no result."""
        with self._starting:
            self._over = True
        self._kill()


GONE = Outcome(None, "ended the program that ran it", "")


@contextlib.contextmanager
def _environment():
    """Set `ENVIRONMENT` for processes that start in the ``with`` block, and hide the main module from them.

    Otherwise they would run the main script again, if it does not ask for ``__name__ == "__main__"``.
    """
    before, main = {name: os.environ.get(name) for name in ENVIRONMENT}, sys.modules["__main__"]
    os.environ.update(ENVIRONMENT)
    sys.modules["__main__"] = type(sys)("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
