"""What a collective is: a schedule, which is plain data.

A schedule for k devices and n elements is a list of *steps*; a step is a list
of *transfers* that happen at the same time. Device numbers are positions in the
list of arrays, from 0 to k - 1. Within a step every transfer reads what its
source held when the step began, as messages on a wire do, so two devices may
exchange the same slice.

The readers of schedules, which execute, time, draw and prove them, need no more
than this page.
"""

import itertools
from typing import NamedTuple

MOST_ELEMENTS = 2**50
"""Of an array, which would be petabytes."""


class Transfer(NamedTuple):
    """Elements ``start`` to ``stop`` go from device ``source`` to device ``destination``.

    There they are added to what is in the same place (``op="add"``), or replace
    it (``op="copy"``).
    """

    source: int
    destination: int
    start: int
    stop: int
    op: str

    @property
    def size(self):
        """The number of elements that travel."""
        return self.stop - self.start


def chunk_bounds(n, k):
    """Split n elements into k chunks whose sizes differ by at most one: k pairs (start, stop).

    The first n mod k chunks get one element more; where n < k the last are empty.
    """
    return [chunk_bound(n, k, chunk) for chunk in range(k)]


def chunk_bound(n, k, chunk):
    """The (start, stop) of one of the chunks."""
    size, rest = divmod(n, k)
    start = chunk * size + min(chunk, rest)
    return start, start + size + (chunk < rest)


def place(schedule, members, start=0):
    """A schedule for other devices and elements: device i becomes ``members[i]``, element e becomes ``start + e``."""
    return [
        [
            t._replace(
                source=members[t.source], destination=members[t.destination], start=start + t.start, stop=start + t.stop
            )
            for t in step
        ]
        for step in schedule
    ]


def together(*schedules):
    """One schedule that carries out several at the same time, step by step; shorter ones end earlier."""
    return [list(itertools.chain(*steps)) for steps in itertools.zip_longest(*schedules, fillvalue=())]


def is_overwritten(transfer, step):
    """Whether another transfer of the ``step`` writes where this one reads."""
    return any(t.destination == transfer.source and t.start < transfer.stop and transfer.start < t.stop for t in step)
