"""Programs of a notebook that need additional packages. Without these, a record of an earlier run is shown.

A record is what the same program printed elsewhere. Its first line says when and on what it ran, and ends with "):".
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from ..base.packages import ABSENT, optional
from ..base.text import listed


def run_or_recall(program, *arguments, record, needs, processes=None, run=True, fails=False, seconds=180):
    """Print and return what a Python ``program`` (its text) prints, or the ``record`` of an earlier run.

    With a record, also print why it is shown. ``needs``: names of modules. ``processes``: run this many with mpiexec,
    which is then needed, too. ``run``: whether to run the program at all. ``fails``: whether the program is meant to
    end with an error.
    """
    mpiexec = [] if processes is None else [_find("mpiexec"), "-n", str(processes)]
    found = {name: optional(name)[1] for name in needs}
    missing = [name if why == ABSENT else f"{name} ({why})" for name, why in found.items() if why]
    missing += ["mpiexec"] if None in mpiexec else []
    if missing or not run:
        why = f"not installed here: {listed(missing)}" if missing else "skipped in the quick setting"
        return _recall(why, record)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "program.py"
        file.write_text(program, encoding="utf-8")
        code, said = _run([*mpiexec, sys.executable, str(file), *map(str, arguments)], seconds)
    print(said)
    if code != 0 and not fails:
        return _recall(f"this run failed, with exit code {code}", record)
    return said


def _find(name):
    """The path of a program beside this Python or on PATH; None if there is none."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return shutil.which(name, path=path)


def _run(command, seconds):
    """The exit code and the output of a command. After ``seconds``, the program and its child processes are killed."""
    started = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "start_new_session": True}
    with subprocess.Popen(command, text=True, encoding="utf-8", errors="replace", **started) as process:
        try:
            said, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()
            said, _ = process.communicate()
            said += f"\n(stopped: it was still running after {seconds} seconds)"
    return process.returncode, said.rstrip()


def _recall(why, record):
    print(f"({why}; {record.strip()}")
    return record
