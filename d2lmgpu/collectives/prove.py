"""One reader of schedules: prove that a schedule is right, without running it.

Instead of numbers, devices hold *contributions*: for each piece of the array a
count for every device of how often that device's share is contained. A transfer
with "add" adds the counts, one with "copy" replaces them. A schedule is an
allreduce exactly if at the end every device holds every contribution to every
piece once. That this holds for counts means that it holds for all numbers.

Pieces are cut wherever some transfer starts or stops, so that a proof takes the
same time for 100 elements as for a million.
"""

from dataclasses import dataclass

import numpy as np

from ..arguments import check_list, check_whole, shown
from ..devices import MOST_DEVICES
from ..language.actions import MOST_ELEMENTS, Transfer


class ScheduleError(ValueError):
    """A schedule does not do what it should; the message says what a device lacks or double-counts, and since when."""


@dataclass
class Proof:
    """What a proof found out about a right schedule.

    ``sent`` counts the elements that each device sends. ``ratio`` is the largest
    of them divided by the lower bound of an allreduce, 2(k-1)/k·n (Patarasuk and
    Yuan 2009): 1 means that no allreduce sends less. It is None where the bound
    is zero.
    """

    steps: int
    sent: list
    ratio: float = None


def prove(schedule, k, n):
    """Prove that a schedule for k devices and n elements is an allreduce: all end with the sum of all. A `Proof`.

    Raises ScheduleError if it is not.
    """
    schedule = check_form(schedule, k, n)
    cuts = pieces(schedule, n)
    *_, held = replay(schedule, k, cuts)
    wrong = np.argwhere((held != 1).any(axis=2).T)
    if len(wrong):
        piece, device = wrong[0]
        what = _diagnosis(held[device, piece], _history(schedule, k, cuts, device, piece))
        raise ScheduleError(f"device {device}, elements {cuts[piece]} to {cuts[piece + 1]}: {what}")
    sent = [0] * k
    for step in schedule:
        for t in step:
            sent[t.source] += t.size
    bound = 2 * (k - 1) * n / k
    return Proof(len(schedule), sent, max(sent) / bound if bound else None)


def replay(schedule, k, cuts):
    """What all devices hold at the start and after each step: yields counts (k, pieces, k), the same array each time.

    ``counts[device, piece, other]`` says how often ``other``'s share is contained.
    """
    index = {cut: i for i, cut in enumerate(cuts)}
    held = np.zeros((k, len(cuts) - 1, k), np.int64)
    held[np.arange(k), :, np.arange(k)] = 1
    yield held
    for step in schedule:
        parts = [slice(index[t.start], index[t.stop]) for t in step]
        messages = [held[t.source, part].copy() for t, part in zip(step, parts, strict=True)]
        for t, part, message in zip(step, parts, messages, strict=True):
            if t.op == "add":
                held[t.destination, part] += message
            else:
                held[t.destination, part] = message
        yield held


def _history(schedule, k, cuts, device, piece):
    """What was written to a piece: a list of (step, transfer, counts it had, counts that came)."""
    history = []
    for number, (step, held) in enumerate(zip(schedule, replay(schedule, k, cuts), strict=False), 1):
        had = held[device, piece].copy()
        for t in step:
            if t.destination == device and t.start <= cuts[piece] < t.stop:
                message = held[t.source, piece].copy()
                history.append((number, t, had, message))
                had = had + message if t.op == "add" else message
    return history


def _diagnosis(held, history):
    """What is wrong with a piece of which a device has ``held``, (k,), and the step that made it wrong."""
    often = np.flatnonzero(held > 1)
    if len(often):
        what = f"{_shares(often)} counted {held[often].max()} times instead of 1."
        for step, t, had, message in history:
            if t.op == "add" and ((had > 0) & (message > 0))[often].any():
                return f"{what} Step {step} adds what device {t.source} sends to what is already there; should it copy?"
        step, t = history[-1][:2]
        return f"{what} It came so from device {t.source} in step {step}."
    lacking = np.flatnonzero(held < 1)
    what = f"{_shares(lacking)} lacking."
    for step, t, had, message in history:
        lost = lacking[(had[lacking] > 0) & (message[lacking] == 0)]
        if t.op == "copy" and len(lost):
            return f"{what} Step {step} replaces it by a copy from device {t.source} that is without it; should it add?"
    if not history:
        return f"{what} No step sends anything there."
    step, t = history[-1][:2]
    return f"{what} No step brings it; the last to arrive came from device {t.source} in step {step}."


def _shares(devices):
    names = [str(device) for device in devices]
    return f"the share{'s' if len(names) > 1 else ''} of device {', '.join(names)} {'are' if len(names) > 1 else 'is'}"


def check_form(schedule, k, n):
    """The schedule as a list of lists.

    Raises ScheduleError unless all transfers are between two of k devices, of elements 0 to n, to add or copy;
    ValueError for what is no schedule, or no number of devices or elements.
    """
    check_whole("k, the number of devices,", k, most=MOST_DEVICES)
    check_whole("n, the number of elements,", n, least=0, most=MOST_ELEMENTS)
    steps = list(check_steps(schedule))
    for number, step in enumerate(steps, 1):
        for t in step:
            if not (0 <= t.source < k and 0 <= t.destination < k):
                raise ScheduleError(f"step {number}: {t} names a device that is not among 0 … {k - 1}")
            if t.source == t.destination:
                raise ScheduleError(f"step {number}: {t} sends from a device to itself")
            if not 0 <= t.start <= t.stop <= n:
                raise ScheduleError(f"step {number}: {t} is not within the elements 0 … {n}")
            if t.op not in ("add", "copy"):
                raise ScheduleError(f"step {number}: {t} should add or copy")
    return steps


def check_steps(schedule):
    """The steps of a schedule one by one, as lists. Raises ValueError unless it is a list of lists of transfers."""
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


def pieces(schedule, n):
    """Where the array is cut so that each transfer moves whole pieces: 0, …, n."""
    return sorted({0, n} | {edge for step in schedule for t in step for edge in (t.start, t.stop)})
