"""Grade a folder of students. Each student's answers run in the student's folder, in processes of their own."""

import os
import subprocess
import tempfile
from types import NoneType
from typing import NamedTuple

from ..arguments import check_list, check_number, check_path, check_seed, shown
from ..folders import visible
from ..output import target
from .answers import SECONDS, judge_answers
from .checking import Verdict, not_yet
from .mine import FILE
from .submissions import find_answers
from .topics import EXERCISES, find

FEW = 3
"""At most so many unusable files are named where there is no answer."""


class Mark(NamedTuple):
    """A row of the marks. ``says`` is the whole verdict, with the hint.

    ``notes``: sentences on the student's files, the same in each of the student's marks, which only refer to them.
    """

    student: str
    exercise: str
    passed: bool
    points: float
    says: str
    notes: tuple = ()


def grade(folder, exercises=None, points=None, seconds=SECONDS, seed=None):
    """Judge ``folder``/STUDENT/mine.py, or the notebooks there. Yields a list of `Mark`s for each student.

    Each list has a mark for each of the ``exercises`` (names; by default, all), even if there is no answer. ``points``:
    a dict from names to the points that exercises are worth; the others are worth 1. ``seconds`` is the limit for an
    answer. With a ``seed``, answers are tried with random numbers other than the notebooks', and on additional cases.

    Raises ValueError for a folder without students or answers, for unknown exercises, and for invalid limits or
    points; OSError if the folder cannot be read.
    """
    check_path("folder", folder)
    exercises = EXERCISES if exercises is None else check_list("exercises", exercises, of="names", one=str)
    if not isinstance(points, (dict, NoneType)):
        raise ValueError(f"points are {shown(points)}; give a dict such as {{'ring': 2}}")
    worth = dict.fromkeys(exercises, 1)
    for name, number in (worth | (points or {})).items():
        find(name)
        worth[name] = check_number(f"points: {name}", number, least=0)
    seconds = check_number("seconds", seconds, above=0, most=86_400)
    seed = None if seed is None else check_seed(seed)
    names = list(dict.fromkeys(exercises))
    return (_marks(student, names, worth, seconds, seed) for student in find_students(folder))


def find_students(folder):
    """The students' folders in a folder. Raises ValueError if there are none, or if none of them has answers."""
    students = [path for path in visible(target(folder)) if os.path.isdir(path)]
    if not students:
        raise ValueError(f"{folder} has no folders; each student's answers should be in one, as in {folder}/ada/{FILE}")
    if not any((student / FILE).exists() or any(student.glob("[!.]*.ipynb")) for student in students):
        raise ValueError(f"nothing to grade: none of the {len(students)} folders in {folder} has {FILE} or notebooks")
    return students


def _marks(student, names, worth, seconds, seed):
    """The marks of one student."""
    with tempfile.TemporaryDirectory() as made:
        files, unusable = find_answers(student, names, made)
        missing, notes = [name for name in names if name not in files], [*unusable]
        verdicts = {
            name: Verdict(False, f"✗ {name}: there is no answer" + (why and f"; {why}"))
            for name, why in _once(missing, "; ".join(unusable[:FEW])).items()
        }
        for file in dict.fromkeys(files.values()):
            own = [name for name in names if files.get(name) == file]
            try:
                verdicts |= judge_answers(file, own, student, seconds, seed, errors=subprocess.DEVNULL)
            except ValueError as error:  # the file cannot be run
                notes.append(str(error))
                whys = _once(own, str(error))
                verdicts |= {name: not_yet(name, why, "run the file yourself") for name, why in whys.items()}
    marks = ((name, *verdicts[name]) for name in names)
    return [
        Mark(student.name, name, right, worth[name] if right else 0, says, tuple(notes)) for name, right, says in marks
    ]


def _once(names, why):
    """A reason, if there is one, for the first of several exercises; for the others, the name of the first."""
    return {name: why if name == names[0] else why and f"see {names[0]}" for name in names}
