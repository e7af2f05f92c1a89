"""Names from the textbook, from MATLAB's and TensorFlow's guides and elsewhere, and what we call the same things.

Error messages about such a name suggest ours, and docs/names.md is made from the same rows. The rows are in names.txt,
grouped by source. Each has the names used elsewhere, our equivalent, and a few words; if there is no equivalent, the
words say why. An equivalent is a name in ``d2l``, an attribute of a device array ``x`` or of a ``device``, an argument
of `train` or an option (either may have a value), or a command.
"""

import difflib
import functools
import re
from pathlib import Path
from typing import NamedTuple

SIMILAR = 0.75
"""How similar a name must be to be suggested, as measured by difflib: one letter in four may differ."""


class NameRow(NamedTuple):
    """A row: names used ``elsewhere`` and their equivalents ``here``, each separated by commas."""

    elsewhere: str
    here: str
    note: str = ""


@functools.cache  # not read at import: only errors and pages need them
def names():
    """{source: [Name, …]} from names.txt: a line ``[source]``, then the source's rows, with parts separated by |."""
    found, path = {}, Path(__file__).with_name("names.txt")
    for line in filter(None, path.read_text(encoding="utf-8").splitlines()):
        if line.startswith("["):
            rows = found[line.strip("[]")] = []
        else:
            rows.append(NameRow(*map(str.strip, line.split("|"))))
    return found


def spelled_alike(word):
    """One string for MiniBatchSize, mini_batch_size and --mini-batch-size; only a dotted name's last part counts."""
    return re.sub("[^a-z0-9]", "", word.rpartition(".")[2].lower())


@functools.cache
def _by_spelling():
    return {spelled_alike(word): row for rows in names().values() for row in rows for word in row.elsewhere.split(", ")}


def name_among(word, known):
    """The ``known`` name, possibly with a value, for what is called ``word`` elsewhere; None if there is none."""
    row = _by_spelling().get(spelled_alike(word), NameRow(word, ""))
    for way in filter(None, row.here.split(", ")):
        words = re.findall(r"[\w-]+", way)
        if words[0] in known:  # optimizer="momentum" among arguments
            return way
        if words[-1] in known:  # momentum among optimisers
            return words[-1]
    return None


def called_here(word):
    """ "; here: d2l.split_batch (images and labels in one call)": the end of an error; "" for an unlisted word."""
    row = _by_spelling().get(spelled_alike(word))
    if row is None:
        return ""
    if not row.here:
        return f"; {row.note}"
    return f"; here: {row.here}" + (f" ({row.note})" if row.note else "")


def perhaps_meant(word, known):
    """ "; did you mean ring?": the end of an error message that suggests one of the ``known`` names, if one fits.

    The suggestion may be another spelling, our name for what other libraries call ``word``, or a similar name. If other
    libraries use ``word`` for something that is not among ``known``, the text says what it is called here.
    """
    spelling, spelled = spelled_alike(word), {spelled_alike(name): name for name in known}
    meant = spelled.get(spelling) or name_among(word, known)
    similar = difflib.get_close_matches(spelling, spelled, 1, SIMILAR)
    if not meant and similar and not called_here(word):
        meant = spelled[similar[0]]
    return f"; did you mean {meant}?" if meant else called_here(word)


def no_attribute(said, name):
    """An AttributeError with the message ``said``, followed by what ``name`` is called here.

    If there is no equivalent here, Python itself may suggest a similar name.
    """
    here = called_here(name)
    return AttributeError(said + here, **({"name": name, "obj": None} if here else {}))
