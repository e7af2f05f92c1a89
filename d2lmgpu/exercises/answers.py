"""Answers in files. A file runs in a process of its own, with a limit on time, so that it cannot block this one.

This protects from mistakes, such as an answer that runs for ever, exits Python or crashes it. It is not a sandbox: the
code can do whatever the user can.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from ..arguments import check_number
from ..cluster.supervisor import how_it_ended
from ..output import target
from .checking import Verdict, not_yet
from .topics import find

SECONDS = 20.0
"""How many seconds an answer may take, unless another limit is given; the course's own answers need less than one."""
STARTING = 60.0
"""How many seconds Python may take to start."""
ROOT = Path(__file__).parents[2]
"""The folder from which the new process imports this package."""

HINT = "does it wait for something that never happens, or exit Python? It should always return a result"


def judge_file(name, path, seconds=SECONDS):
    """Run a Python file, and judge its function ``name``. Returns a `Verdict`.

    ``seconds`` is the limit for the answer. What the file prints appears on standard error. The file runs in its own
    folder, and can import modules from there.

    Raises ValueError for an unknown exercise, an invalid limit, and a file that cannot be run; OSError for a file that
    cannot be read.
    """
    find(name)
    if what := "a folder" if Path(path).is_dir() else "a notebook" if Path(path).suffix == ".ipynb" else None:
        raise ValueError(f"{path} is {what}; give the path of a Python file")
    open(path, "rb").close()  # OSError now if it cannot be read
    return judge_answers(path, [name], target(path).parent, seconds)[name]


def judge_answers(path, names, folder, seconds=SECONDS, seed=None, errors=None):
    """Run a Python file in a folder, and judge its functions ``names``. Returns a dict from names to `Verdict`s.

    The file and then each answer may take so many ``seconds``. After an answer that takes longer, or ends the process,
    the file runs again in another process for the answers after it. ``seed``: as for `judge`. ``errors``: where to
    write what the file prints, as for ``subprocess.run(stderr=errors)``.

    Raises ValueError for an invalid limit, and if the file cannot be run.
    """
    job = str(target(path)), str(folder), check_number("seconds", seconds, above=0, most=86_400), seed
    verdicts, left = {}, list(names)
    while left:
        found, ended = _run(*job, left, errors)
        if why := found.pop(None, f"it {ended}"):  # the file itself did not run to its end
            raise ValueError(f"{Path(path).name} cannot be run: {why}")
        verdicts |= {name: Verdict(*verdict) for name, verdict in found.items()}
        left = [name for name in left if name not in found]
        if left:  # the first did not end
            name = left.pop(0)
            verdicts[name] = not_yet(name, f"your answer {ended}", HINT)
    return verdicts


def _run(path, folder, seconds, seed, names, errors):
    """Run `__main__.py`. Returns what it wrote, as a dict, and in words how it ended."""
    command = [sys.executable, "-B", "-m", __package__, json.dumps([path, folder, seconds, seed, names])]
    longest = STARTING + seconds * (1 + len(names))
    with tempfile.TemporaryFile() as results:  # not a pipe, which a process that the answer starts could keep open
        streams = {"stdin": subprocess.DEVNULL, "stdout": results, "stderr": errors}
        try:
            ended = how_it_ended(subprocess.run(command, cwd=ROOT, timeout=longest, **streams).returncode)
        except subprocess.TimeoutExpired:
            ended = f"did not end within {longest:g} seconds"
        results.seek(0)
        lines = results.read().splitlines()
    if any(line.startswith(b"Timeout") for line in lines):
        ended = f"did not end within {seconds:g} seconds"
    return dict(json.loads(line) for line in lines if line.startswith(b"[")), ended
