"""Turn a plan's steps into a list of actions for its devices, in an order in which they can be done.

receive       receive a y or dy that is sent whole: one action of the receiver and the sender
collective    do all other transfers of a value in consecutive steps without computations, among devices that
              exchange data with each other: one action of all these devices
keep          add elements of a value to another value on the same device
free          drop a value that no later step reads (plans/proof/live_ranges.py)
F, B, I, W, update
"""

import functools
import itertools
from typing import NamedTuple

from ...collectives.actions import Transfer
from ...collectives.phases import compile_schedule
from ..proof.live_ranges import live_ranges
from ..proof.memory import extents_of_grads, joined_values


class Action(NamedTuple):
    """What ``devices`` do with a ``value``, or for a stage and a micro-batch, in a ``step`` of the plan (from 1).

    ``schedule``: for "collective", its schedule, whose device i is ``devices[i]``. ``bounds``: for "keep", the
    elements. ``target``: for "keep", the value to which these are added; for B and W, the value to which gradients are
    added. The second device of "receive" is the sender.
    """

    what: str
    stage: int
    micro_batch: int = None
    value: tuple = None
    schedule: tuple = ()
    bounds: tuple = None
    target: tuple = None
    devices: tuple = ()
    step: int = None

    def __str__(self):
        """ "B of stage 2, micro-batch 3", "receive of y of stage 0, micro-batch 3, from device 0"."""
        text = f"{self.what} of {self.value[0]} of " if self.value else f"{self.what} of "
        text += f"stage {self.stage}" + ("" if self.micro_batch is None else f", micro-batch {self.micro_batch}")
        if self.what == "receive":
            text += f", from device {self.devices[1]}"
        if self.what == "collective":
            text += f", of devices {', '.join(map(str, self.devices))}"
        return text


def actions_of(plan, columns):
    """The list of the plan's `Action` objects; ``columns``: the plan's steps as `check_plan` returns them."""
    joined, actions, block, gone = joined_values(plan, columns), [], {}, {}
    for life in live_ranges(plan, columns):
        gone.setdefault(life.end, []).append(life)
    for number, (computes, _) in enumerate(columns, 1):
        if computes:
            actions += _collectives(block)
        for t in (action for action in plan.steps[number - 1] if isinstance(action, Transfer)):
            if t.value[0] in ("y", "dy") and t.value not in joined:
                actions.append(_about("receive", t.value, number, t.destination, t.source))
            elif t.target in (None, t.value):
                block.setdefault(t.value, {}).setdefault(number, []).append(t)
            elif t.size:
                kept = _about("keep", t.value, number, t.source, bounds=(t.start, t.stop), target=t.target)
                actions += [*_collectives(block), kept]
        for what, device, *about, into in computes:
            actions.append(Action(what, *about, target=into or ("grads", about[0]), devices=(device,), step=number))
        if number in gone:
            actions += _collectives(block)
        for device, value, *_ in gone.get(number, ()):
            actions.append(_about("free", value, number, device))
    return actions + _collectives(block)


def _about(what, value, number, *devices, **fields):
    """An action that concerns a value, in the step ``number``."""
    kind, s, *m = value
    return Action(what, s, m[0] if m and kind != "grads" else None, value, devices=devices, step=number, **fields)


def _collectives(block):
    """The actions for a ``block`` of transfers from consecutive steps. The block is emptied.

    ``block[value][number]`` is a list of the transfers of this value in the step with this number.
    """
    actions, last = [], max(map(max, block.values()), default=None)
    for value, steps in block.items():
        for group in _groups(itertools.chain(*steps.values())):
            place = {device: i for i, device in enumerate(group)}
            schedule = [
                tuple(
                    t._replace(source=place[t.source], destination=place[t.destination])
                    for t in step
                    if t.source in place and t.size
                )
                for step in steps.values()
            ]
            schedule = tuple(step for step in schedule if step)
            actions.append(_about("collective", value, last, *group, schedule=schedule))
    block.clear()
    return actions


def _groups(transfers):
    """The devices of the transfers, in groups that exchange data within themselves: ascending tuples."""
    groups = {}
    for t in transfers:
        if groups.setdefault(t.source, {t.source}) is not groups.setdefault(t.destination, {t.destination}):
            both = groups[t.source] | groups[t.destination]
            groups |= dict.fromkeys(both, both)
    return [tuple(sorted(group)) for group in {id(group): group for group in groups.values()}.values()]


def extents_of(plan, columns, actions):
    """For each device, {gradients: its elements (start, stop)}; all devices of a collective have the same elements."""
    extents = extents_of_grads(plan, columns)
    for action in actions:
        if action.what == "collective" and action.value[0] == "grads":
            (start, stop), devices = extents[action.value], list(action.devices)
            start[devices], stop[devices] = start[devices].min(), stop[devices].max()
    return [{value: (int(start[i]), int(stop[i])) for value, (start, stop) in extents.items()} for i in range(plan.k)]


@functools.lru_cache(maxsize=256)
def compiled(schedule, k, staged, first, unit):
    """The program of a schedule, for arrays that begin at the schedule's element ``first``.

    Each element of the schedule stands for ``unit`` elements of the arrays.
    """
    placed = tuple(
        tuple(t._replace(start=(t.start - first) * unit, stop=(t.stop - first) * unit) for t in step)
        for step in schedule
    )
    return compile_schedule(placed, k, staged)
