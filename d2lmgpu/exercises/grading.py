"""Grade a folder of students. Each student's answers run in the student's folder, in processes of their own."""

import subprocess
from types import NoneType
from typing import NamedTuple

from ..arguments import check_list, check_number, check_path, shown
from ..folders import visible
from ..output import target
from .answers import SECONDS, judge_answers
from .checking import not_yet
from .mine import FILE
from .topics import EXERCISES, find


class Mark(NamedTuple):
    """A row of the marks. ``says`` is the whole verdict, with the hint."""

    student: str
    exercise: str
    passed: bool
    points: float
    says: str


def grade(folder, exercises=None, points=None, seconds=SECONDS):
    """Judge ``folder``/STUDENT/mine.py, where `check` saves right answers. Yields a list of `Mark`s for each student.

    Each list has a mark for each of the ``exercises`` (names; by default, all), even if there is no answer. ``points``:
    a dict from names to the points that exercises are worth; the others are worth 1. ``seconds`` is the limit for an
    answer.

    Raises ValueError for a folder without students, for unknown exercises, and for invalid limits or points; OSError if
    the folder cannot be read.
    """
    check_path("folder", folder)
    exercises = EXERCISES if exercises is None else check_list("exercises", exercises, of="names", one=str)
    if not isinstance(points, (dict, NoneType)):
        raise ValueError(f"points are {shown(points)}; give a dict such as {{'ring': 2}}")
    points = points or {}
    for name in (*exercises, *points):
        find(name)
    worth = {name: check_number(f"points: {name}", points.get(name, 1), least=0) for name in exercises}
    check_number("seconds", seconds, above=0, most=86_400)
    students = [path for path in visible(target(folder)) if path.is_dir()]
    if not students:
        raise ValueError(f"{folder} has no folders; each student's answers should be in one, as in {folder}/ada/{FILE}")
    return (_marks(student, worth, seconds) for student in students)


def _marks(student, worth, seconds):
    """The marks of one student. ``worth``: the points of each exercise."""
    if (student / FILE).exists():
        verdicts = judge_answers(student / FILE, worth, seconds, errors=subprocess.DEVNULL)
    else:
        verdicts = {name: not_yet(name, f"there is no {FILE}", "check saves right answers there") for name in worth}
    return [Mark(student.name, name, right, worth[name] * right, says) for name, (right, says) in verdicts.items()]
