"""Which notebook of a student's copy of the course this is, where predictions and answers are kept."""

from pathlib import Path
from typing import NamedTuple

from ..arguments import check_text


class Begun(NamedTuple):
    """A notebook that has begun: its name, its folder, and what `compare` has shown or folded in it."""

    name: str
    folder: Path
    seen: set


_begun = []


def begin(name):
    """Keep, from now on, predictions in the current folder under this name, and answers that pass in its mine.py.

    The first cell of the notebooks that ``d2lmgpu course`` copies; those of the repository have none.
    Raises ValueError for a name that is no text.
    """
    check_text("name", name)
    _begun[:] = [Begun(name, Path.cwd(), set())]


def begun():
    """The `Begun` notebook; None elsewhere."""
    return _begun[0] if _begun else None
