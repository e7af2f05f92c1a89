"""Somebody's code in a forked process each: `run_apart` many times, of which Python and the package start once.

    this program ── a job, a line of JSON ──► warmed-up process ── forks ───► process of one job ── calls the function
                 ◄── what came of it ────────                   ◄── result ──

The warmed-up process has one thread only, so that it may be forked. It holds each job to its limit of time, and ends
it with all that the job has started. A job that ends the warmed-up process itself costs a new one. Jobs and results
go through sockets: the pipes of another process of the same user can be opened (/proc/PID/fd), and written to.
"""

import contextlib
import ctypes
import importlib
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil

from .apart import (
    ENVIRONMENT,
    MEMORY,
    OUTPUT_LIMIT,
    RESULT_LIMIT,
    STARTING,
    Outcome,
    how_it_ended,
    limit_memory,
    own_group,
    run_apart,
)
from .time_limit import SECONDS, check_seconds

START = (
    "import sys; sys.path = [sys.argv[1], *filter(None, sys.path)]; "
    "from d2lmgpu.exercises import forked; forked.serve()"
)
LARGEST_FILE = 2**28
"""Bytes of a file that a job may write."""
PATIENCE = 10.0  # seconds beyond its limit, after which the warmed-up process is taken for dead
ADOPT, END_WITH_PARENT, SHOWN = 36, 1, 4  # PR_SET_CHILD_SUBREAPER, _PDEATHSIG and _DUMPABLE of Linux's prctl.h


class Warm:
    """A warmed-up process, for one thread of this program at a time, which starts with the first job."""

    def __init__(self):
        self._process, self._socket, self._over, self._lock = None, None, False, threading.Lock()

    def run(self, function, *arguments, seconds=SECONDS, memory=MEMORY, folder=None):
        """As `run_apart`, in a process whose current folder, and whose home, is ``folder``."""
        check_seconds(seconds)
        if not hasattr(os, "fork"):
            return run_apart(function, *arguments, seconds=seconds, memory=memory, folder=folder)
        job = {"function": function, "arguments": arguments, "memory": memory, "seconds": seconds, "folder": folder}
        self._start()
        try:
            self._socket.sendall(json.dumps(job).encode() + b"\n")
            return Outcome(*json.loads(_read_line(self._socket, seconds + PATIENCE)))
        except (OSError, ValueError, RecursionError):  # it is gone, or does not answer any more
            self.end()
            return Outcome(None, "ended the program that ran it", "")
        except BaseException:
            self.end()
            raise

    def _start(self):
        if self._process is None or self._process.poll() is not None:
            self.end()
            command = [sys.executable, "-B", "-u", "-c", START, str(Path(__file__).parents[2])]
            self._socket, theirs = socket.socketpair()
            pipes = {"stdin": theirs, "stdout": theirs, "stderr": subprocess.DEVNULL}
            with theirs, self._lock:
                if self._over:
                    raise KeyboardInterrupt
                self._process = subprocess.Popen(command, env=os.environ | ENVIRONMENT, **pipes, **own_group())
            _read_line(self._socket, STARTING)

    def end(self):
        """End the process, and what is under way in it; the next job starts another."""
        process, self._process = self._process, None
        if process is not None:
            _end_process(process)
            self._socket.close()

    def end_for_good(self):
        """From another thread: end the process, and let no other start. Whoever waits for a job has no result."""
        with self._lock:
            self._over, process = True, self._process
        if process is not None:
            _end_process(process)


def _end_process(process):
    with contextlib.suppress(psutil.Error):
        _end_all(psutil.Process(process.pid).children(recursive=True))
    process.kill()
    process.wait()


def _read_line(connection, seconds):
    """A line from a socket. Raises ValueError if none comes in time."""
    found, stop = b"", time.monotonic() + seconds
    while not found.endswith(b"\n"):
        connection.settimeout(max(0.001, stop - time.monotonic()))
        part = connection.recv(1 << 16)
        if not part:
            raise ValueError("no answer")
        found += part
    return found


def serve():
    """The warmed-up process's side: do jobs until there are no more."""
    sys.path.remove(sys.argv[1])
    connection = socket.socket(fileno=os.dup(0))
    jobs = connection.makefile("rb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nothing, stream)
    for module in ("d2lmgpu.exercises.copies", "matplotlib.pyplot"):  # what takes long, and answers import
        importlib.import_module(module)
    _prctl(ADOPT, 1)  # whose parent is gone becomes this process's child, and is ended, too
    _prctl(SHOWN, 0)  # only root may look into it, and into its jobs
    assert threading.active_count() == 1
    connection.sendall(b"ready\n")
    for line in jobs:
        outcome = _do(json.loads(line), (jobs, connection))
        connection.sendall(json.dumps(outcome).encode() + b"\n")


def _do(job, own):
    """The `Outcome` of a job, which is done in a copy of this process."""
    word = secrets.token_bytes(16)  # begins a result, so that a job that writes to all pipes has none
    (results, result), (prints, output) = map(socket.socket.detach, socket.socketpair()), os.pipe()
    process = os.fork()
    if process == 0:
        for pipe in own:
            pipe.close()
        os.close(results)
        os.close(prints)
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
    late = f"did not end within {job['seconds']:g} seconds"
    return Outcome(None, late if status is None else how_it_ended(os.waitstatus_to_exitcode(status)), text)


def _work(job, word, result, output):
    """The job's process: call the function, tell what it returned, and end, whatever threads there are."""
    code = 1
    try:
        os.setsid()
        _prctl(END_WITH_PARENT, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(output, 1)
        os.dup2(output, 2)
        process = os.getpid()
        if job["folder"]:
            os.chdir(job["folder"])
            os.environ |= {"HOME": job["folder"], "TMPDIR": job["folder"]}
        module, _, name = job["function"].partition(":")
        function = getattr(importlib.import_module(module), name)
        _limit_files()
        limit_memory(job["memory"])
        found = json.dumps(function(*job["arguments"]))
        limit_memory(None)
        if os.getpid() == process:  # and not a copy of it, made by fork
            os.write(result, word + found.encode() + b"\n")
        code = 0
    finally:
        os._exit(code)


def _prctl(option, value):
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value)


def _limit_files():
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))


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
        _end_all(started)  # again, since who forks meanwhile is not among them
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _end_all(processes):
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
