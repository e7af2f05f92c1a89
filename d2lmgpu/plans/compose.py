"""From what is computed to a whole plan: F and B in order are written down, and the rest is added.

`compose` takes for each device a list of ("F", stage, micro_batch), ("B", …), ("I", …) and ("W", …). A stage's
parameters are on each device that computes it. Added are:

    copies of y and dy      just before what needs them, from the device that makes them
    allreduce and update    at the end, the last stage first

Each device does the first thing on its list that it can: what all do at the same time is a step.
"""

import itertools
import math

from ..arguments import check_list, check_name, check_text, check_whole, shown
from ..collectives import ALGORITHMS, schedules_of
from ..language.actions import Transfer, place
from ..language.check import check_stages
from ..language.plan import COMPUTES, MOST_MICRO_BATCHES, Compute, Part, Plan, PlanError, all_of, shapes_of, uses_of
from ..language.split import units_of_outputs
from ..networks import LENET, check_network
from .cut import cut


def compose(computations, micro_batches, network=LENET, stages=None, name="composed", algorithm="ring", flat=True):
    """The `Plan` that does the ``computations``, for each device a list of (what, stage, micro_batch).

    ``micro_batches``: into how many the minibatch is cut. ``stages``: of `cut`; as many as the computations name,
    unless given. ``algorithm``: the allreduce among devices that have the same stage, of `collectives.ALGORITHMS` or a
    function like those: of all of its gradients at once, or without ``flat`` of each parameter's, one after the other.

    Raises ValueError for what are no computations, `PlanError`, which is one, where devices would wait for ever.
    Whether the plan is right, `prove` says.
    """
    check_network(network)
    check_text("name", name)
    if not callable(algorithm):
        check_name("algorithm", algorithm, ALGORITHMS)
    check_whole("micro_batches", micro_batches, most=MOST_MICRO_BATCHES)
    devices = [
        [_computation(short, device) for short in check_list(f"device {device}", todo, of="computations")]
        for device, todo in enumerate(check_list("computations", computations, of="lists, one for each device"))
    ]
    if stages is None:
        stages = cut(network, 1 + max((c.stage for todo in devices for c in todo), default=0))
    stages = check_stages(stages, network)
    holders = [[i for i, todo in enumerate(devices) if any(c.stage == s for c in todo)] for s in range(len(stages))]
    layout = tuple(
        tuple(Part(s, all_of(stage), all_of(stage)) for s, stage in enumerate(stages) if device in holders[s])
        for device in range(len(devices))
    )
    steps = _InSteps(devices, units_of_outputs(network, stages)).steps()
    for s in reversed(range(len(stages))):
        ends = itertools.accumulate(map(math.prod, shapes_of(stages[s], network)), initial=0)
        for bounds in [all_of(stages[s])] if flat else itertools.pairwise(ends):
            steps += allreduce(algorithm, holders[s], ("grads", s), bounds)
        steps.append([Compute("update", device, s) for device in holders[s]])
    return Plan(name, network, stages, micro_batches, layout, steps)


def allreduce(algorithm, group, value, bounds):
    """The schedule that sums elements (start, stop) of the value over a group of devices."""
    start, stop = bounds
    return without_nothing(place(schedules_of(algorithm)(len(group), stop - start), group, start, value))


def without_nothing(schedule):
    """A schedule without transfers of nothing, and steps without transfers."""
    steps = ([t for t in step if t.start < t.stop] for step in schedule)
    return [step for step in steps if step]


class _InSteps:
    """``devices``: for each a list of `Compute`; ``units``: of each stage's y."""

    def __init__(self, devices, units):
        self.todo, self.units, self.done = [list(reversed(todo)) for todo in devices], units, set()
        self.owners = {}  # of each y and dy the first device that makes it
        for compute in itertools.chain(*devices):
            _, makes, _ = uses_of(compute)
            for value in makes:
                self.owners.setdefault(value, compute.device)

    def steps(self):
        steps = []
        while any(self.todo):
            ready = [todo[-1] for todo in self.todo if todo and self._waits_for(todo[-1]) is None]
            if not ready:
                raise PlanError(self._deadlock())
            needed = [(compute.device, *self._needs(compute)) for compute in ready]
            moves = [
                Transfer(source, device, 0, self.units[value[1]] or 1, "copy", value)
                for device, value, source in needed
                if source != device
            ]
            steps += [moves] * bool(moves) + [ready]
            for compute in ready:
                self.todo[compute.device].pop()
                self.done.update(uses_of(compute)[1])
        return steps

    def _needs(self, compute):
        """The y or dy that another stage has to make before, and the device that does; or None, and its own device."""
        what, device, s, m, _ = compute
        value = {"F": ("y", s - 1, m), "B": ("dy", s, m), "I": ("dy", s, m)}.get(what)
        if value is None or not 0 <= value[1] < len(self.units) - 1:
            return None, device
        if value not in self.owners:
            does = f"stage {s - 1} forward" if what == "F" else f"stage {s + 1} backward"
            raise PlanError(f"{compute}: no device does {does} for this micro-batch")
        return value, self.owners[value]

    def _waits_for(self, compute):
        """The device for which it has to wait, or None. What its own device should have made, the proof looks after."""
        value, source = self._needs(compute)
        return None if source == compute.device or value in self.done else source

    def _deadlock(self):
        """A sentence about a circle of devices; or else about one that waits for what never comes."""
        waiting = {todo[-1].device: todo[-1] for todo in self.todo if todo}
        circle, device = [], next(iter(waiting))
        while device not in circle and device in waiting:
            circle.append(device)
            device = self._waits_for(waiting[device])
        pairs = [f"{waiting[d]}, waits for device {self._waits_for(waiting[d])}" for d in circle]
        if device not in waiting:
            return f"{pairs[-1]} for ever, which has done everything on its list"
        return f"a deadlock: {'; '.join(pairs[circle.index(device) :])}"


def _computation(short, device):
    """The `Compute` of (what, stage, micro_batch)."""
    short = tuple(check_list(f"device {device}: a computation", short, of="what, stage and micro-batch", length=3))
    numbers = all(isinstance(number, int) and number >= 0 for number in short[1:])
    if not isinstance(short[0], str) or short[0] not in COMPUTES or not numbers:
        raise ValueError(f"device {device}: {shown(short)} is no computation; write ('F', stage, micro_batch)")
    return Compute(short[0], device, *short[1:])
