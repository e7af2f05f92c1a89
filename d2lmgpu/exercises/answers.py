"""Answers in files: those of one student, or of a whole folder of students.

A file runs in a process of its own, in its own folder, with a limit on time, so that it cannot block this one. There,
`run_file` writes a line of JSON to standard output when the file has run, [], and one for each function, [name,
verdict]. What the file prints goes to standard error.

This protects from mistakes, such as an answer that runs for ever, exits Python or crashes it. It is not a sandbox: the
code can do whatever the user can.
"""

import faulthandler
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from ..base.arguments import check_list, check_number, check_path
from ..base.files import target, visible
from .checking import EXERCISES, Verdict, find, judge, not_yet
from .course import FILE
from .exercise import in_words

SECONDS = 20.0
"""How many seconds an answer may take, unless another limit is given; the course's own answers need less than one."""
ROOT = Path(__file__).parents[2]
"""The folder from which the new process imports this package."""

HINT = "does it wait for something that never happens, or exit Python? It should always return a result"


def judge_file(name, path, seconds=SECONDS):
    """Run a Python file, and judge its function ``name``. Returns a `Verdict`.

    ``seconds`` is the limit for the answer. What the file prints appears on standard error. The file runs in its own
    folder, and can import modules from there.

    Raises ValueError for an unknown exercise, an invalid limit, and what is not a Python file.
    """
    find(name)
    if not Path(path).is_file() or Path(path).suffix == ".ipynb":
        raise ValueError(f"{path} is not a Python file")
    return judge_answers(path, [name], seconds)[name]


def judge_answers(path, names, seconds=SECONDS, errors=None):
    """Run a Python file, and judge its functions ``names``. Returns a dict from names to `Verdict`s.

    The file and then each answer may take so many ``seconds``. After an answer that takes longer, or ends the process,
    the file runs again in another process for the answers after it. ``errors``: where to write what the file prints, as
    for ``subprocess.run(stderr=errors)``.

    Raises ValueError for an invalid limit.
    """
    seconds = check_number("seconds", seconds, above=0, most=86_400)
    verdicts, left = {}, list(names)
    while left:
        found, ended = _run(str(target(path)), seconds, left, errors)
        if not found:  # the file itself did not run to its end
            return verdicts | {name: not_yet(name, f"{Path(path).name} {ended}", HINT) for name in left}
        verdicts |= {name: Verdict(*verdict) for name, verdict in found[1:]}
        left = left[len(found) - 1 :]
        if left:  # the first did not end
            name = left.pop(0)
            verdicts[name] = not_yet(name, f"your answer {ended}", HINT)
    return verdicts


def _run(path, seconds, names, errors):
    """Call `run_file` in a new process. Returns a list of what it wrote, and in words how it ended."""
    program = f"import json, sys; from {__name__} import run_file; run_file(*json.loads(sys.argv[1]))"
    command = [sys.executable, "-B", "-c", program, json.dumps([path, seconds, names])]
    with tempfile.TemporaryFile() as results:  # not a pipe, which a process that the answer starts could keep open
        done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=results, stderr=errors)
        results.seek(0)
        lines = results.read().splitlines()
    late = any(line.startswith(b"Timeout") for line in lines)
    ended = f"did not end within {seconds:g} seconds" if late else _how_it_ended(done.returncode)
    return [json.loads(line) for line in lines if line.startswith(b"[")], ended


def _how_it_ended(code):
    """How a process ended, in words, by its exit code; a negative one is a signal's number."""
    return f"was killed by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"ended with exit code {code}"


def run_file(path, seconds, names):
    """Run the file at ``path`` in its folder, judge its functions ``names``, and end this process.

    If the file or an answer takes longer than ``seconds``, faulthandler writes the line "Timeout ..." and ends the
    process, even if code in C is running.
    """
    results = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    os.environ.setdefault("MPLBACKEND", "Agg")  # or a plot might open a window, and wait until it is closed
    folder, file = os.path.split(path)
    os.chdir(folder)
    sys.argv[:] = [path]
    sys.path.insert(0, folder)
    faulthandler.dump_traceback_later(seconds, exit=True, file=results)
    try:
        found, wrong = runpy.run_path(path), None
    except BaseException as error:  # sys.exit, too
        found, wrong = {}, f"{file} cannot be run: {in_words(error)}"
    print("[]", file=results)
    for name in names:
        faulthandler.dump_traceback_later(seconds, exit=True, file=results)
        if name in found:
            verdict = judge(name, found[name])
        else:
            verdict = not_yet(name, wrong or f"{file} has no function {name}", f"write def {name}(...), and run {file}")
        print(json.dumps([name, verdict]), file=results)
    os._exit(0)  # whatever threads the answers have started


class Mark(NamedTuple):
    """A row of the marks: a right answer is worth a point. ``says`` is the whole verdict, with the hint."""

    student: str
    exercise: str
    passed: bool
    points: int
    says: str


def grade(folder, exercises=None, seconds=SECONDS):
    """Judge ``folder``/STUDENT/mine.py, where `check` saves right answers. Yields a list of `Mark`s for each student.

    Each list has a mark for each of the ``exercises`` (names; by default, all), even if there is no answer. ``seconds``
    is the limit for an answer.

    Raises ValueError for a folder without students, for unknown exercises, and for an invalid limit; OSError if the
    folder cannot be read.
    """
    check_path("folder", folder)
    exercises = EXERCISES if exercises is None else check_list("exercises", exercises, of="names", one=str)
    for name in exercises:
        find(name)
    check_number("seconds", seconds, above=0, most=86_400)
    students = [path for path in visible(target(folder)) if path.is_dir()]
    if not students:
        raise ValueError(f"{folder} has no folders; each student's answers should be in one, as in {folder}/ada/{FILE}")
    return (_marks(student, exercises, seconds) for student in students)


def _marks(student, exercises, seconds):
    """The marks of one student."""
    if (student / FILE).exists():
        verdicts = judge_answers(student / FILE, exercises, seconds, errors=subprocess.DEVNULL)
    else:
        verdicts = {name: not_yet(name, f"there is no {FILE}", "check saves right answers there") for name in exercises}
    return [Mark(student.name, name, right, int(right), says) for name, (right, says) in verdicts.items()]
