"""Student code in processes of their own, with limits of time and memory, and with their output captured.

    this program ── a job ──► supervisor ── forks ──► the job's process ── calls the function
                 ◄─ outcome ──           ◄── result ──

A supervisor is a process that the standard library's fork server makes, which has imported the package once (see
warm.py). It holds each job to its limits, and then ends it with all processes that it has started. A job that ends its
supervisor costs a new one. So mistakes stay away from this program, whatever the code does: never end, exit, crash,
print for ever, take all memory. It is no sandbox: the code may still read and delete what the user may.

Jobs and outcomes are JSON, since to unpickle what a student's process sends would be to run it. They go through
sockets: another process of the same user could open pipes (/proc/PID/fd), and write to them. No read is unlimited in
bytes or in time.
"""

import contextlib
import ctypes
import importlib
import io
import json
import multiprocessing
import os
import secrets
import select
import signal
import socket
import sys
import tempfile
import threading
import time
from typing import Any, NamedTuple

import psutil

from .time_limit import SECONDS, check_seconds

MEMORY = 2 * 2**30
"""Bytes that a job may have, unless another limit is given."""
LARGEST_FILE = 2**28
"""Bytes of a file that a job may write."""
OUTPUT_LIMIT = 4_000
"""Bytes that are kept of what is printed: a screen or two."""

RESULT_LIMIT = 2**20
STARTING = 120.0  # seconds that Python may take to start, even on a machine that is busy
PATIENCE = 10.0  # seconds beyond a job's limit after which the supervisor is taken for dead
ENVIRONMENT = {  # few threads, so that there is room for data; no windows
    **dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1"),
    "MPLBACKEND": "Agg",
}
ADOPT, END_WITH_PARENT, SHOWN = 36, 1, 4  # PR_SET_CHILD_SUBREAPER, _PDEATHSIG and _DUMPABLE of Linux's prctl.h


class Outcome(NamedTuple):
    """What came of a job: its ``result``, or how it ``ended`` instead, in words; and what it printed."""

    result: Any
    ended: str | None
    output: str


def run_apart(function, *arguments, seconds=SECONDS, memory=MEMORY, folder=None):
    """`Supervisor.run`, by a supervisor for this job alone."""
    module, _, _ = function.partition(":")
    with contextlib.closing(Supervisor(True, module)) as supervisor:
        return supervisor.run(function, *arguments, seconds=seconds, memory=memory, folder=folder)


class Supervisor:
    """Runs jobs one after the other, for one thread at a time. Its process starts with the first job.

    ``anew``: that process is Python started anew, instead of a copy of the fork server. ``ready``: the module that it,
    or the fork server, imports before the first job.
    """

    _starting = threading.Lock()  # of all supervisors, since a start changes the environment for a moment

    def __init__(self, anew=False, ready=f"{__package__}.warm"):
        self._forks = hasattr(os, "fork")  # not on Windows
        self._context = multiprocessing.get_context("forkserver" if self._forks and not anew else "spawn")
        if self._context.get_start_method() == "forkserver":
            self._context.set_forkserver_preload([ready])
        self._ready, self._number, self._over = ready, 0, False
        self._process, self._seen, self._connection = None, None, None  # the same process for psutil is _seen

    def run(self, function, *arguments, seconds=SECONDS, memory=MEMORY, folder=None):
        """Call ``function``, written "module:name", in a process of its own. Returns an `Outcome`.

        Arguments and result are what JSON can say. ``seconds`` do not include the start of Python; ``memory`` is in
        bytes of data, a limit that only Linux keeps. ``folder``, if given, is the job's current folder and its home.

        Raises ValueError for seconds that are no limit.
        """
        check_seconds(seconds)
        self._start()
        self._number += 1
        job = {"number": self._number, "function": function, "arguments": arguments, "folder": folder}
        job |= {"forks": self._forks}
        job |= {"seconds": seconds, "memory": memory, "here": os.getcwd(), "environment": dict(os.environ)}
        begun, keep = time.monotonic(), False
        try:
            self._connection.send_bytes(json.dumps(job).encode())
            number, *outcome = json.loads(self._read(seconds + PATIENCE if self._forks else seconds))
            keep = number == self._number and self._forks
            return Outcome(*outcome) if number == self._number else GONE
        except (OSError, EOFError, ValueError, RecursionError):  # the supervisor is gone, or does not answer any more
            return GONE if self._forks else self._what_ended_it(seconds, begun)
        finally:
            if not keep:
                self.close()

    def _what_ended_it(self, seconds, begun):
        """The `Outcome` of a job that the supervisor did itself, and did not end."""
        if time.monotonic() - begun >= seconds:
            return Outcome(None, _late(seconds), "")
        self._process.join(PATIENCE)
        return Outcome(None, _how_it_ended(self._process.exitcode or 0), "")

    def _start(self):
        with contextlib.suppress(psutil.Error):
            if self._seen and self._seen.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                return
        for attempt in range(3):
            self.close()
            try:
                return self._try_to_start()
            except (OSError, EOFError):  # the fork server was ended at this moment; there will be another
                if attempt == 2:
                    raise

    def _try_to_start(self):
        self._connection, theirs = multiprocessing.Pipe()
        with theirs, self._starting, _environment():
            if self._over:
                raise KeyboardInterrupt
            process = self._context.Process(target=supervise, args=(theirs, self._ready), daemon=True)
            process.start()
            self._process, self._seen = process, psutil.Process(process.pid)
        self._read(STARTING)

    def _read(self, seconds):
        """A message of the supervisor, which is ended if none comes in time, or only a part of it."""
        watch = threading.Timer(seconds, self._kill)
        watch.start()
        try:
            return self._connection.recv_bytes(2 * RESULT_LIMIT)
        finally:
            watch.cancel()

    def _kill(self):
        """End the supervisor's process, and all that it has started."""
        if self._seen is not None:
            family = [self._seen]
            with contextlib.suppress(psutil.Error):
                family = [*self._seen.children(recursive=True), self._seen]
            _end_all(family)
            psutil.wait_procs(family[:-1], PATIENCE)

    def close(self):
        """End the process, and the job that is under way; another job starts another process."""
        self._kill()
        if self._process is not None:
            self._process.join(PATIENCE)
        if self._connection is not None:
            self._connection.close()
        self._process = self._seen = self._connection = None

    def close_for_good(self):
        """From another thread: end the process, and let no other start. The job under way has no result."""
        with self._starting:
            self._over = True
        self._kill()


GONE = Outcome(None, "ended the program that ran it", "")


@contextlib.contextmanager
def _environment():
    """`ENVIRONMENT` for processes that start within the ``with`` block."""
    before = {name: os.environ.get(name) for name in ENVIRONMENT}
    os.environ.update(ENVIRONMENT)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _end_all(processes):
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()


def supervise(connection, ready):
    """The supervisor's process: do jobs until there are no more."""
    hide()
    sys.dont_write_bytecode = True
    sys.path[:] = [path for path in sys.path if path and path != os.getcwd()]
    importlib.import_module(ready)
    if hasattr(os, "fork"):
        os.setsid()
        _prctl(ADOPT, 1)  # a process whose parent is gone becomes this one's child, and is ended, too
    connection.send_bytes(b"ready")
    with contextlib.suppress(EOFError):
        while True:
            job = json.loads(connection.recv_bytes())
            outcome = _do(job) if job["forks"] else _do_here(job)
            connection.send_bytes(json.dumps([job["number"], *outcome]).encode())


def hide():
    """Let only root look into this process and its jobs, and let it print nothing."""
    _prctl(SHOWN, 0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):
        os.dup2(nothing, stream)


def _prctl(option, value):
    """Linux's system call of this name."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value)


def _result_of(job):
    """Settle in the job's folder and environment, and call its function."""
    os.environ.clear()
    os.environ.update(job["environment"] | ENVIRONMENT)
    os.chdir(job["folder"] or job["here"])
    if job["folder"]:
        os.environ.update({"HOME": job["folder"], "TMPDIR": job["folder"]})
    module, _, name = job["function"].partition(":")
    return getattr(importlib.import_module(module), name)(*job["arguments"])


def _do_here(job):
    """The `Outcome` of a job, where there is no fork: this process does it itself."""
    with tempfile.TemporaryFile() as printed:
        for stream in (1, 2):
            os.dup2(printed.fileno(), stream)
        result = _result_of(job)
        sys.stdout.flush()
        printed.seek(0)
        return Outcome(result, None, printed.read(OUTPUT_LIMIT).decode(errors="replace"))


def _do(job):
    """The `Outcome` of a job, which is done in a copy of this process."""
    word = secrets.token_bytes(16)  # begins a result, so that a job that writes to all files has none
    (results, result), (prints, output) = map(socket.socket.detach, socket.socketpair()), os.pipe()
    process = os.fork()
    if process == 0:
        _work(job, word, result, output)
    os.close(result)
    os.close(output)
    try:
        found, printed, lost, status = _listen(process, results, prints, word, time.monotonic() + job["seconds"])
    finally:
        _end_group(process)
        os.close(results)
        os.close(prints)
    text = printed.decode(errors="replace") + (f"\n… ({lost:,} bytes more)" if lost else "")
    if found.startswith(word) and found.endswith(b"\n"):
        with contextlib.suppress(ValueError, RecursionError):
            return Outcome(json.loads(found[len(word) :]), None, text)
    if status is None:
        return Outcome(None, _late(job["seconds"]), text)
    spoke = found and not found.startswith(word)
    return Outcome(None, SPOKE if spoke else _how_it_ended(os.waitstatus_to_exitcode(status)), text)


SPOKE = "spoke in the place of the check"


def _work(job, word, result, output):
    """The job's process: call the function, tell its result, and end, whatever threads there are."""
    code = 1
    try:
        process = os.getpid()
        os.setsid()
        _prctl(END_WITH_PARENT, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        multiprocessing.current_process().daemon = False  # it may start processes
        _take_over(os.open(os.devnull, os.O_RDONLY), output, result)
        _limit_memory(job["memory"])
        found = json.dumps(_result_of(job))
        _limit_memory(None)
        if os.getpid() == process:  # and not a copy of it, made by fork
            os.write(RESULT, word + found.encode() + b"\n")
        code = 0
    finally:
        os._exit(code)


RESULT = 3  # the file descriptor of a job's result


def _take_over(nothing, output, result):
    """Let these be standard input, output and errors, and `RESULT`, and close all else that was inherited."""
    for here, there in enumerate((nothing, output, output, result)):
        os.dup2(there, here)
    os.set_inheritable(RESULT, False)
    os.closerange(RESULT + 1, os.sysconf("SC_OPEN_MAX"))
    sys.stdin = open(0, closefd=False)
    for name, fd in (("stdout", 1), ("stderr", 2)):
        raw = open(fd, "wb", buffering=0, closefd=False)
        text = io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)
        setattr(sys, name, text)


def _limit_memory(size):
    """Hold this process to so many bytes of data; None: to as many as before. No crash leaves a file."""
    import resource  # which Windows does not have

    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (most if size is None else size, most))
        resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _listen(process, results, prints, word, stop):
    """What comes from a job until it has told its result, ended, or used up its time.

    Returns the result, what it printed, how many bytes more, and its status, None if it goes on.
    """
    found, printed, lost, pipes, status = b"", b"", 0, [results, prints], None
    while time.monotonic() < stop:
        ready = select.select(pipes, [], [], min(0.05, max(0, stop - time.monotonic())))[0]
        for pipe in ready:
            part = os.read(pipe, 1 << 16)
            if not part:
                pipes.remove(pipe)
            elif pipe == results:
                found = (found + part)[:RESULT_LIMIT]
            else:
                room = OUTPUT_LIMIT - len(printed)
                printed, lost = printed + part[:room], lost + len(part[room:])
        if found.startswith(word) and found.endswith(b"\n") and prints not in ready:
            break
        if status is not None and not ready:
            break
        status = _status(process) if status is None else status
    return found, printed, lost, _status(process) if status is None else status


def _status(process):
    """How a process ended; None if it has not."""
    ended, status = os.waitpid(process, os.WNOHANG)
    return status if ended else None


def _end_group(process):
    """End a job with all that it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)
    stop = time.monotonic() + PATIENCE / 2
    while (started := psutil.Process().children(recursive=True)) and time.monotonic() < stop:
        _end_all(started)  # again, since one that forks meanwhile may have been missed
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _late(seconds):
    return f"did not end within {seconds:g} seconds"


def _how_it_ended(code):
    """How a process ended that gave no result."""
    if code >= 0:
        return f"ended the program (exit code {code})"
    with contextlib.suppress(ValueError):
        return f"crashed ({signal.Signals(-code).name})"
    return f"crashed (signal {-code})"
