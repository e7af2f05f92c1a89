"""What a collective is: a schedule, which is plain data.

A schedule for k devices and n elements is a list of *steps*; a step is a list
of *transfers* that happen at the same time. Device numbers are positions in the
list of arrays, from 0 to k - 1. Within a step every transfer reads what its
source held when the step began, as messages on a wire do, so two devices may
exchange the same slice.

Whoever reads a schedule (to execute, time, draw or prove it) needs no more than
this page.
"""

import itertools
from typing import NamedTuple

import numpy as np

from ..arguments import check_list, check_whole, shown
from ..devices import MOST_DEVICES

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


def check_sizes(k, n):
    """Raise ValueError unless there can be k devices with n elements each."""
    check_whole("k, the number of devices,", k, most=MOST_DEVICES)
    check_whole("n, the number of elements,", n, least=0, most=MOST_ELEMENTS)


def check_steps(schedule):
    """The steps of a schedule one by one, as lists. Raises ValueError for one that is no list of transfers."""
    if isinstance(schedule, (str, bytes, dict)) or not hasattr(schedule, "__iter__") or hasattr(schedule, "dtype"):
        raise ValueError(f"schedule: {shown(schedule)} should be a list of steps, which are lists of transfers")
    for number, step in enumerate(schedule, 1):
        step = check_list(f"schedule: step {number}", step, of="transfers")
        for t in step:
            if not isinstance(t, Transfer) or not all(isinstance(value, (int, np.integer)) for value in t[:4]):
                raise ValueError(
                    f"step {number}: {shown(t)} should be a Transfer(source, destination, start, stop, op)"
                )
        yield step


def chunk_bounds(n, k):
    """Split n elements into k chunks whose sizes differ by at most one: k pairs (start, stop).

    The first n mod k chunks get one element more; where n < k the last are empty.
    """
    check_sizes(k, n)
    return [chunk_bound(n, k, chunk) for chunk in range(k)]


def chunk_bound(n, k, chunk):
    """The (start, stop) of one of the chunks."""
    size, rest = divmod(n, k)
    start = chunk * size + min(chunk, rest)
    return start, start + size + (chunk < rest)


def place(schedule, members, start=0):
    """A schedule for other devices and elements: device i becomes ``members[i]``, element e becomes ``start + e``.

    Raises ValueError unless there is a member for each device.
    """
    steps, members = list(check_steps(schedule)), check_list("members", members, of="numbers of devices")
    check_whole("start", start, least=0, most=MOST_ELEMENTS)
    for member in members:
        check_whole("a member", member, least=0)
    for t in itertools.chain(*steps):
        if not max(t.source, t.destination) < len(members) or min(t.source, t.destination) < 0:
            raise ValueError(f"place: {t} is of a device beyond the {len(members)} members; give one for each")
    return [
        [
            t._replace(
                source=members[t.source], destination=members[t.destination], start=start + t.start, stop=start + t.stop
            )
            for t in step
        ]
        for step in steps
    ]


def together(*schedules):
    """One schedule that carries out several at the same time, step by step; shorter ones end earlier.

    Raises ValueError for what is no schedule.
    """
    schedules = [list(check_steps(schedule)) for schedule in schedules]
    return [list(itertools.chain(*steps)) for steps in itertools.zip_longest(*schedules, fillvalue=())]


def is_overwritten(transfer, step):
    """Whether another transfer of the ``step`` writes where this one reads."""
    return any(t.destination == transfer.source and t.start < transfer.stop and transfer.start < t.stop for t in step)
