"""Run student code in a process of its own, with limits on time and memory, and with its output captured.

    this program ── a job ──► supervisor ── forks ──► the job's process ── calls the function
                 ◄─ outcome ──           ◄── result ──

multiprocessing starts the supervisor, a new Python process, which imports slow modules once for all of its jobs. The
supervisor holds each job to its limits, and afterwards ends all processes that the job has started. If a job kills its
supervisor, the next job gets a new one. So this program is safe from mistakes in the code, even if the code runs for
ever, exits, crashes, prints without end, or takes all memory. This is not a sandbox: the code can still read and delete
all files that the user can.

Jobs and outcomes are JSON, because unpickling what a student's process sends could run code. multiprocessing's own fork
server is not used, because all of its processes depend on one that a job can reach, and to whose pipe it can write.
"""

import contextlib
import json
import multiprocessing
import os
import sys
import threading
import time

from ..devices.forks import start
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
        self._modules, self._over = modules, False
        self._process = self._connection = None

    def run(self, function, *arguments, seconds=SECONDS):
        """Call ``function``, which is defined in a module, in a process of its own. Returns an `Outcome`.

        JSON must be able to hold the arguments and the result. The limit of ``seconds`` does not include the start of
        Python.

        Raises ValueError if ``seconds`` is not a valid limit.
        """
        check_seconds(seconds)
        self._start()
        forks = hasattr(os, "fork")  # on Windows the supervisor does the job itself, and ends
        job = {"function": f"{function.__module__}:{function.__name__}", "arguments": arguments}
        job |= {"forks": forks, "seconds": seconds}
        begun, keep = time.monotonic(), False
        try:
            self._connection.send_bytes(json.dumps(job).encode())
            outcome = Outcome(*json.loads(self._read(seconds + PATIENCE if forks else seconds)))
            keep = forks
            return outcome
        except (OSError, EOFError, ValueError, RecursionError):  # the supervisor is gone, or no longer answers
            is_late = time.monotonic() - begun >= seconds
            return Outcome(None, late(seconds) if is_late else "ended the program that ran it", "")
        finally:
            if not keep:
                self.close()

    def _start(self):
        if self._process is not None and self._process.is_alive():
            return
        self.close()
        self._connection, theirs = multiprocessing.Pipe()
        with theirs, self._starting, _environment():
            if self._over:  # close_for_good was called
                raise KeyboardInterrupt
            process = SPAWN.Process(target=supervise, args=(theirs, self._modules), daemon=True)
            start(process)
            self._process = process
        self._read(STARTING)

    def _read(self, seconds):
        """Read a supervisor's message. If none comes in time, kill the supervisor, and raise EOFError."""
        if not self._connection.poll(seconds):
            self._kill()
        return self._connection.recv_bytes(2 * RESULT_LIMIT)

    def _kill(self):
        """Kill the supervisor's process, and all processes that it has started."""
        process, started = self._process, []
        if process is not None and process.is_alive():
            import psutil

            with contextlib.suppress(psutil.Error):
                started = psutil.Process(process.pid).children(recursive=True)
            end_all([*started, process])
            psutil.wait_procs(started, PATIENCE)
            process.join(PATIENCE)

    def close(self):
        """End the process, and any job that is under way. The next job starts a new process."""
        self._kill()
        if self._connection is not None:
            self._connection.close()
        self._process = self._connection = None

    def close_for_good(self):
        """From another thread: end the process, and start no other. A job that is under way has no result."""
        with self._starting:
            self._over = True
        self._kill()


@contextlib.contextmanager
def _environment():
    """Set `ENVIRONMENT` for processes that start in the ``with`` block, and hide the main module from them.

    Otherwise they would run the main script again, unless it checks that ``__name__ == "__main__"``.
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
