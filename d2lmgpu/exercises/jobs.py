"""The processes behind `apart.Supervisor`: the supervisor's own, and one for each job, which the supervisor forks.

Each read is limited in bytes and in time. Results go through sockets, because another process of the same user could
open a pipe (/proc/PID/fd) and write to it.
"""

import contextlib
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
import time
from typing import Any, NamedTuple

import psutil

from ..cluster.supervisor import PR_SET_PDEATHSIG, how_it_ended, prctl

MEMORY = 2 * 2**30
"""Bytes of data that a job may have, on Linux."""
LARGEST_FILE = 2**28
"""The most bytes that a job may write to one file."""
OUTPUT_LIMIT = 4_000
"""How many bytes of what a job prints are kept: a screen or two."""
RESULT_LIMIT = 2**20
"""The most bytes that a result may have."""
PATIENCE = 10.0
"""Seconds beyond a limit after which a process is taken for dead."""
ENVIRONMENT = {  # few threads, so that there is room for data; no windows
    **dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1"),
    "MPLBACKEND": "Agg",
}
PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 4, 36  # of Linux's prctl.h


class Outcome(NamedTuple):
    """What came of a job: its ``result``, or in words how it ``ended`` without one; and its ``output``."""

    result: Any
    ended: str | None
    output: str


def supervise(connection, modules):
    """The supervisor's process: import these ``modules``, then do jobs until there are no more."""
    _hide()
    sys.dont_write_bytecode = True
    sys.path[:] = [path for path in sys.path if path and path != os.getcwd()]
    for module in modules:
        importlib.import_module(module)
    if hasattr(os, "fork"):
        os.setsid()
        prctl(PR_SET_CHILD_SUBREAPER, 1)  # a job's process whose parent has ended becomes this one's child
    connection.send_bytes(b"ready")
    with contextlib.suppress(EOFError):
        while True:
            job = json.loads(connection.recv_bytes())
            outcome = _do(job) if job["forks"] else _do_here(job)
            connection.send_bytes(json.dumps([job["number"], *outcome]).encode())


def _hide():
    """Let only root look into this process and the processes of its jobs, and discard what this process prints."""
    prctl(PR_SET_DUMPABLE, 0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):
        os.dup2(nothing, stream)


def _result_of(job):
    """Call a job's function, in the job's folder."""
    if job["folder"]:
        os.chdir(job["folder"])
        os.environ.update({"HOME": job["folder"], "TMPDIR": job["folder"]})
    return getattr(importlib.import_module(job["module"]), job["name"])(*job["arguments"])


def _do_here(job):
    """Run a job in this process, where the system has no fork. Returns its `Outcome`."""
    with tempfile.TemporaryFile() as printed:
        for stream in (1, 2):
            os.dup2(printed.fileno(), stream)
        result = _result_of(job)
        sys.stdout.flush()
        printed.seek(0)
        return Outcome(result, None, printed.read(OUTPUT_LIMIT).decode(errors="replace"))


def _do(job):
    """The `Outcome` of a job that runs in a copy of this process."""
    word = secrets.token_bytes(16)  # begins a result, so that what a job writes to all open files is not taken for one
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
        return Outcome(None, late(job["seconds"]), text)
    spoke = found and not found.startswith(word)
    return Outcome(None, SPOKE if spoke else how_it_ended(os.waitstatus_to_exitcode(status)), text)


SPOKE = "sent a result of its own in place of the check's"


def _work(job, word, result, output):
    """The job's process: call the function, send the result, and end, even if there are other threads."""
    code = 1
    try:
        process = os.getpid()
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        multiprocessing.current_process().daemon = False  # it may start processes
        _take_over(os.open(os.devnull, os.O_RDONLY), output, result)
        _limit_memory(MEMORY)
        found = json.dumps(_result_of(job))
        _limit_memory(None)
        if os.getpid() == process:  # and not a copy that the job has forked
            os.write(RESULT, word + found.encode() + b"\n")
        code = 0
    finally:
        os._exit(code)


RESULT = 3  # the file descriptor of a job's result


def _take_over(nothing, output, result):
    """Use these file descriptors as standard input, standard output and errors, and `RESULT`; close all others."""
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
    """Limit this process to ``size`` bytes of data (None: lift that limit), and the size of each file that it writes.

    A crash leaves no core file.
    """
    import resource  # which Windows does not have

    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (most if size is None else size, most))
        resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _listen(process, results, prints, word, stop):
    """Read from a job's process until it has sent its result, has ended, or has used up its time.

    Returns the bytes of the result, the beginning of the output, how many bytes of output were left out, and the exit
    status (None if the process has not ended).
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
            break  # all has come
        if status is not None and not ready:
            break  # the process has ended, and there is nothing left to read
        status = _status(process) if status is None else status
    return found, printed, lost, _status(process) if status is None else status


def _status(process):
    """The exit status of a process; None if it has not ended."""
    ended, status = os.waitpid(process, os.WNOHANG)
    return status if ended else None


def _end_group(process):
    """End a job's process, the leader of its group (`_work`), and all processes that it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)
    stop = time.monotonic() + PATIENCE / 2
    while (started := psutil.Process().children(recursive=True)) and time.monotonic() < stop:
        end_all(started)  # again and again: new ones may have been forked meanwhile
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def end_all(processes):
    """Kill processes; some may have ended already."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()


def late(seconds):
    """In words, how a job ended that has used up its time."""
    return f"did not end within {seconds:g} seconds"
