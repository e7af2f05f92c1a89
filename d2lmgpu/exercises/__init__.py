"""The course's exercises: `check` tries an answer. The other functions are helpers for the notebooks.

from d2lmgpu.exercises import check

def allreduce(data): ...

check("allreduce", allreduce)
"""

import os
from pathlib import Path

from ..base.arguments import check_text, plain
from ..base.files import write_json
from .answers import judge_file as judge_file
from .checking import EXERCISES as EXERCISES, find as find, judge
from .course import FILE as FILE, begin as begin, begun, compare as compare
from .student_file import add_to_mine as add_to_mine, my_framework as my_framework, try_to_keep


def check(name, answer=None):
    """Try an answer, the function that exercise ``name`` asks for, and print what is right or wrong about it.

    Returns whether it is right. Without an answer, print the question. In a student's copy of the course, a right
    answer is put into mine.py, with everything that it uses.

    The answer runs in this process, without a limit on time: Ctrl-C or the notebook's stop button interrupts it.
    ``d2lmgpu check NAME FILE`` runs answers in processes of their own, with a limit.

    Raises ValueError for an unknown exercise.
    """
    verdict = judge(name, answer)
    print(verdict.says)
    if verdict.right and (mine := begun()):
        kept = try_to_keep(name, answer, mine.folder / FILE)
        print(f"  {kept[0].upper()}{kept[1:]}.")
    return verdict.right


def setting(full, quick):
    """Return ``full``, or ``quick`` if the environment variable D2LMGPU_QUICK is set, for a first look or a test."""
    return quick if os.environ.get("D2LMGPU_QUICK") else full


def save_data(name, data):
    """Write a figure's data to ``data/NAME.json`` beside the notebook, but not in the quick setting.

    Raises ValueError if ``name`` is not a string, or if JSON cannot hold the data.
    """
    check_text("name", name)
    if not os.environ.get("D2LMGPU_QUICK"):
        folder = Path("data")
        folder.mkdir(exist_ok=True)
        write_json(folder / f"{name}.json", plain(data))
