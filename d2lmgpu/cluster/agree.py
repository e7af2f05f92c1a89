"""Do all processes run the same program on the same data? What each of them has is compared before they begin."""

import functools
import hashlib
from collections import Counter
from pathlib import Path

from ..arguments import plain, shown
from .rendezvous import PATIENCE, rendezvous


def agree(comm, what, patience=PATIENCE, where="the comparison of what they run"):
    """Return when all processes have the same ``what``: a dict of settings, checksums and the like by their names.

    ``comm`` is MPI's communicator of all of them. All call this in the same order; who does not come within
    ``patience`` seconds is named, and the job ends.

    Raises ValueError in every process, with the ranks that differ from most others, and in what; HangError as
    `rendezvous` does.
    """
    here = {name: repr(plain(value)) for name, value in what.items()}
    told = rendezvous(comm, here, patience, where)
    names = list(dict.fromkeys(name for each in told for name in each))
    differences = [_difference(name, [each.get(name) for each in told]) for name in names]
    if any(differences):
        raise ValueError(f"the processes differ: {'; '.join(filter(None, differences))}")


@functools.cache
def checksum_of_code():
    """A checksum of this package's files, the same for the same version of the code."""
    package, digest = Path(__file__).parents[1], hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        digest.update(f"{file.relative_to(package).as_posix()} {file.stat().st_size} ".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _difference(name, values):
    """Who has which of the ``values``, a rank's each, in words; None if all have the same."""
    counts = dict.fromkeys(values)
    if len(counts) == 1:
        return None
    usual = usual_of(values)
    others = [value for value in counts if value != usual]
    return f"{name} is " + ", but ".join(
        f"{'not given' if value is None else _short(value)} on {_ranks(values, value)}" for value in [*others, usual]
    )


def usual_of(values):
    """What most of them are; of two that are as often, the one that comes first."""
    return Counter(values).most_common(1)[0][0]


def _short(text):
    """As errors show values: a text in one line, the middle of a long one left out."""
    return shown(_Text(text))


class _Text(str):
    """A text that is shown as it is."""

    __repr__ = str.__str__


def _ranks(values, value):
    """ "rank 1", or "ranks 0, 2 and 3"."""
    *first, last = [str(rank) for rank, other in enumerate(values) if other == value]
    return f"ranks {', '.join(first)} and {last}" if first else f"rank {last}"
