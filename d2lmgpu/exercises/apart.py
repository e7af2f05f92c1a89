"""Somebody's code in a process of its own, with limits of time and memory, and what it prints captured.

`run_apart` starts Python anew, calls a function there, and tells what came of it, whatever the code that runs there
does: never end, end the program, crash, print for ever, take all memory. It keeps mistakes away from the program, and
is no sandbox: the code may still read and delete what the user may.
"""

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

from .time_limit import SECONDS, check_seconds

MEMORY = 2 * 2**30
"""Bytes that somebody's code may have, unless another limit is given."""
OUTPUT_LIMIT = 4_000
"""Bytes that are kept of what is printed: a screen or two."""

STARTING = 120.0  # seconds that Python may take to start, even on a machine that does much else
RESULT_LIMIT = 2**20
START = (
    "import sys; sys.path = [sys.argv[1], *filter(None, sys.path)]; from d2lmgpu.exercises import apart; apart.work()"
)
ENVIRONMENT = {  # few threads, so that there is room for data; no windows; any letter can be printed
    **dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1"),
    "MPLBACKEND": "Agg",
    "PYTHONIOENCODING": "utf-8:backslashreplace",
}


class Outcome(NamedTuple):
    """What came of code in a process of its own: ``result``, or else what it did instead, in words."""

    result: Any
    ended: str | None
    output: str


def run_apart(function, *arguments, seconds=SECONDS, memory=MEMORY, folder=None):
    """Call ``function``, written "module:name", in a process of its own. Returns an `Outcome`.

    Arguments and result are what JSON can say. ``seconds`` are counted from when
    Python has started; ``memory`` are bytes of data, to which only Linux holds a
    process. Its current folder is ``folder``, if one is given. Processes that this one started end with it (not on
    Windows).
    Several threads may call this at the same time.

    Raises ValueError for seconds that are no limit.
    """
    check_seconds(seconds)
    job = json.dumps({"function": function, "arguments": arguments, "memory": memory})
    command = [sys.executable, "-B", "-u", "-c", START, str(Path(__file__).parents[2]), job]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "bufsize": 0}
    process = subprocess.Popen(command, env=os.environ | ENVIRONMENT, cwd=folder, **pipes, **own_group())
    answer, printed = _Reader(process.stdout, RESULT_LIMIT), _Reader(process.stderr, OUTPUT_LIMIT)
    late = False
    try:
        answer.begun.wait(STARTING)
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        late = True
    finally:  # after Ctrl-C, too
        _kill(process)
    found, output = answer.end().strip(), printed.end()
    if found and not late:
        with contextlib.suppress(ValueError):  # half a result is none
            return Outcome(json.loads(found.partition("\n")[0]), None, output)
    return Outcome(
        None, f"did not end within {seconds:g} seconds" if late else how_it_ended(process.returncode), output
    )


def work():
    """The process's side: do the job of its command line, and end."""
    root, text = sys.argv[1:]
    process, report = os.getpid(), os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # from now on all that is printed goes one way, and only the result the other
    sys.path.remove(root)
    job = json.loads(text)
    module, _, name = job["function"].partition(":")
    function = getattr(importlib.import_module(module), name)
    report.write(b"\n")  # the time begins
    limit_memory(job["memory"])
    result = json.dumps(function(*job["arguments"]))
    limit_memory(None)
    if os.getpid() == process:  # and not a copy of it, made by fork
        report.write(result.encode())
    os._exit(0)  # whatever threads there are


class _Reader:
    """Reads a pipe to its end, so that nobody waits for room in it, and keeps its first ``limit`` bytes."""

    def __init__(self, pipe, limit):
        self.pipe, self.limit, self.kept, self.lost = pipe, limit, b"", 0
        self.begun = threading.Event()
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        while block := self.pipe.read(1 << 16):
            self.begun.set()
            room = self.limit - len(self.kept)
            self.kept += block[:room]
            self.lost += len(block[room:])
        self.begun.set()
        self.pipe.close()

    def end(self):
        """The text, once all is read; the pipe of a process that got away is left to its thread."""
        self.thread.join(1)
        text = self.kept.decode(errors="replace")
        return text + f"\n… ({self.lost:,} bytes more)" if self.lost else text


def own_group():
    """Ctrl-C is for the program that waits, not for the process, which is ended with all that it started."""
    if os.name == "nt":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True}


def _kill(process):
    with contextlib.suppress(ProcessLookupError, PermissionError):  # there is nobody any more
        process.kill() if os.name == "nt" else os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def limit_memory(size):
    """Hold this process to so many bytes of data; None: to as many as before."""
    try:
        import resource
    except ImportError:  # Windows
        return
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (most if size is None else size, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash leaves no file


def how_it_ended(code):
    """How a process ended that gave no result."""
    if code >= 0:
        return f"ended the program (exit code {code})"
    with contextlib.suppress(ValueError):
        return f"crashed ({signal.Signals(-code).name})"
    return f"crashed (signal {-code})"
