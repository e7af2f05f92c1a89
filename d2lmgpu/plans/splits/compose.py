"""Turn lists of computations into a whole plan: you list F and B in order, and `compose` adds everything else.

`compose` takes a list of ("F", stage, micro_batch), ("B", …), ("I", …) and ("W", …) for each device. Each device that
computes a stage holds the stage's parameters. `compose` adds these actions:

    copies of y and dy      just before they are needed, from the device that makes them
    allreduce and update    at the end, the last stage first

Each device does the next item on its list as soon as it can. Items that are done at the same time form one step.
"""

import itertools

from ...base.arguments import as_whole, check_list, check_name, check_whole, shown
from ...collectives import ALGORITHMS, find_algorithm
from ...collectives.actions import Transfer, place
from ...networks import LENET
from ..plan import COMPUTES, MAX_MICRO_BATCHES, Compute, Part, Plan, PlanError, full_range
from ..proof.check import check_stages
from ..stages import cut, units_of_outputs


def compose(computations, micro_batches, network=LENET, stages=None, name="composed", algorithm="ring"):
    """The `Plan` that does these ``computations``, a list of (what, stage, micro_batch) for each device.

    ``micro_batches``: the number of parts of the minibatch. ``stages``: from `cut`; by default as many as the
    computations name. ``algorithm``: the allreduce among the devices with the same stage, a name in
    `collectives.ALGORITHMS` or a function like those. It sums all gradients of the stage at once.

    Raises ValueError for invalid computations, and `PlanError`, a ValueError, if devices would wait for ever. Call
    `prove` to check that the plan is right.
    """
    computations = check_list("computations", computations, of="lists, one for each device")
    check_whole("the number of devices", len(computations))
    micro_batches = check_whole("micro_batches", micro_batches, most=MAX_MICRO_BATCHES)
    devices = [
        [_computation(short, device) for short in check_list(f"device {device}", todo, of="computations")]
        for device, todo in enumerate(computations)
    ]
    if stages is None:
        stages = cut(network, 1 + max((c.stage for todo in devices for c in todo), default=0))
    stages = check_stages(stages, network)
    # A computation of a stage that does not exist goes into the plan, and `prove` names it.
    held = [sorted({c.stage for c in todo if c.stage < len(stages)}) for todo in devices]
    layout = tuple(tuple(Part(s, full_range(stages[s]), full_range(stages[s])) for s in own) for own in held)
    steps = _in_steps(devices, units_of_outputs(network, stages))
    for s in reversed(range(len(stages))):
        holders = [i for i, own in enumerate(held) if s in own]
        steps += placed_allreduce(algorithm, holders, ("grads", s), full_range(stages[s]))
        steps.append([Compute("update", device, s) for device in holders])
    return Plan(name, network, stages, micro_batches, layout, steps)


def placed_allreduce(algorithm, group, value, bounds):
    """The schedule that sums elements (start, stop) of a value over a group of devices."""
    if not callable(algorithm):
        check_name("algorithm", algorithm, ALGORITHMS)
    start, stop = bounds
    return drop_empty(place(find_algorithm(algorithm)(len(group), stop - start), group, start, value))


def drop_empty(schedule):
    """The schedule without empty transfers and empty steps."""
    steps = ([t for t in step if t.start < t.stop] for step in schedule)
    return [step for step in steps if step]


def _in_steps(devices, units):
    """The steps in which devices do their lists of `Compute`; ``units``: how many units each stage's y has."""
    owners = {}  # for each y and dy: the first device that makes it
    for compute in itertools.chain(*devices):
        for value in compute.uses[1]:
            owners.setdefault(value, compute.device)
    todo, done, steps = [list(reversed(own)) for own in devices], set(), []
    while any(todo):
        first = [(own[-1], *_needed(own[-1], owners, len(units) - 1)) for own in todo if own]
        ready = [each for each in first if each[1] is None or each[1] in done]
        if not ready:
            raise PlanError(_deadlock(first))
        moves = [
            Transfer(source, compute.device, 0, units[value[1]] or 1, "copy", value)
            for compute, value, source in ready
            if value is not None
        ]
        computes = [compute for compute, *_ in ready]
        steps += [moves, computes] if moves else [computes]
        for compute in computes:
            todo[compute.device].pop()
            done.update(compute.uses[1])
    return steps


def _needed(compute, owners, last):
    """The y or dy that a computation needs from another device, and that device; or None, None.

    The proof checks that the computation's own device has made everything else that it needs.
    """
    what, device, s, m, _ = compute
    value = {"F": ("y", s - 1, m), "B": ("dy", s, m), "I": ("dy", s, m)}.get(what)
    if value is None or not 0 <= value[1] < last or owners.get(value) == device:
        return None, None
    if value not in owners:
        does = f"stage {s - 1} forward" if what == "F" else f"stage {s + 1} backward"
        raise PlanError(f"{compute}: no device does {does} for this micro-batch")
    return value, owners[value]


def _deadlock(first):
    """An error message about a circle of devices that wait for each other, or about a device that waits in vain.

    ``first``: for each device its next computation, the value that this needs, and the device that makes the value.
    """
    waiting = {compute.device: (compute, source) for compute, _, source in first}
    circle, device = [], first[0][0].device
    while device not in circle and device in waiting:
        circle.append(device)
        device = waiting[device][1]
    pairs = ["{}, waits for device {}".format(*waiting[d]) for d in circle]
    if device not in waiting:
        return f"{pairs[-1]} for ever, which has done everything on its list"
    return f"a deadlock: {'; '.join(pairs[circle.index(device) :])}"


def _computation(short, device):
    """The `Compute` for a tuple (what, stage, micro_batch)."""
    what, *numbers = check_list(f"device {device}: a computation", short, of="what, stage and micro-batch", length=3)
    whole = [*map(as_whole, numbers)]
    if not isinstance(what, str) or what not in COMPUTES or None in whole or min(whole) < 0:
        raise ValueError(f"device {device}: {shown(short)} is not a computation; write ('F', stage, micro_batch)")
    return Compute(str(what), device, *whole)
