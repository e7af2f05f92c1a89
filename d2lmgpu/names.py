"""Names in the textbook, in MATLAB's and TensorFlow's guides and elsewhere, and the names used here.

Errors that meet such a name tell the one here, and docs/names.md is made of the same rows. They are in names.txt, by
source, and each has names elsewhere, what does it here, and a few words; where nothing does, the words say why. What
does it is a name in ``d2l``, an attribute of a device array ``x`` or of a ``device``, an argument of `train`, an option
(both maybe with a value), or a command.
"""

import functools
import re
from pathlib import Path
from typing import NamedTuple


class Name(NamedTuple):
    """A row; names ``elsewhere``, and what does it ``here``, are separated by commas."""

    elsewhere: str
    here: str
    note: str = ""


@functools.cache  # and not at import: errors and pages want them
def names():
    """{source: [Name, …]}, of names.txt: a line ``[source]`` before each source's rows, whose parts | separates."""
    found, path = {}, Path(__file__).with_name("names.txt")
    for line in filter(None, path.read_text(encoding="utf-8").splitlines()):
        if line.startswith("["):
            rows = found[line.strip("[]")] = []
        else:
            rows.append(Name(*map(str.strip, line.split("|"))))
    return found


def spelled_alike(word):
    """The same for MiniBatchSize, mini_batch_size and --mini-batch-size; of what has dots, the last part."""
    return re.sub("[^a-z0-9]", "", word.rpartition(".")[2].lower())


@functools.cache
def _by_spelling():
    return {spelled_alike(word): row for rows in names().values() for row in rows for word in row.elsewhere.split(", ")}


def name_among(word, known):
    """What is called ``word`` elsewhere, as one of the ``known`` names, maybe with a value; None if none is meant."""
    row = _by_spelling().get(spelled_alike(word), Name(word, ""))
    for way in filter(None, row.here.split(", ")):
        words = re.findall(r"[\w-]+", way)
        if words[0] in known:  # optimizer="momentum" of arguments
            return way
        if words[-1] in known:  # momentum of optimisers
            return words[-1]
    return None


def called_here(word):
    """ "; here: d2l.split_batch (images and labels in one call)": the end of an error; "" for what is no such name."""
    row = _by_spelling().get(spelled_alike(word))
    if row is None:
        return ""
    if not row.here:
        return f"; {row.note}"
    return f"; here: {row.here}" + (f" ({row.note})" if row.note else "")


def no_attribute(said, name):
    """The AttributeError that says so, and what the ``name`` is called here.

    Python adds a name that is only similar, unless it is told that there is none to find.
    """
    here = called_here(name)
    return AttributeError(said + here, **({"name": name, "obj": None} if here else {}))
