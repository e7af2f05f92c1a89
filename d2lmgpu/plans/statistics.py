"""Batch norm's statistics in a plan: over which images they are taken.

    local           each micro-batch its own, as a plan has it that says nothing of them
    aggregated      likewise in training, but running statistics are of all images: moments are summed before updates
    synchronised    of all images: every plan equals one device

To be synchronised a stage has one batch norm layer, and no parameters after it: larger ones are cut (parts.py). Then F
becomes M, an allreduce of moments, and the rest of F; so does B. The rest waits for the M's of all micro-batches, and
whatever needs it waits as well. All else goes on, so that a plan which takes one micro-batch after the other becomes
one that takes all of them through one stage after the other.

Source: Ioffe and Szegedy 2015, "Batch normalization"; synchronised over devices by Peng et al. 2018, "MegDet".
"""

import itertools
from collections.abc import Callable

from ..arguments import check_name
from ..language.actions import Transfer, together
from ..language.plan import Compute, norms_of, uses_of
from ..language.split import norm_part, splits_of
from .compose import allreduce
from .parts import in_parts

BATCH_STATISTICS = ("local", "aggregated", "synchronised")
"""Over which images batch norm takes mean and variance.

local: each device over its own, in training and for the running statistics (the textbook).
aggregated: each over its own in training, but the running statistics are of all images (MATLAB's guide).
synchronised: over all devices' images, so that k devices equal one.
"""


def with_statistics(plan, kind, algorithm: str | Callable = "ring"):
    """The plan, with batch norm's statistics of this ``kind``; ``algorithm``: the allreduce of their sums.

    Raises ValueError for a plan that cannot have them.
    """
    check_name("batch_statistics", kind, BATCH_STATISTICS)
    if kind == "local":
        return plan
    if kind == "synchronised":
        return _synchronised(in_parts(plan, _shared(plan)), algorithm)
    sums = together(*(steps for s in _shared(plan) for steps in _sums(plan, "moments", s, algorithm)))
    updates = (number for number, step in enumerate(plan.steps) if any(action[0] == "update" for action in step))
    first = next(updates, len(plan.steps))  # before it every F is done
    return plan._replace(steps=[*plan.steps[:first], *sums, *plan.steps[first:]])


def _shared(plan):
    """The stages that have batch norm, where not one device has all images."""
    return [s for s, stage in enumerate(plan.stages) if norms_of(stage, plan.network) and plan.micro_batches > 1]


def _sums(plan, kind, s, algorithm):
    """Allreduces of a stage's moments or sums over devices that have different micro-batches, of the same units."""
    channels, split = norms_of(plan.stages[s], plan.network), splits_of(plan.network, plan.stages)[s]
    micro_batches = {}
    for action in itertools.chain(*plan.steps):
        if isinstance(action, Compute) and action.what in "FM" and action.stage == s:
            micro_batches.setdefault(action.device, set()).add(action.micro_batch)
    alike = {}  # by part: by micro-batches: devices
    for device, own in micro_batches.items():
        parts = [part.params for part in plan.layout[device] if part.stage == s]
        bounds = norm_part(kind, channels, split, *parts[:1])
        alike.setdefault(bounds, {}).setdefault(tuple(sorted(own)), []).append(device)
    for bounds, groups in alike.items():
        if sorted(itertools.chain(*groups)) != list(range(plan.micro_batches)) or len({*map(len, groups.values())}) > 1:
            raise ValueError(
                f"the plan {plan.name}: devices share the micro-batches of stage {s} so that its batch norm's sums "
                "cannot be taken over all of them; give batch_statistics 'local'"
            )
        for group in zip(*groups.values(), strict=True):
            yield allreduce(algorithm, group, (kind, s), bounds)


def _synchronised(plan, algorithm):
    """The plan with its steps in an order in which statistics can be synchronised. ValueError if there is none."""
    todo = [units for step in plan.steps for units in _halves(plan, _shared(plan), step)]
    steps, values, summed = [], dict.fromkeys(_added_to(todo)), set()
    while todo:
        done, todo = _what_can_be_done(todo, summed)
        for kind, s in [value for value in values if value not in {*_added_to(todo), *summed}]:
            done += together(*_sums(plan, kind, s, algorithm))
            summed.add((kind, s))
        if not done:
            raise ValueError(
                f"the plan {plan.name} of {plan.micro_batches} micro-batches cannot synchronise batch norm's "
                "statistics: it brings parameters for each micro-batch anew; take one for each device"
            )
        steps += done
    return plan._replace(steps=steps)


HALVES = {"F": "M", "B": "S"}
"""What comes before the sums, of what is done in two."""


def _halves(plan, stages, step):
    """A step as two: lists of (actions, the sums that they need, or None). Transfers of a value belong together."""
    moves, first, second = {}, [], []
    for action in step:
        if isinstance(action, Transfer):
            moves.setdefault(action.value, []).append(action)
        elif action.stage in stages and action.what in HALVES:
            first.append(([Compute(HALVES[action.what], *action[1:4])], None))
            second.append(([action], ("moments" if action.what == "F" else "sums", action.stage)))
        elif action.stage in stages and action.what != "update":
            raise ValueError(f"the plan {plan.name} cannot synchronise batch norm's statistics: it has I and W")
        else:
            first.append(([action], None))
    return [[(own, None) for own in moves.values()] + first, second]


def _added_to(todo):
    """The moments and sums to which what is to be done adds."""
    actions = itertools.chain(*(actions for units in todo for actions, _ in units))
    return [action.adds_to for action in actions if isinstance(action, Compute) and action.what in HALVES.values()]


def _what_can_be_done(todo, summed):
    """Steps of what can be done, in order, and what is left of each.

    Of what cannot be done yet it is noted what it reads and writes, (device, value): what comes later, and has to do
    with that, waits as well.
    """
    reads, writes, busy = set(), set(), set()  # of what waits; and the devices that have to compute it
    steps, rest = [], []
    for units in todo:
        now, later = [], []
        for actions, needed in units:
            own_reads, own_writes = (set().union(*each) for each in zip(*map(_touched, actions), strict=True))
            waits = (needed and needed not in summed) or own_reads & writes or own_writes & (reads | writes)
            is_brought = isinstance(actions[0], Transfer) and actions[0].value[0] == "params"
            if waits or (is_brought and busy & {action.destination for action in actions}):
                later.append((actions, needed))
                reads |= own_reads
                writes |= own_writes
                busy |= {action.device for action in actions if isinstance(action, Compute)}
            else:
                now += actions
        steps.append(now)
        rest.append(later)
    return list(filter(None, steps)), list(filter(None, rest))


def _touched(action):
    """What an action reads and writes, without moments and sums: two sets of (device, value)."""
    if isinstance(action, Transfer):
        return {(action.source, action.value)}, {(action.destination, action.target or action.value)}
    reads, makes, adds = uses_of(action)
    return tuple(
        {(action.device, value) for value in values if value[0] not in ("moments", "sums")}
        for values in (reads + adds, makes + adds)
    )
