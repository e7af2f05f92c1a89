"""The student's own framework: the answers in mine.py are put to work, and a page shows them.

    own = my_framework()
    own.use["ring"]      # a function: the student's, if it is right
    own.whose["ring"]    # "yours"

In a student's copy of the course, the library's functions stand in for missing answers, and are labelled as such. In
the repository, which has no mine.py, the course's solutions stand in for the student's answers.
"""

import base64
import html
import io
import re
import runpy
from pathlib import Path
from typing import NamedTuple

from ..base.files import write_file
from ..collectives import allreduce, ring
from ..devices import put
from ..parallel import split_batch, train_batch
from ..plans import play
from .checking import EXERCISES, TOPICS, judge
from .course import begun, find_notebooks
from .results import in_words
from .student_file import FILE, try_to_keep

CORE = {name: number for number in (1, 2, 4, 5, 6) for name, each in TOPICS[number - 1].items() if not each.optional}
"""For each exercise of the core path, the number of its notebook."""

PAGE = "my_framework.html"


def sum_on(arrays, device):
    """A stand-in: the sum of arrays from any devices, on ``device``."""
    return sum((put(array, device) for array in arrays[1:]), put(arrays[0], device))


STAND_INS = {
    "sum_on": sum_on,
    "log_softmax": EXERCISES["log_softmax"].right,
    "split_batch": split_batch,
    "allreduce": allreduce,
    "train_batch": train_batch,
    "examples_per_second": EXERCISES["examples_per_second"].right,
    "ring": ring,
}
"""The library's stand-ins for the answers that training uses, in the order of the notebooks."""


class Framework(NamedTuple):
    """The functions to train with, and where they come from.

    ``use``: for each name in `STAND_INS`, a function, which is the student's if that is right. ``answers``: all answers
    to the core path's exercises. ``whose``: for each of these exercises, where its answer comes from, in words
    ("yours"), or why the library's function is used. ``text``: the answers' source.
    """

    use: dict
    answers: dict
    whose: dict
    text: str

    @property
    def lines(self):
        """The number of lines in the text that are not empty."""
        return sum(bool(line.strip()) for line in self.text.splitlines())


def my_framework():
    """The `Framework` made from mine.py in a student's copy of the course, or elsewhere from the course's solutions.

    Raises ValueError if mine.py cannot be read or run.
    """
    mine, use = begun(), {}
    # an installed package has no solutions
    files = [mine.folder / FILE] if mine else (find_notebooks()[0].parent / "solutions").glob("*.py")
    answers, text = _answers_in(sorted(file for file in files if file.exists()))
    own = "yours" if mine else "the course's solution"
    whose = {name: own if name in answers else "missing" for name in CORE}
    for name, stand_in in STAND_INS.items():
        use[name] = answers.get(name, stand_in)
        if name not in answers:
            whose[name] = "missing; the library's is used"
        elif not (verdict := judge(name, answers[name])).right:
            use[name], whose[name] = stand_in, "not right; the library's is used"
            print(verdict.says)
    return Framework(use, answers, whose, text)


def _answers_in(paths):
    """The answers to the core path's exercises in Python files, and the text of the files that have some."""
    found, texts = {}, []
    for path in paths:
        try:
            names, text = runpy.run_path(str(path)), path.read_text(encoding="utf-8-sig")
        except Exception as error:  # whatever the student's file does
            raise ValueError(f"{path.name} cannot be run: {in_words(error)}; mend it") from error
        answers = {name: names[name] for name in CORE if callable(names.get(name))}
        found |= answers
        texts += [text] * bool(answers)
    return found, "\n".join(texts)


def add_to_mine(*functions):
    """In a student's copy of the course, put functions that are not exercises into mine.py, with all they use.

    Returns whether this is a student's copy. Raises ValueError if one of them has the name of an exercise: putting an
    answer into mine.py is left to `check`, which keeps only right ones.
    """
    mine = begun()
    for function in functions:
        if (name := function.__name__) in EXERCISES:
            raise ValueError(f"add_to_mine: {name} is an exercise; check({name!r}, {name}) keeps a right answer")
        if mine:
            print(f"{name}: {try_to_keep(name, function, mine.folder / FILE)}.")
    return mine is not None


def write_my_page(own, facts, figure, alt):
    """Write an HTML file that shows a `Framework` to others: its answers, its training, and its ring in the player.

    ``facts``: the rows of the first table, a dict of strings. ``figure``: a Matplotlib figure of the training; ``alt``
    says in words what it shows. The file is my_framework.html beside the student's notebooks; outside a student's
    copy, no file is written.

    Returns the file's path, or None. Raises ValueError if the ring is not a schedule, OSError if the file cannot be
    written.
    """
    if not begun():
        return None
    path, k, n = begun().folder / PAGE, 3, 129_068
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=100)
    image = base64.b64encode(picture.getvalue()).decode()
    parts = {
        "FACTS": _rows(facts),
        "PICTURE": f'<img alt="{html.escape(alt)}" src="data:image/png;base64,{image}">',
        "PLAYER": play(own.use["ring"](k, n), k=k, n=n, title="my ring")._repr_html_(),
        "ANSWERS": _rows({f"{name} (notebook {CORE[name]})": whose for name, whose in own.whose.items()}),
        "TEXT": html.escape(own.text),
    }
    template = Path(__file__).with_name(PAGE).read_text(encoding="utf-8")
    text = re.sub(r"{{(\w+)}}", lambda part: parts[part[1]], template)
    write_file(path, lambda opened: opened.write(text.encode()))
    return path


def _rows(pairs):
    row = "<tr><th scope=row>{}</th><td>{}</td></tr>"
    return "\n".join(row.format(*(html.escape(str(text)) for text in pair)) for pair in pairs.items())
