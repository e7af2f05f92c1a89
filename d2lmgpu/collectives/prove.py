"""Prove that a schedule is right, without running it.

The schedule is replayed with sets instead of numbers (replay.py): at first each device holds its own share of each
piece. The schedule is an allreduce exactly if every device holds every share of every piece once at the end. Other
goals require other shares (postconditions.py).
"""

from dataclasses import dataclass, field

import numpy as np

from ..base.arguments import MAX_DEVICES, check_name, check_whole
from .actions import ALONE, MAX_ELEMENTS, chunk_bound
from .columns import InvalidStep, check_columns, check_steps, cuts_of, sent_by
from .diagnosis import diagnosis, follow, shares_alone
from .replay import Replay

GOALS = {
    "allreduce": lambda k, n: [(device, 0, n, (1 << k) - 1) for device in range(k)],
    "reduce_scatter": lambda k, n: [(device, *chunk_bound(n, k, device), (1 << k) - 1) for device in range(k)],
    "all_gather": lambda k, n: [(i, *chunk_bound(n, k, owner), 1 << owner) for owner in range(k) for i in range(k)],
}
"""Functions of k devices and n elements that return lists of (device, start, stop, shares).

Elements start to stop on the device must be the sum of the shares, an int whose bit i stands for device i's share.
"""


class ScheduleError(ValueError):
    """A schedule does not do what it should; the message says what a device lacks or counts twice, and since when."""


@dataclass
class Proof:
    """The findings of a proof that a schedule is right.

    ``sent`` counts the elements that each device sends. ``ratio`` is the largest of these counts divided by the lower
    bound for an allreduce, 2(k-1)/k·n (Patarasuk and Yuan 2009): 1 means that no allreduce sends less. It is None if
    the bound is zero, and for other goals. ``wasted``: sentences about unnecessary transfers, at most the first few.
    """

    steps: int
    sent: list
    ratio: float = None
    wasted: list = field(default_factory=list, repr=False)


def prove(schedule, k, n, goal="allreduce"):
    """Prove that a schedule for k devices and n elements is an allreduce; return a `Proof`.

    After an allreduce, all devices have the full sum. ``goal``: another goal to prove, one of `goals.GOALS`.

    Raises ScheduleError if the schedule does not reach the goal, and ValueError for an unknown goal.
    """
    check_name("goal", goal, GOALS)
    k, n, steps, columns = check_form(schedule, k, n)
    wanted = GOALS[goal](k, n)
    cuts = cuts_of(columns, {0, n}.union(*((start, stop) for _, start, stop, _ in wanted)))
    replay = Replay(k, lambda value: cuts)
    held = replay.sums(ALONE)
    held[...] = np.array([1 << device for device in range(k)], object)[:, None]
    for moves in columns:
        replay.step(moves)
    should = held.copy()  # elsewhere, anything is right
    for device, start, stop, shares in wanted:
        should[device, slice(*np.searchsorted(cuts, (start, stop)))] = shares
    wrong = np.not_equal(held, should).astype(bool)
    if wrong.any():
        piece, device = np.argwhere(wrong.T)[0].tolist()
        found = follow(steps, shares_alone(k), cuts[piece])
        shares = {i for i in range(k) if should[device, piece] >> i & 1}
        what = diagnosis(found, shares, (device, ALONE), "share", "device")
        raise ScheduleError(f"device {device}, elements {cuts[piece]} to {cuts[piece + 1]}: {what}")
    sent, bound = sent_by(columns, k), 2 * (k - 1) * n / k if goal == "allreduce" else 0
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
