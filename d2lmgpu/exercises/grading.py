"""Marks for a folder of students: every answer in a process and in a copy of the student's folder of its own."""

import contextlib
import math
import os
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from ..arguments import check_seed
from ..devices import count_cores
from ..fashion_mnist import FILES
from .answers import JUDGE, judged
from .apart import MEMORY
from .checking import Verdict, not_yet
from .forked import Warm
from .submissions import MINE, find_answers
from .time_limit import check_seconds
from .topics import EXERCISES, find

SECONDS = 20.0
"""The time that an answer may take, unless another limit is given."""
STUDENT_SECONDS = 300.0
"""The time that all answers of a student may take."""


class Mark(NamedTuple):
    """A row of marks. ``says`` is the whole verdict, with the hint; ``output`` what the answer printed."""

    student: str
    exercise: str
    passed: bool
    points: float
    says: str
    output: str = ""


def grade(
    folder, exercises=None, points=None, seconds=SECONDS, student_seconds=STUDENT_SECONDS, memory=MEMORY, seed=None
):
    """Judge ``folder``/STUDENT/mine.py, or the notebooks there. Yields a list of `Mark`s for each student, by name.

    Each list has all ``exercises`` (names; default: all), also those without an answer. ``points``: what they are
    worth, {name: points}; 1 unless given. An answer may take so many ``seconds`` and bytes of ``memory``, those of a
    student together ``student_seconds``. ``seed``: with other numbers and some more cases than in the notebooks.

    Raises ValueError for a folder without students or answers, for exercises that there are not, and for limits and
    points that are none; OSError if the folder cannot be read.
    """
    names = list(EXERCISES) if exercises is None else list(dict.fromkeys(exercises))
    worth = dict.fromkeys(names, 1) | _checked_points(points or {})
    for name in [*names, *worth]:
        find(name)
    for limit in (seconds, student_seconds):
        check_seconds(limit)
    if seed is not None:
        check_seed(seed)
    students = find_students(folder)
    grader = _Grader(names, worth, seconds, student_seconds, memory, seed)
    return _in_order(grader, students)


def find_students(folder):
    """The folders of students in a folder. Raises ValueError if there are none, or none of them has answers."""
    students = sorted(path for path in Path(folder).iterdir() if path.is_dir() and not path.name.startswith("."))
    if not students:
        raise ValueError(f"{folder} has no folders; each student's answers should be in one, as in {folder}/ada/{MINE}")
    if not any((path / MINE).exists() or any(path.glob("*.ipynb")) for path in students):
        raise ValueError(f"nothing to grade: none of the {len(students)} folders in {folder} has {MINE} or notebooks")
    return students


def _checked_points(points):
    for name, number in points.items():
        if not 0 <= number < math.inf:
            raise ValueError(f"{number} points for {name}; they should be a number, at least 0")
    return points


def _in_order(grader, students):
    with ThreadPoolExecutor(max(1, count_cores())) as threads, grader:
        try:
            yield from threads.map(grader.grade, students)
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise


class _Grader:
    """Grades students, several at a time, in warmed-up processes that it keeps until the end."""

    def __init__(self, names, worth, seconds, student_seconds, memory, seed):
        self.names, self.worth, self.memory, self.seed = names, worth, memory, seed
        self.seconds, self.student_seconds = seconds, student_seconds
        self.free, self.all, self.over = [], [], False

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.over = True
        for warm in self.all:
            warm.end()

    def grade(self, student):
        """The marks of one student."""
        try:
            warm = self.free.pop()
        except IndexError:
            warm = Warm()
            self.all.append(warm)
        try:
            answers, stop = find_answers(student, self.names), time.monotonic() + self.student_seconds
            return [self._mark(warm, student, name, answers.get(name), stop) for name in self.names]
        finally:
            self.free.append(warm)

    def _mark(self, warm, student, name, answer, stop):
        if self.over:
            raise KeyboardInterrupt
        verdict, output = Verdict(False, f"✗ {name}: there is no answer"), ""
        left = stop - time.monotonic()
        if answer is not None and left <= 0:
            verdict = not_yet(name, f"the {self.student_seconds:g} seconds for all answers were over before it", SLOW)
        elif answer is not None:
            try:
                verdict, output = self._judge(warm, student, name, answer, min(self.seconds, left))
            except (OSError, shutil.Error) as error:
                verdict = not_yet(name, f"the folder cannot be copied: {error}", "which of its files cannot be read?")
        worth = self.worth[name] if verdict.right else 0
        return Mark(student.name, name, verdict.right, worth, verdict.says, output)

    def _judge(self, warm, student, name, answer, seconds):
        with _a_copy(student) as copy:
            if answer.source is not None:
                (copy / answer.file).write_text(answer.source, encoding="utf-8")
            where = {"seconds": seconds, "memory": self.memory, "folder": str(copy)}
            outcome = warm.run(JUDGE, name, str(copy / answer.file), self.seed, **where)
            try:
                verdict, output = judged(name, outcome)
            except ValueError as error:  # a file that cannot be run
                verdict, output = not_yet(name, str(error), "run the file yourself"), outcome.output
            return verdict._replace(says=verdict.says.replace(str(copy) + os.sep, "")), output


SLOW = "which of the answers before it took so long?"


@contextlib.contextmanager
def _a_copy(student):
    """A fresh copy of a student's folder, in a folder of its own, that is gone in the end."""
    outer = Path(tempfile.mkdtemp(prefix="d2lmgpu-"))
    try:
        yield Path(shutil.copytree(student, outer / "answers", symlinks=True, ignore=_ignored))
    finally:
        shutil.rmtree(outer, ignore_errors=True)


def _ignored(folder, names):
    """What a copy leaves out: hidden files, notebooks, Fashion-MNIST, and what is no file, such as a pipe."""
    return [name for name in names if name.startswith(".") or name in FILES or not _is_copied(Path(folder, name))]


def _is_copied(path):
    return path.is_symlink() or path.is_dir() or (path.is_file() and path.suffix != ".ipynb")
