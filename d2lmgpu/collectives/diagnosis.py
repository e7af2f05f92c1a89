"""Follow one element of a schedule or plan: which shares are in it after each step, and which step did harm.

A share is what one device, or one micro-batch of a plan, has to add to a sum. `diagnosis` words what is wrong for the
errors of proofs, and `counted` counts all shares for pictures.
"""

from collections import Counter
from typing import NamedTuple

import numpy as np

from ..base.text import plural
from .actions import ALONE, Transfer

MAX_COUNT = 100
"""The largest count of a share in pictures."""


class Write(NamedTuple):
    """A write in step ``number``: the ``action`` combined the shares ``came`` with ``had``, each a `Counter`."""

    number: int
    action: tuple
    had: Counter
    came: Counter


def follow(steps, held, element, is_about=lambda action: True):
    """Follow one element through the steps: yield what is held, and its writes, at the start and after each step.

    ``held``: what is held at the start, a dict from (device, value) to a `Counter` of shares; each state is a new dict.
    ``is_about(action)`` says which transfers and computations to follow. A computation, of a plan, adds a
    share: the gradients of its micro-batch.
    """
    yield held, []
    for number, step in enumerate(steps, 1):
        arriving = []
        for action in filter(is_about, step):
            if not isinstance(action, Transfer):
                arriving.append((action, (action.device, action.grads), Counter([action.micro_batch])))
            elif action.start <= element < action.stop:
                came = held.get((action.source, action.value), Counter())
                arriving.append((action, (action.destination, action.target or action.value), came))
        held, writes = dict(held), []
        for action, place, came in arriving:
            had = held.get(place, Counter())
            writes.append((place, Write(number, action, had, came)))
            held[place] = came if getattr(action, "op", "add") == "copy" else had + came
        yield held, writes


def shares_alone(k):
    """What k devices hold at the start of a schedule: each has its own share."""
    return {(device, ALONE): Counter([device]) for device in range(k)}


def counted(schedule, k, cuts):
    """Count each share in what each device holds at the start and after each step: (steps + 1, k, pieces, k)."""
    counts = np.zeros((len(schedule) + 1, k, len(cuts) - 1, k), np.int64)
    for piece, element in enumerate(cuts[:-1]):
        for number, (held, _) in enumerate(follow(schedule, shares_alone(k), element)):
            for (device, _), shares in held.items():
                counts[number, device, piece, [*shares]] = [min(count, MAX_COUNT) for count in shares.values()]
    return counts


def diagnosis(found, right, place, what, of):
    """What is wrong with an element in a ``place`` (device, value), and the step that caused it.

    ``found``: what `follow` has yielded so far. ``right``: the set of shares that should be there. ``what`` and ``of``
    are the words for a share and for its number, as in "the shares of devices 1 and 2 are missing."
    """
    states, each_steps_writes = zip(*found, strict=True)
    history = [write for writes in each_steps_writes for where, write in writes if where == place]
    held = states[-1].get(place, Counter())
    often = {share for share, count in held.items() if count > 1}
    if often:
        said = f"{_named(often, what, of)} counted {max(held.values())} times instead of 1."
        for write in history:
            if _is_added(write) and often & write.had.keys() & write.came.keys():
                action, there = write.action, "to what is already there"
                if isinstance(action, Transfer):
                    return f"{said} Step {write.number} adds what device {action.source} sends {there}; should it copy?"
                return f"{said} Step {write.number} adds micro-batch {action.micro_batch} once more {there}."
        return f"{said} It came so from device {history[-1].action.source} in step {history[-1].number}."
    missing = right - held.keys()
    said = f"{_named(missing, what, of)} missing."
    for write in history:
        if not _is_added(write) and missing & write.had.keys() - write.came.keys():
            way = f"a copy from device {write.action.source} that is without it"
            return f"{said} Step {write.number} replaces it by {way}; should it add?"
    moved = [write for write in history if isinstance(write.action, Transfer)]
    if not moved:
        return f"{said} No step {'adds it' if history else 'sends anything'} there."
    source, number = moved[-1].action.source, moved[-1].number
    return f"{said} No step brings it; the last to arrive came from device {source} in step {number}."


def _is_added(write):
    return getattr(write.action, "op", "add") == "add"


def _named(shares, what, of):
    """The shares in words, with a verb: "the shares of devices 1 and 2 are"."""
    *others, last = map(str, sorted(shares))
    if not others:
        return f"the {what} of {of} {last} is"
    return f"the {what}s of {plural(of)} {', '.join(others)} and {last} are"
