"""Prove that a schedule is right, without running it: replay what all devices hold, with sets instead of numbers.

A value is cut into pieces wherever a transfer starts or stops, so each transfer sends whole pieces, and a proof takes
the same time for 100 elements as for a million. Each piece on each device is a *sum of shares*:

    None        it is not there
    a set       the shares that are in the sum once: an int whose bit i says that share i is in it
    TWICE       some share is in it more than once, which no addition can repair

A transfer with "add" unites two sets; if they have a share in common, the sum has it twice. "copy" replaces the set.
What holds for sets holds for all numbers: if each share is in the sum once, the sum is right, whatever the shares are.

A replay also notes unnecessary actions, which bring values that are there already, or values that are never read.

At first each device holds its own share of each piece. The schedule is an allreduce exactly if every device holds every
share of every piece once at the end. A plan is proved by the same replay (plans/proof/replay.py).
"""

from dataclasses import dataclass, field

import numpy as np

from ..base.arguments import MAX_DEVICES, check_whole
from .actions import ALONE, MAX_ELEMENTS, value_name
from .columns import InvalidStep, check_columns, check_steps, edges_of, sent_by
from .diagnosis import diagnosis, follow, shares_alone

TWICE = -1

SUMMED = ("grads",)
"""Values that start as zeros."""

MAX_WASTED = 20
"""The most unnecessary actions that are noted."""


class Replay:
    """The state of ``k`` devices. ``cuts(value)``: where a value is cut, an ascending array of elements with both ends.

    ``held[value]``, (k, pieces): the sums, as above. ``fresh[value]``, (k, pieces): for pieces that have not been read
    yet, the number of the step that wrote them, negative if that was a plan's computation; otherwise 0. ``wasted``:
    sentences about unnecessary actions. ``number``: the number of the step, from 1.
    """

    def __init__(self, k, cuts):
        self.k, self.cuts, self.held, self.fresh, self.wasted, self.number = k, cuts, {}, {}, [], 0

    def sums(self, value):
        """The table ``held[value]``; in a new table, nothing is there."""
        if value not in self.held:
            shape = self.k, len(self.cuts(value)) - 1
            self.held[value], self.fresh[value] = np.full(shape, None), np.zeros(shape, np.int32)
        return self.held[value]

    def step(self, moves):
        """Replay a step: all `TransferColumns` read before any writes. Raises `InvalidStep` if something is missing."""
        self.number += 1
        for each, what in [(each, self.read(each)) for each in moves]:
            self.write(each, *what)

    def read(self, transfers):
        """Three arrays of what `TransferColumns` read: the transfers' numbers, the pieces' numbers, and the sums."""
        cuts, table = self.cuts(transfers.value), self.sums(transfers.value)
        first, last = np.searchsorted(cuts, transfers.start), np.searchsorted(cuts, transfers.stop)
        number = np.repeat(np.arange(len(first)), last - first)
        pieces = np.arange(len(number)) - (np.cumsum(last - first) - last)[number]
        devices = transfers.source[number]
        sums = table[devices, pieces]
        missing = np.equal(sums, None).astype(bool)
        if missing.any():
            t = transfers.transfer(number[np.argmax(missing)])
            raise InvalidStep(
                f"device {t.source} does not have {value_name(t.value)}, elements {t.start} to {t.stop}, to send"
            )
        self.fresh[transfers.value][devices, pieces] = 0
        return number, pieces, sums

    def write(self, transfers, number, pieces, sums):
        """Write what `TransferColumns` have read; the other arguments are what `read` returned."""
        table, fresh = self.sums(transfers.target), self.fresh[transfers.target]
        devices = transfers.destination[number]
        _, first = np.unique(devices * table.shape[1] + pieces, return_index=True)
        if len(first) < len(pieces):  # several arrive in the same place: one after the other
            for some in np.sort(first), np.delete(np.arange(len(pieces)), first):
                self.write(transfers, number[some], pieces[some], sums[some])
            return
        before, unread = table[devices, pieces], fresh[devices, pieces]
        after = sums if transfers.op == "copy" else self._added(transfers, number, before, sums)
        table[devices, pieces], fresh[devices, pieces] = after, self.number
        for wasted, what in (
            (np.equal(before, after).astype(bool), "what is there already"),
            ((transfers.op == "copy") & (unread != 0), "over what nobody has used"),
        ):
            for i in np.unique(number[wasted]):
                self.waste(f"{transfers.transfer(i)}: {what}")

    def _added(self, transfers, number, there, more):
        missing = np.equal(there, None).astype(bool)
        if missing.any():
            if transfers.target[0] not in SUMMED:
                t = transfers.transfer(number[np.argmax(missing)])
                raise InvalidStep(f"{t}: device {t.destination} has no such elements, to which they could be added")
            there = np.where(missing, 0, there)
        twice = (there & more).astype(bool)
        total = there | more
        total[twice] = TWICE
        return total

    def waste(self, text, number=None):
        """Note something unnecessary in the step with this ``number``, by default the current one."""
        if len(self.wasted) < MAX_WASTED:
            self.wasted.append(f"step {number or self.number}: {text}")


class ScheduleError(ValueError):
    """A schedule does not do what it should; the message says what a device lacks or counts twice, and since when."""


@dataclass
class Proof:
    """The findings of a proof that a schedule is right.

    ``sent`` counts the elements that each device sends. ``ratio`` is the largest of these counts divided by the lower
    bound for an allreduce, 2(k-1)/k·n (Patarasuk and Yuan 2009): 1 means that no allreduce sends less. It is None if
    the bound is zero. ``wasted``: sentences about unnecessary transfers, at most the first few.
    """

    steps: int
    sent: list
    ratio: float = None
    wasted: list = field(default_factory=list, repr=False)


def prove(schedule, k, n):
    """Prove that a schedule for k devices and n elements is an allreduce; return a `Proof`.

    After an allreduce, all devices have the full sum. Raises ScheduleError for a schedule that is none.
    """
    k, n, steps, columns = check_form(schedule, k, n)
    cuts = edges_of(columns, {0, n})
    replay = Replay(k, lambda value: cuts)
    held = replay.sums(ALONE)
    held[...] = np.array([1 << device for device in range(k)], object)[:, None]
    for moves in columns:
        replay.step(moves)
    wrong = np.not_equal(held, (1 << k) - 1).astype(bool)
    if wrong.any():
        piece, device = np.argwhere(wrong.T)[0].tolist()
        found = follow(steps, shares_alone(k), cuts[piece])
        what = diagnosis(found, {*range(k)}, (device, ALONE), "share", "device")
        raise ScheduleError(f"device {device}, elements {cuts[piece]} to {cuts[piece + 1]}: {what}")
    sent, bound = sent_by(columns, k), 2 * (k - 1) * n / k
    return Proof(len(steps), sent, max(sent) / bound if bound else None, replay.wasted)


def check_form(schedule, k, n):
    """Return k and n as ints, and the steps of a schedule as lists of transfers, and as lists of `TransferColumns`.

    Raises ScheduleError unless all transfers are between two of k devices, of elements 0 to n of one value, and add or
    copy; ValueError for anything but a schedule, or for invalid numbers of devices or elements.
    """
    k = check_whole("k, the number of devices,", k, most=MAX_DEVICES)
    n = check_whole("n, the number of elements,", n, least=0, most=MAX_ELEMENTS)
    steps, columns = [], []
    for step, moves in check_steps(schedule):
        try:
            check_columns(moves, k, lambda value: n if value == ALONE else None)
        except InvalidStep as wrong:
            raise ScheduleError(f"step {len(steps) + 1}: {wrong}") from None
        steps.append(step)
        columns.append(moves)
    return k, n, steps, columns
