"""The processes behind `apart.Supervisor`: the supervisor's own, and one for each job, which the supervisor forks.

Each read is limited in bytes and in time. Results go through multiprocessing's pipes, which are in fact sockets:
another process of the same user could open a true pipe (/proc/PID/fd) and write to it.
"""

import contextlib
import json
import multiprocessing
import os
import pkgutil
import secrets
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from ..cluster.supervisor import PR_SET_PDEATHSIG, how_it_ended
from ..devices.cpu import libc

MEMORY = 2 * 2**30
"""The most bytes of data that a job may have, on Linux."""
LARGEST_FILE = 2**28
"""The most bytes that a job may write to one file."""
OUTPUT_LIMIT = 4_000
"""How many bytes of a job's output are kept: enough for a screen or two."""
RESULT_LIMIT = 2**20
"""The most bytes that a result may have."""
PATIENCE = 10.0
"""How many seconds after its limit a process is considered dead."""
ENVIRONMENT = {  # few threads, to leave memory for data; no windows; complete output without delay
    **dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1"),
    "MPLBACKEND": "Agg",
    "PYTHONUNBUFFERED": "1",
    "PYTHONIOENCODING": "utf-8:backslashreplace",
}
PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 4, 36  # of Linux's prctl.h


class Outcome(NamedTuple):
    """The outcome of a job: its ``result`` or, in words, how it ``ended`` without one; and its ``output``."""

    result: Any
    ended: str | None
    output: str


def supervise(connection, modules):
    """Run in the supervisor's process: import these ``modules``, then do jobs until there are no more."""
    libc("prctl", PR_SET_DUMPABLE, 0)  # only root may look into this process and the processes of its jobs
    _use_for(os.open(os.devnull, os.O_RDWR), 0, 1, 2)
    sys.stdin = open(0, closefd=False)
    sys.dont_write_bytecode = True
    sys.path[:] = [path for path in sys.path if path and path != os.getcwd()]
    for module in modules:
        pkgutil.resolve_name(module)
    if hasattr(os, "fork"):
        os.setsid()
        libc("prctl", PR_SET_CHILD_SUBREAPER, 1)  # a job's process whose parent has ended becomes this one's child
        multiprocessing.current_process().daemon = False  # jobs may start processes
    connection.send_bytes(b"ready")
    with contextlib.suppress(EOFError):
        while True:
            job = json.loads(connection.recv_bytes())
            outcome = _do(job) if job["forks"] else _do_here(job)
            connection.send_bytes(json.dumps(outcome).encode())


def _use_for(file, *streams):
    """From now on, use an open file for these standard streams: 0 is the input, 1 the output, 2 the error stream."""
    for stream in streams:
        os.dup2(file, stream)


def _result_of(job):
    return pkgutil.resolve_name(job["function"])(*job["arguments"])


def _do_here(job):
    """Run a job in this process, for systems that have no fork. Returns its `Outcome`."""
    with tempfile.TemporaryFile() as printed:
        _use_for(printed.fileno(), 1, 2)
        result = _result_of(job)
        printed.seek(0)
        return Outcome(result, None, _beginning(printed))


def _do(job):
    """The `Outcome` of a job that runs in a copy of this process."""
    word = secrets.token_bytes(16)  # begins a result, so that what a job writes to all open files is not taken for one
    (results, result), (prints, output) = multiprocessing.Pipe(), os.pipe()
    process = os.fork()
    if process == 0:
        _work(job, word, result, output)
    result.close()
    os.close(output)
    with results, open(prints, "rb", buffering=0) as printed, ThreadPoolExecutor(1) as reader:
        text = reader.submit(_beginning, printed)
        try:
            found, ended = _listen(process, results, word, job["seconds"])
        finally:
            _end_group(process)
        return Outcome(found, ended, text.result())


def _beginning(printed):
    """Read everything that a job prints, until it ends. Returns the beginning as text."""
    kept, lost = b"", 0
    while part := printed.read(1 << 16):
        room = OUTPUT_LIMIT - len(kept)
        kept, lost = kept + part[:room], lost + len(part[room:])
    return kept.decode(errors="replace") + (f"\n… ({lost:,} bytes more)" if lost else "")


def _work(job, word, result, output):
    """Run in the job's process: call the function, send the result, and exit, even if there are other threads."""
    code = 1
    try:
        process = os.getpid()
        os.setsid()
        libc("prctl", PR_SET_PDEATHSIG, signal.SIGKILL)
        _use_for(output, 1, 2)
        os.closerange(3, result.fileno())
        os.closerange(result.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
        _set_limits()
        found = json.dumps(_result_of(job))
        if os.getpid() == process:  # and not a copy that the job has forked
            result.send_bytes(word + found.encode())
        code = 0
    finally:
        os._exit(code)


def _set_limits():
    """Limit this process's bytes of data, and the size of each file that it writes. A crash leaves no core file."""
    import resource  # which Windows does not have

    for name, size in {"RLIMIT_DATA": MEMORY, "RLIMIT_FSIZE": LARGEST_FILE, "RLIMIT_CORE": 0}.items():
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(getattr(resource, name), (size, size))


SPOKE = "sent a result of its own in place of the check's"


def _listen(process, results, word, seconds):
    """Wait for a job's result. Returns the result and None, or None and, in words, how the process ended instead."""
    stop = time.monotonic() + seconds
    while time.monotonic() < stop:
        ended, status = os.waitpid(process, os.WNOHANG)
        try:
            if results.poll(0 if ended else 0.05):
                found = results.recv_bytes(RESULT_LIMIT)
                return (json.loads(found[len(word) :]), None) if found.startswith(word) else (None, SPOKE)
        except EOFError:  # the process has closed its end, and will probably end now
            time.sleep(0.01)
        except (OSError, ValueError, RecursionError):  # too long, or no message, or no JSON
            return None, SPOKE
        if ended:
            return None, how_it_ended(os.waitstatus_to_exitcode(status))
    return None, late(seconds)


def _end_group(process):
    """End a job's process, the leader of its group (`_work`), and all processes that it has started."""
    import psutil

    with contextlib.suppress(ProcessLookupError, PermissionError, ChildProcessError):
        os.killpg(process, signal.SIGKILL)
        os.waitpid(process, 0)
    stop = time.monotonic() + PATIENCE / 2
    while (started := psutil.Process().children(recursive=True)) and time.monotonic() < stop:
        end_all(started)  # again and again: new ones may have been forked meanwhile
        psutil.wait_procs(started, 0.1)


def end_all(processes):
    """Kill processes; some may have ended already."""
    import psutil  # a browser has neither this nor processes

    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()


def late(seconds):
    """In words, how a job ended after using up its time."""
    return f"did not end within {seconds:g} seconds"
