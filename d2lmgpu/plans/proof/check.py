"""Check the form of a plan: all its actions must use stages, micro-batches, devices and values that exist.

Whether a plan does what it should is another question, which prove.py answers.
"""

import functools

from ...base.arguments import as_whole, check_list, check_whole, scalar, shown
from ...collectives.columns import InvalidStep, check_columns, columns_of
from ...networks.checks import check_network
from ..plan import COMPUTES, MAX_MICRO_BATCHES, MAX_PLAN_DEVICES, Compute, Part, Plan, PlanError, Stage, stage_of
from ..stages import splits_of, units_of_outputs


def check_stages(stages, network):
    """Return the stages as a tuple. Raises ValueError unless each is a `Stage` and together they form a `Network`."""
    check_network(network)
    stages = tuple(check_list("stages", stages, of="stages"))
    if not stages or not all(isinstance(stage, Stage) for stage in stages):
        raise ValueError(f"stages are {shown(stages)}; give at least one Stage(first, stop, params), as `cut` does")
    ends = [0, *(stage.stop for stage in stages)]
    loss_alone = len(stages) > 1 and stages[-1].first == stages[-1].stop
    distinct = ends[:-1] if loss_alone else ends
    if [stage.first for stage in stages] != ends[:-1] or ends[-1] != len(network) or distinct != sorted(set(distinct)):
        raise ValueError(f"the stages {shown(stages)} do not make up the {len(network)} layers of the network")
    for number, stage in enumerate(stages):
        if stage.split not in (None, "columns"):
            raise ValueError(f"stage {number}: split is {shown(stage.split)}; choose from None, columns")
        if stage != stage_of(network, stage.first, stage.stop, stage.split):
            raise ValueError(f"stage {number} has other parameters than {stage}")
    splits_of(network, stages)
    return stages


def check_plan(plan):
    """Return the plan's steps as pairs (computations, list of `TransferColumns`).

    Raises ValueError unless it is a `Plan` with valid actions, in which no device does two computations in a step.
    """
    if not isinstance(plan, Plan):
        raise ValueError(f"plan is {shown(plan)}; give one, such as PLANS['gpipe'](4, 8)")
    check_stages(plan.stages, plan.network)
    check_whole("the plan's micro_batches", plan.micro_batches, most=MAX_MICRO_BATCHES)
    layout = check_list("the plan's layout", plan.layout, of="lists of parts, one for each device")
    check_whole("the number of the plan's devices", len(layout), most=MAX_PLAN_DEVICES)
    for device, parts in enumerate(layout):
        _check_parts(check_list(f"the layout of device {device}", parts, of="parts"), device, plan)
    columns = []
    for number, step in enumerate(check_list("the plan's steps", plan.steps, of="lists of actions"), 1):
        step = check_list(f"step {number}", step, of="Transfer and Compute")
        computes = [Compute(*map(scalar, action)) for action in step if type(action) is Compute]
        try:
            moves = columns_of([action for action in step if type(action) is not Compute])
            check_columns(moves, plan.k, functools.partial(size_of, plan))
            for compute in computes:
                _check_compute(compute, plan)
            if len({compute.device for compute in computes}) < len(computes):
                raise InvalidStep("a device computes two things at the same time")
        except ValueError as error:
            raise PlanError(f"step {number}: {error}") from None
        columns.append((computes, moves))
    return columns


def size_of(plan, value):
    """The size of a value that can be transferred, in elements, or in units for y and dy; None for anything else."""
    kind, *numbers = value if isinstance(value, tuple) and value else (None,)
    count = {"params": (1,), "grads": (1, 2), "y": (2,), "dy": (2,)}.get(kind, ())
    if len(numbers) not in count or not all(map(_is_index, numbers, (len(plan.stages), plan.micro_batches))):
        return None
    s = numbers[0]
    if kind in ("params", "grads"):
        return plan.stages[s].params
    return units_of_outputs(plan.network, plan.stages)[s] or 1


def _check_parts(parts, device, plan):
    where, splits = f"the layout of device {device}", splits_of(plan.network, plan.stages)
    for part in parts:
        if not isinstance(part, Part) or not _is_index(part.stage, len(plan.stages)):
            raise PlanError(f"{where}: {shown(part)} is no Part(stage, params, state) of a stage")
        (s, params, state), n, split = part, plan.stages[part.stage].params, splits[part.stage]
        if not (_are_bounds(params, n) and _are_bounds(state, n) and params[0] <= state[0] <= state[1] <= params[1]):
            raise PlanError(f"{where}, {shown(tuple(part))}: params should be within 0 … {n}, and state within params")
        if split is not None and any(edge % split.size for edge in params):
            raise PlanError(f"{where}, stage {s}: params {params} should be whole units, of {split.size} elements each")
    if len({part.stage for part in parts}) < len(parts):
        raise PlanError(f"{where} lists a stage twice")


def _check_compute(compute, plan):
    what, device, s, m, into = compute
    if what not in (*COMPUTES, "update"):
        raise InvalidStep(f"{shown(tuple(compute))}: choose from {', '.join(COMPUTES)}, update")
    exists = _is_index(device, plan.k) and _is_index(s, len(plan.stages))
    if not exists or not (m is None if what == "update" else _is_index(m, plan.micro_batches)):
        raise InvalidStep(
            f"{compute}: there are the devices 0 … {plan.k - 1}, the stages 0 … {len(plan.stages) - 1} and, but for an "
            f"update, the micro-batches 0 … {plan.micro_batches - 1}"
        )
    is_round = isinstance(into, tuple) and len(into) == 3 and into[:2] == ("grads", s)
    if into is not None and (what not in "BW" or not is_round or not _is_index(into[2], plan.micro_batches)):
        raise InvalidStep(f"{compute}: into {shown(into)}, but B and W add to ('grads', {s}) or ('grads', {s}, round)")


def _is_index(number, count):
    return as_whole(number) is not None and 0 <= number < count


def _are_bounds(bounds, n):
    pair = isinstance(bounds, tuple) and len(bounds) == 2 and all(_is_index(edge, n + 1) for edge in bounds)
    return pair and bounds[0] <= bounds[1]
