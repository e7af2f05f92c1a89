"""An exchange between all processes with a time limit; processes that do not arrive in time are named.

In this way the processes compare their code, settings and data before they begin.
"""

import functools
import hashlib
import time
from collections import Counter
from pathlib import Path

import numpy as np

from ..base.arguments import plain
from ..base.text import shortened
from .communicator import most_tags
from .watchdog import end

PATIENCE = 120.0
"""Seconds for which a process waits for another one, by default."""

_GLANCE = 0.001
"""Seconds between two looks at what has arrived."""


def rendezvous(world, here, patience, where="d2l.cluster()"):
    """An all-gather with a time limit: return a list, by rank, of what all processes give as ``here``.

    All processes call this in the same order. If nothing new arrives for ``patience`` seconds, an error text names the
    missing processes and the place ``where`` the others wait, and all processes end. A process that has not taken this
    one's message also counts as missing. The messages have the largest tag, since the program may use the communicator
    for other messages.
    """
    come = most_tags(world)
    others = [rank for rank in range(world.size) if rank != world.rank]
    sent, found = {rank: world.isend(here, rank, come) for rank in others}, {world.rank: here}
    give_up = time.monotonic() + patience
    # Every request is tested, since MPI advances a message only then.
    while missing := [rank for rank, request in sent.items() if not request.Test() or rank not in found]:
        for rank in others:
            if rank not in found and world.iprobe(rank, come):
                found[rank] = world.recv(source=rank, tag=come)
                give_up = time.monotonic() + patience
        if time.monotonic() > give_up:
            names = " and ".join(f"rank {rank}" for rank in missing)
            text = f"{names} did not join rank {world.rank} at {where} within {patience:g} s"
            if world.rank > min({*range(world.size)} - {*missing}):
                time.sleep(2)  # the lowest rank that is here reports it and ends all
            end(world, f"{text}; the job ends")
        time.sleep(_GLANCE)
    return [found[rank] for rank in range(world.size)]


def check_same_on_all_ranks(comm, what, patience=PATIENCE, where="the comparison of what they run"):
    """Check that all processes have the same ``what``: a dict of settings, checksums and the like by their names.

    ``comm`` is MPI's communicator of all processes. All of them call this in the same order; one that does not do so
    within ``patience`` seconds is named, and the job ends.

    Raises ValueError in every process, naming what differs and on which ranks.
    """
    here = {name: repr(plain(value)) for name, value in what.items()}
    told = rendezvous(comm, here, patience, where)
    values = {name: [each.get(name) for each in told] for each in told for name in each}
    differences = [_difference(name, given) for name, given in values.items() if len(set(given)) > 1]
    if differences:
        raise ValueError(f"the processes differ: {'; '.join(differences)}")


def checksum(*what):
    """A checksum of NumPy arrays, or of other things by their `repr`, which is the same in every process."""
    digest = hashlib.sha256()
    for item in what:
        digest.update(np.ascontiguousarray(item) if isinstance(item, np.ndarray) else repr(item).encode())
    return digest.hexdigest()[:16]


@functools.cache
def checksum_of_code():
    """A checksum of this package's files, the same for the same version of the code."""
    package = Path(__file__).parents[1]
    files = sorted(package.rglob("*.py"))
    return checksum(*((file.relative_to(package).as_posix(), file.read_bytes()) for file in files))


def _difference(name, values):
    """The different ``values`` and their ranks, in words; there is one value from each rank."""
    usual = usual_of(values)
    others = dict.fromkeys(value for value in values if value != usual)
    return f"{name} is " + ", but ".join(
        f"{'not given' if value is None else shortened(value)} on {_ranks(values, value)}" for value in [*others, usual]
    )


def usual_of(values):
    """The most frequent value; if several are equally frequent, the first of them."""
    return Counter(values).most_common(1)[0][0]


def _ranks(values, value):
    """The ranks that have this value, in words: "rank 1", or "ranks 0, 2 and 3"."""
    *first, last = [str(rank) for rank, other in enumerate(values) if other == value]
    return f"ranks {', '.join(first)} and {last}" if first else f"rank {last}"
