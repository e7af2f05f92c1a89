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
from collections import Counter
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
        plan = in_parts(plan, {s for s in range(len(plan.stages)) if _is_shared(plan, s)})
        return _Synchronised(plan, algorithm).plan()
    stages = [s for s in range(len(plan.stages)) if _is_shared(plan, s)]
    sums = together(*(steps for s in stages for steps in _sums(plan, "moments", s, algorithm)))
    updates = (number for number, step in enumerate(plan.steps) if any(action[0] == "update" for action in step))
    first = next(updates, len(plan.steps))  # before it every F is done
    return plan._replace(steps=[*plan.steps[:first], *sums, *plan.steps[first:]])


def _is_shared(plan, s):
    """Whether a stage has batch norm, and not one device all images."""
    return bool(norms_of(plan.stages[s], plan.network)) and plan.micro_batches > 1


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


class _Synchronised:
    """The steps of a plan in an order in which statistics can be synchronised.

    Of what cannot be done yet it knows what it reads and writes, (device, value): what comes later, and has to do with
    that, waits as well.
    """

    def __init__(self, plan, algorithm):
        self.old, self.algorithm, self.steps = plan, algorithm, []
        self.stages = {s for s in range(len(plan.stages)) if _is_shared(plan, s)}
        self.todo = [units for step in plan.steps for units in self._halves(step)]
        firsts = [action for actions, _ in itertools.chain(*self.todo) for action in actions if _is_first_half(action)]
        self.left = Counter(action.adds_to for action in firsts)  # by moments and sums: M's and S's that are not done
        self.summed = set()

    def plan(self):
        """The plan. Raises ValueError if there is no such order."""
        while self.todo:
            before = len(self.steps)
            self.todo = [units for units in self._pass() if units]
            for kind, s in [value for value, count in self.left.items() if not count and value not in self.summed]:
                self.steps += together(*_sums(self.old, kind, s, self.algorithm))
                self.summed.add((kind, s))
            if len(self.steps) == before and self.todo:
                raise ValueError(
                    f"the plan {self.old.name} of {self.old.micro_batches} micro-batches cannot synchronise batch "
                    "norm's statistics: it brings parameters for each micro-batch anew; take one for each device"
                )
        return self.old._replace(steps=self.steps)

    def _halves(self, step):
        """A step as two: lists of (actions, the sums that they need, or None). Transfers of a value belong together."""
        moves, first, second = {}, [], []
        for action in step:
            if isinstance(action, Transfer):
                moves.setdefault(action.value, []).append(action)
            elif action.stage in self.stages and action.what in HALVES:
                first.append(([Compute(HALVES[action.what], *action[1:4])], None))
                second.append(([action], ("moments" if action.what == "F" else "sums", action.stage)))
            elif action.stage in self.stages and action.what != "update":
                raise ValueError(f"the plan {self.old.name} cannot synchronise batch norm's statistics: it has I and W")
            else:
                first.append(([action], None))
        return [[(own, None) for own in moves.values()] + first, second]

    def _pass(self):
        """Do what can be done, in order; yields what is left of each step."""
        reads, writes, busy = set(), set(), set()  # of what waits; and the devices that have to compute it
        for units in self.todo:
            now, later = [], []
            for actions, needed in units:
                own_reads, own_writes = (set().union(*each) for each in zip(*map(_touched, actions), strict=True))
                waits = (needed and needed not in self.summed) or own_reads & writes or own_writes & (reads | writes)
                is_brought = isinstance(actions[0], Transfer) and actions[0].value[0] == "params"
                if waits or (is_brought and busy & {action.destination for action in actions}):
                    later.append((actions, needed))
                    reads |= own_reads
                    writes |= own_writes
                    busy |= {action.device for action in actions if isinstance(action, Compute)}
                else:
                    now += actions
            self.left.subtract(action.adds_to for action in now if _is_first_half(action))
            if now:
                self.steps.append(now)
            yield later


HALVES = {"F": "M", "B": "S"}
"""What comes before the sums, of what is done in two."""


def _is_first_half(action):
    return isinstance(action, Compute) and action.what in HALVES.values()


def _touched(action):
    """What an action reads and writes, without moments and sums: two sets of (device, value)."""
    if isinstance(action, Transfer):
        return {(action.source, action.value)}, {(action.destination, action.target or action.value)}
    reads, makes, adds = uses_of(action)
    return tuple(
        {(action.device, value) for value in values if value[0] not in ("moments", "sums")}
        for values in (reads + adds, makes + adds)
    )
