"""Batch norm's statistics in a plan: over which images they are taken.

    local           over each micro-batch by itself; this is the default of plans
    aggregated      the same in training, but running statistics are over all images: moments are summed before updates
    synchronised    over all images, so that every plan computes the same as one device

A synchronised stage has one batch norm layer and no parameters after it; larger stages are cut (parts.py). Its F is
replaced by M, an allreduce of moments, and the rest of F; B is divided in the same way. The rest of F waits for the M
of all micro-batches, and so do all actions that need its result. All other actions continue. So a plan that takes one
micro-batch after the other through the stages becomes a plan that takes all micro-batches through one stage after the
other.

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
"""The images over which batch norm takes mean and variance.

local: each device's own images, in training and for the running statistics (the textbook).
aggregated: each device's own images in training, but all images for the running statistics (MATLAB's guide).
synchronised: all devices' images, so that k devices compute the same as one.
"""


def with_statistics(plan, kind, algorithm: str | Callable = "ring"):
    """The plan with batch norm's statistics of this ``kind``; ``algorithm``: the allreduce that sums them.

    Raises ValueError if the plan cannot have such statistics.
    """
    check_name("batch_statistics", kind, BATCH_STATISTICS)
    if kind == "local":
        return plan
    if kind == "synchronised":
        return _synchronised(in_parts(plan, _shared(plan)), algorithm)
    sums = together(*(steps for s in _shared(plan) for steps in _sums(plan, "moments", s, algorithm)))
    updates = (number for number, step in enumerate(plan.steps) if any(action[0] == "update" for action in step))
    first = next(updates, len(plan.steps))  # every F is done before it
    return plan._replace(steps=[*plan.steps[:first], *sums, *plan.steps[first:]])


def _shared(plan):
    """The stages with batch norm, if the plan has several micro-batches; otherwise none."""
    return [s for s, stage in enumerate(plan.stages) if norms_of(stage, plan.network) and plan.micro_batches > 1]


def _sums(plan, kind, s, algorithm):
    """Allreduces of a stage's moments or sums over devices with different micro-batches and the same units."""
    channels, split = norms_of(plan.stages[s], plan.network), splits_of(plan.network, plan.stages)[s]
    micro_batches = {}
    for action in itertools.chain(*plan.steps):
        if isinstance(action, Compute) and action.what in "FM" and action.stage == s:
            micro_batches.setdefault(action.device, set()).add(action.micro_batch)
    alike = {}  # {part: {micro-batches: devices}}
    for device, own in micro_batches.items():
        parts = [part.params for part in plan.layout[device] if part.stage == s]
        bounds = norm_part(kind, channels, split, *parts[:1])
        alike.setdefault(bounds, {}).setdefault(tuple(sorted(own)), []).append(device)
    for bounds, groups in alike.items():
        if sorted(itertools.chain(*groups)) != list(range(plan.micro_batches)) or len({*map(len, groups.values())}) > 1:
            raise ValueError(
                f"the plan {plan.name}: devices divide the micro-batches of stage {s} such that batch norm's sums over "
                "all of them are impossible; give batch_statistics 'local'"
            )
        for group in zip(*groups.values(), strict=True):
            yield allreduce(algorithm, group, (kind, s), bounds)


def _synchronised(plan, algorithm):
    """The plan with its steps in an order that allows synchronised statistics. ValueError if there is none."""
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
                "statistics: it gathers parameters again for each micro-batch; use one micro-batch for each device"
            )
        steps += done
    return plan._replace(steps=steps)


HALVES = {"F": "M", "B": "S"}
"""For each action that is divided in two, its first half, which comes before the sums."""


def _halves(plan, stages, step):
    """A step as two: lists of (actions, the sums that they need, or None). A value's transfers stay together."""
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
    """The moments and sums to which the remaining actions add."""
    actions = itertools.chain(*(actions for units in todo for actions, _ in units))
    return [action.adds_to for action in actions if isinstance(action, Compute) and action.what in HALVES.values()]


def _what_can_be_done(todo, summed):
    """The steps with the actions that can be done now, and the steps with the remaining actions.

    For each action that must wait, we note the values that it reads and writes, as (device, value): later actions that
    touch the same values wait as well.
    """
    reads, writes, busy = set(), set(), set()  # of waiting actions, and their devices
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
    """The values that an action reads and those that it writes, without moments and sums: sets of (device, value)."""
    if isinstance(action, Transfer):
        return {(action.source, action.value)}, {(action.destination, action.target or action.value)}
    reads, makes, adds = uses_of(action)
    return tuple(
        {(action.device, value) for value in values if value[0] not in ("moments", "sums")}
        for values in (reads + adds, makes + adds)
    )
