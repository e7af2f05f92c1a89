"""One reader of plans: prove that a plan is right, without computing.

The actions are done in an order in which they can happen (order.py). Instead of numbers, each device has an abstract
state (abstract_state.py): of each value, whether it is there and has been used; of each element of the parameters,
whether it is there and updated; of each element of the gradients, how often each micro-batch's contribution is in it.
A plan is right if whatever is used is there, each update finds every micro-batch's contribution once, and at the end
there is on each device what the layout says, updated, and nothing else.

On the way memory is counted (memory.py): what each device holds at most, and what that consists of.
"""

from dataclasses import dataclass, field

import numpy as np

from ..arguments import check_name, check_whole
from ..collectives.prove import check_form
from ..language.plan import OF_STAGES, PlanError, device_action
from ..language.split import units_of_outputs
from ..optimizers import OPTIMIZERS
from .abstract_state import AbstractState
from .abstract_values import UnitTables, Wrong
from .check import check_plan
from .exchanges import Exchanges
from .memory import Memory
from .order import at_once, order


@dataclass
class PlanProof:
    """What a proof found out about a right plan, in bytes, with an entry for each device.

    ``peak``: the most that it holds at a time; ``peak_of``: what that consists of, a dict of `memory.KINDS`.
    ``between``: what it holds between steps. ``sent``: what it sends.
    """

    peak: list
    peak_of: list = field(repr=False)
    between: list
    sent: list


def prove(plan, batch_size=256, optimizer="sgd", dtype="float32"):
    """Prove a plan right; returns a `PlanProof`, for a minibatch of ``batch_size`` examples.

    Raises PlanError, which names device, action and micro-batch, if it is not; ValueError for what is no plan.
    """
    check_plan(plan)
    check_minibatch(batch_size, optimizer, dtype)
    *_, (_, devices) = replay(plan, batch_size, optimizer, dtype)
    memories = [device.memory for device in devices]
    return PlanProof(
        [memory.peak for memory in memories],
        [memory.peak_of for memory in memories],
        [memory.between for memory in memories],
        [memory.sent for memory in memories],
    )


def check_minibatch(batch_size, optimizer, dtype):
    """Raise ValueError unless memory can be counted for these."""
    check_whole("batch_size", batch_size)
    check_name("optimizer", optimizer, OPTIMIZERS)
    check_name("dtype", dtype, ("float32", "float64"))


def replay(plan, batch_size=256, optimizer="sgd", dtype="float32", timing=at_once):
    """Yield None at the start, then for each action its `Event`; each with the `AbstractState` of all devices, a list.

    Raises PlanError where the plan is wrong, also after the last action.
    """
    cuts = _cuts(plan)
    states = OPTIMIZERS[optimizer].states
    units = UnitTables(plan, cuts)
    exchanges = Exchanges(units)
    memories = [Memory(plan, i, batch_size, states, np.dtype(dtype)) for i in range(plan.k)]
    devices = [AbstractState(plan, i, cuts, units, memory) for i, memory in enumerate(memories)]
    _check_layout(plan, devices)
    yield None, devices
    for event in order(plan, timing):
        try:
            if event.action.what == "collective":
                exchanges.do([devices[i] for i in event.devices], event.action)
            else:
                devices[event.devices[0]].do(event.action)
        except Wrong as wrong:
            where = device_action(event.devices[0], event.numbers[0], event.action)
            raise PlanError(f"{where}: {wrong}") from None
        for i in event.devices:
            devices[i].memory.look()
        yield event, devices
    for device in devices:
        if device.left():
            raise PlanError(f"device {device.number}, at the end: {device.left()}")


def _cuts(plan):
    """For each stage where its elements are cut, so that each part and each transfer is of whole pieces."""
    cuts, units = [{0, stage.params} for stage in plan.stages], units_of_outputs(plan.network, plan.stages)
    for parts in plan.layout:
        for part in parts:
            cuts[part.stage] |= {*part.params, *part.grads, *part.state}
    seen = set()
    for device, todo in enumerate(plan.actions):
        for number, action in enumerate(todo):
            if action.part is not None:
                cuts[action.stage] |= {*action.part}
            key = id(action.schedule), action.stage, action.value, len(action.group)
            if action.what == "collective" and key not in seen:
                seen.add(key)
                is_flat = action.value in OF_STAGES
                n = plan.stages[action.stage].params if is_flat else units[action.stage]
                try:
                    steps = check_form(action.schedule, len(action.group), n)
                except ValueError as error:
                    raise PlanError(f"{device_action(device, number, action)}: {error}") from None
                cuts[action.stage] |= {edge for step in steps for t in step for edge in (t.start, t.stop) if is_flat}
    return [sorted(edges) for edges in cuts]


def _check_layout(plan, devices):
    """Raise PlanError unless each element is held by some device, and updated by some device."""
    for number, parts in enumerate(plan.layout):
        if len({part.stage for part in parts}) < len(parts):
            raise PlanError(f"the layout of device {number} lists a stage twice")
    for s in range(len(plan.stages)):
        for name in ("params", "state"):
            there = np.zeros(len(devices[0].cuts[s]) - 1, bool)
            for device in devices:
                if s in device.parts:
                    there[device.piece(s, getattr(device.parts[s], name))] = True
            if not there.all():
                start = devices[0].cuts[s][int(np.argmin(there))]
                what = {"params": "held", "state": "updated"}[name]
                raise PlanError(f"the layout: element {start} of the parameters of stage {s} is {what} by no device")
