"""Grade a folder of students. Each answer runs in its own process, in its own copy of the student's folder."""

import os
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from types import NoneType
from typing import NamedTuple

from ..arguments import check_flag, check_list, check_number, check_path, check_seed, shown
from ..devices import count_cores
from ..folders import visible
from ..output import target
from .answers import judge_a_copy, judged, temporary_folder
from .apart import Supervisor
from .checking import Verdict, not_yet
from .mine import FILE
from .results import in_words
from .submissions import find_answers
from .time_limit import check_seconds
from .topics import EXERCISES, find

SECONDS = 20.0
"""How many seconds an answer may take, unless another limit is given."""
STUDENT_SECONDS = 300.0
"""How many seconds all answers of a student together may take, unless another limit is given."""
LOOK_EVERY = 0.5
"""How often, in seconds, the main thread stops waiting for a moment, to notice a Ctrl-C that it has missed."""


class Mark(NamedTuple):
    """A row of the marks. ``says`` is the whole verdict, with the hint; ``output`` is what the answer printed.

    ``notes``: sentences on the student's files, the same in each of the student's marks, which only refer to them.
    """

    student: str
    exercise: str
    passed: bool
    points: float
    says: str
    output: str = ""
    notes: tuple = ()


def grade(
    folder, exercises=None, points=None, seconds=SECONDS, student_seconds=STUDENT_SECONDS, seed=None, isolate=False
):
    """Judge ``folder``/STUDENT/mine.py, or the notebooks there. Yields a list of `Mark`s for each student.

    The students come in the order in which they are finished. Each list has a mark for each of the ``exercises``
    (names; by default, all), even if there is no answer. ``points``: a dict from names to the points that exercises are
    worth; the others are worth 1. ``seconds`` is the limit for an answer, ``student_seconds`` that for all answers of a
    student. With a ``seed``, answers are tried with random numbers other than the notebooks', and on additional cases.
    ``isolate``: start Python anew for each student. If a student's folder cannot be graded, its marks say why.

    Raises ValueError for a folder without students or answers, for unknown exercises, and for invalid limits or
    points; OSError if the folder cannot be read.
    """
    check_path("folder", folder)
    check_flag("isolate", isolate)
    exercises = EXERCISES if exercises is None else check_list("exercises", exercises, of="names", one=str)
    if not isinstance(points, (dict, NoneType)):
        raise ValueError(f"points are {shown(points)}; give a dict such as {{'ring': 2}}")
    names = list(dict.fromkeys(exercises))
    worth = dict.fromkeys(names, 1) | (points or {})
    for name, number in worth.items():
        find(name)
        worth[name] = check_number(f"points: {name}", number, least=0)
    seconds, student_seconds = map(check_seconds, (seconds, student_seconds))
    seed = None if seed is None else check_seed(seed)
    return _each(_Grader(names, worth, seconds, student_seconds, seed, isolate), find_students(folder))


def find_students(folder):
    """The students' folders in a folder. Raises ValueError if there are none, or if none of them has answers."""
    students = [path for path in visible(target(folder)) if os.path.isdir(path)]
    if not students:
        raise ValueError(f"{folder} has no folders; each student's answers should be in one, as in {folder}/ada/{FILE}")
    if not any(os.path.lexists(student / FILE) or any(student.glob("[!.]*.ipynb")) for student in students):
        raise ValueError(f"nothing to grade: none of the {len(students)} folders in {folder} has {FILE} or notebooks")
    return students


def _each(grader, students):
    supervisors = [Supervisor("matplotlib.pyplot") for _ in range(count_cores())]
    grader.free = list(supervisors)  # one for each thread
    with temporary_folder() as grader.folder, ThreadPoolExecutor(len(supervisors)) as threads:
        try:
            left = {threads.submit(grader.grade, student) for student in students}
            while left:
                done, left = wait(left, LOOK_EVERY, FIRST_COMPLETED)
                yield from (future.result() for future in done)
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            for supervisor in supervisors:
                supervisor.close_for_good()


class _Grader:
    """Grades students, several at a time, with supervisors that it keeps until the end."""

    def __init__(self, names, worth, seconds, student_seconds, seed, isolate):
        self.names, self.worth, self.seed, self.isolate = names, worth, seed, isolate
        self.seconds, self.student_seconds = seconds, student_seconds

    def grade(self, student):
        """The marks of one student."""
        supervisor = self.free.pop()
        try:
            with temporary_folder(self.folder) as made:
                return self._marks(supervisor, student, made)
        except Exception as error:  # whatever is wrong with one student's folder, the others are graded
            what = f"this could not be graded: {in_words(error)}"
            return [Mark(student.name, name, False, 0, not_yet(name, what, "look at it").says) for name in self.names]
        finally:
            if self.isolate:
                supervisor.close()
            self.free.append(supervisor)

    def _marks(self, supervisor, student, made):
        seconds = min(SECONDS, self.student_seconds)
        outcome = supervisor.run(find_answers, str(student), self.names, str(made), seconds=seconds)
        files, unusable = outcome.result or ({}, [f"reading the folder {outcome.ended}"])
        stop, marks, said, why = time.monotonic() + self.student_seconds, [], {}, "; ".join(unusable[:FEW])
        for name in self.names:
            left = stop - time.monotonic()
            if name not in files:
                verdict = Verdict(False, f"✗ {name}: there is no answer" + (why and f"; {_once(said, why, name)}"))
            elif left <= 0:
                late = f"the {self.student_seconds:g} seconds for all answers were used up before it"
                verdict = not_yet(name, late, "which of the earlier answers took so long?")
            else:
                verdict = self._judge(supervisor, student, name, files[name], min(self.seconds, left), said)
            points = self.worth[name] if verdict.right else 0
            marks.append(Mark(student.name, name, verdict.right, points, verdict.says, verdict.output))
        notes = *unusable, *(sentence for sentence, names in said.items() if len(names) > 1 and sentence != why)
        return [mark._replace(notes=notes) for mark in marks]

    def _judge(self, supervisor, student, name, file, seconds, said):
        with temporary_folder(self.folder) as outer:
            copy = outer / "answers"
            outcome = supervisor.run(judge_a_copy, name, str(student), str(copy), file, self.seed, seconds=seconds)
            try:
                verdict = judged(name, outcome)
            except ValueError as error:  # a file that cannot be run
                why = _once(said, _plain(error, copy), name)
                verdict = not_yet(name, why, "run the file yourself", outcome.output)
            return verdict._replace(says=_plain(verdict.says, copy))


def _plain(text, copy):
    """A text without the names of temporary folders, which lead to the files of a student."""
    return str(text).replace(f"{copy}{os.sep}", "").replace(f"{copy.parent}{os.sep}", "")


def _once(said, sentence, name):
    """A sentence on a student's file, the first time; then the exercise with which it was ``said``, a dict of lists."""
    said.setdefault(sentence, []).append(name)
    first = said[sentence][0]
    return sentence if first == name else f"see {first}"


FEW = 3  # at most so many unusable files are named
