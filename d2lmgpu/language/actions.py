"""The language in which collectives and training steps are written: plain data, of two words.

    Transfer    elements of a value go from a device to another, and are added or copied there
    Compute     a device computes: forward or backward of a stage for a micro-batch, or the update of a stage

Whatever the devices do is a list of *steps*; a step is a list of these that happen at the same time: all transfers
of a step read what their sources held when it began, as messages on a wire do, so that two devices may exchange the
same slice. A *schedule*, an allreduce for example, has transfers alone, of one array that each device has, named
("x",). A *plan* (plan.py) has both.

Nobody waits by hand, and nothing is freed by hand: who reads a value waits for who wrote it, and who writes it for who
still reads it; what no later step reads is gone. Both follow from the list.

The readers of steps, which prove, order, time, execute and draw them, need no more than this.
"""

import functools
import itertools
from typing import NamedTuple

MOST_ELEMENTS = 2**50
"""Of an array, which would be petabytes."""

ALONE = ("x",)
"""The value of a schedule: the one array that each device has."""


class Transfer(NamedTuple):
    """Elements ``start`` to ``stop`` of ``value`` go from device ``source`` to device ``destination``.

    There they are added to what is in the same place (``op="add"``), or replace it (``op="copy"``): of the same value,
    or of the ``target``, if that is another.
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
        """The number of elements that travel."""
        return self.stop - self.start

    def __repr__(self):
        """As of any named tuple, without a value and a target that are the usual ones."""
        fields = zip(self._fields, self, strict=True)
        said = [f"{name}={field!r}" for name, field in fields if field != self._field_defaults.get(name, "")]
        return f"Transfer({', '.join(said)})"

    def __str__(self):
        """ "device 0 sends device 1 units 0 to 20 of y of stage 0, micro-batch 3"."""
        what = f"{'units' if self.value[0] in ('y', 'dy') else 'elements'} {self.start} to {self.stop}"
        to = f", to be added to {name_of(self.target)}" if self.target else ", to be added" if self.op == "add" else ""
        of = "" if self.value == ALONE else f" of {name_of(self.value)}"
        return f"device {self.source} sends device {self.destination} {what}{of}{to}"


def name_of(value):
    """ "y of stage 0, micro-batch 3", "params of stage 1", "grads of stage 1, round 0"."""
    kind, s, *rest = value
    return f"{kind} of stage {s}" + "".join(f", {'round' if kind == 'grads' else 'micro-batch'} {i}" for i in rest)


def chunk_bounds(n, k) -> list[tuple[int, int]]:
    """Split n elements into k chunks whose sizes differ by at most one: k pairs (start, stop).

    The first n mod k chunks get one element more; where n < k the last are empty.
    """
    return [chunk_bound(n, k, chunk) for chunk in range(k)]


def chunk_bound(n, k, chunk):
    """The (start, stop) of one of the chunks."""
    size, rest = divmod(n, k)
    start = chunk * size + min(chunk, rest)
    return start, start + size + (chunk < rest)


def place(schedule, members, start=0, value=ALONE):
    """A schedule for others: device i becomes ``members[i]``, element e is element ``start + e`` of ``value``."""
    members, moved = list(members), functools.cache(lambda element: start + element)  # a number is made only once
    return [
        [
            Transfer(members[source], members[destination], moved(first), moved(last), op, value)
            for source, destination, first, last, op, *_ in step
        ]
        for step in schedule
    ]


def way_back(schedule):
    """The steps backwards: who has received elements gives them back, to replace what they came from."""
    return [[Transfer(t.destination, t.source, t.start, t.stop, "copy") for t in step] for step in reversed(schedule)]


def together(*schedules):
    """One schedule that carries out several at the same time, step by step; shorter ones end earlier."""
    return [list(itertools.chain(*steps)) for steps in itertools.zip_longest(*schedules, fillvalue=())]
