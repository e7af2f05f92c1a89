"""The language for collectives and training steps: plain data with two kinds of actions.

    Transfer    elements of a value go from one device to another, and are added or copied there
    Compute     a device computes a part of a training step (plans/plan.py)

Everything that devices do is a list of *steps*; a step is a list of actions that happen at the same time. All transfers
of a step read what their sources held when the step began, as if the messages were already on a wire, so two devices
may exchange the same slice. A *schedule*, such as an allreduce, has only transfers, all of the one array that each
device has, which is named ("x",). A *plan* (plans/plan.py) has both kinds of actions.

You need not write down waiting or freeing, since both follow from the list: a device that reads a value waits until it
is written, one that overwrites a value waits until it has been read, and a value that no later step reads is freed.

The modules that prove, order, time, execute and draw steps need nothing but this list.
"""

import functools
import itertools
from typing import NamedTuple

import numpy as np

from ..base.arguments import plain, scalar

MAX_ELEMENTS = 2**50
"""The most elements that an array may have; they would take petabytes."""

ALONE = ("x",)
"""The only value in a schedule: the array that each device has."""


class Transfer(NamedTuple):
    """Elements ``start`` to ``stop`` of ``value`` go from device ``source`` to device ``destination``.

    There they are added to the elements at the same position (``op="add"``), or replace them (``op="copy"``), in the
    same value, or in the ``target`` if one is given.
    """

    source: int
    destination: int
    start: int
    stop: int
    op: str
    value: tuple = ALONE
    target: tuple = None

    @property
    def size(self):
        """The number of elements that are sent."""
        return int(self.stop - self.start)

    def __repr__(self):
        """As for any named tuple, but without the value and the target if they have their defaults."""
        fields = zip(self._fields, self, strict=True)
        said = [f"{name}={scalar(field)!r}" for name, field in fields if field != self._field_defaults.get(name, "")]
        return f"Transfer({', '.join(said)})"

    def __str__(self):
        """In words: "device 0 sends device 1 units 0 to 20 of y of stage 0, micro-batch 3"."""
        what = f"{'units' if self.value[0] in ('y', 'dy') else 'elements'} {self.start} to {self.stop}"
        to = ", to be added" if self.op == "add" else ""
        if self.target:
            to += f" to {value_name(self.target)}"
        of = "" if self.value == ALONE else f" of {value_name(self.value)}"
        return f"device {self.source} sends device {self.destination} {what}{of}{to}"


def value_name(value):
    """A value in words: "y of stage 0, micro-batch 3", "params of stage 1", "grads of stage 1, round 0"."""
    kind, s, *rest = value
    return f"{kind} of stage {s}" + "".join(f", {'round' if kind == 'grads' else 'micro-batch'} {i}" for i in rest)


def chunk_bounds(n, k) -> list[tuple[int, int]]:
    """Split n elements into k chunks whose sizes differ by at most one: k pairs (start, stop).

    The first n mod k chunks have one element more; if n < k, the last ones are empty. Raises ValueError for
    fewer than 0 elements or 1 chunk.
    """
    if n < 0 or k < 1:
        raise ValueError(f"{n} elements for {k} devices: there should be at least 0 elements, and a device")
    return [chunk_bound(n, k, chunk) for chunk in range(k)]


def chunk_bound(n, k, chunk):
    """The (start, stop) of one of the chunks of `chunk_bounds`."""
    size, rest = divmod(int(n), int(k))
    start = chunk * size + min(chunk, rest)
    return start, start + size + (chunk < rest)


def apportioned(shares, n):
    """How many of n elements each of the ``shares``, fractions whose sum is 1, gets: integers, an array like them.

    Each gets its exact part, rounded down; what is left goes to those that lost most by rounding, one each (the
    largest-remainder method).
    """
    exact = n * np.asarray(shares, float)
    counts = np.floor(exact).astype(int)
    counts[np.argsort(counts - exact, kind="stable")[: n - counts.sum()]] += 1
    return counts


def place(schedule, members, start=0, value=ALONE):
    """The schedule for other devices: device i becomes ``members[i]``, element e becomes ``start + e`` of ``value``."""
    members, start = plain(list(members)), plain(start)
    moved = functools.cache(lambda element: start + int(element))  # each number is created only once
    return [
        [
            Transfer(members[source], members[destination], moved(first), moved(last), op, value)
            for source, destination, first, last, op, *_ in step
        ]
        for step in schedule
    ]


def sent_back(steps):
    """The way back: in each of the ``steps``, whoever received elements now sends them, to replace the originals."""
    return [[Transfer(t.destination, t.source, t.start, t.stop, "copy") for t in step] for step in steps]


def in_parallel(*schedules):
    """One schedule that does several at the same time, step by step; shorter ones end earlier."""
    return [list(itertools.chain(*steps)) for steps in itertools.zip_longest(*schedules, fillvalue=())]
