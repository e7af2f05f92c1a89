"""What is a plan, and what is none: every action's fields are what its kind needs, and exist.

Whether a plan does what it should is another question, which prove.py answers.
"""

from ..arguments import check_list, check_whole, shown
from ..language.plan import (
    ACTIONS,
    COMPUTES,
    MOST_DEVICES,
    MOST_MICRO_BATCHES,
    MOVES,
    OF_MICRO_BATCHES,
    OF_STAGES,
    Action,
    Part,
    Plan,
    PlanError,
    Stage,
    device_action,
    stage_of,
)
from ..language.split import splits_of
from ..networks import Network


def check_stages(stages, network):
    """The stages as a tuple. Raises ValueError unless each is a `Stage`, and together they make up the network."""
    stages = tuple(check_list("stages", stages, of="stages"))
    if not stages or not all(isinstance(stage, Stage) for stage in stages):
        raise ValueError(f"stages are {shown(stages)}; give at least one Stage(first, stop, params), as `cut` does")
    ends = [0, *(stage.stop for stage in stages)]
    loss_alone = len(stages) > 1 and stages[-1].first == stages[-1].stop
    distinct = ends[:-1] if loss_alone else ends
    if [stage.first for stage in stages] != ends[:-1] or ends[-1] != len(network) or distinct != sorted(set(distinct)):
        raise ValueError(f"the stages {shown(stages)} do not make up the {len(network)} layers of the network")
    for number, stage in enumerate(stages):
        if stage.split not in (None, "columns", "rows"):
            raise ValueError(f"stage {number}: split is {shown(stage.split)}; choose from None, columns, rows")
        if stage != stage_of(network, stage.first, stage.stop, stage.split):
            raise ValueError(f"stage {number} has other parameters than {stage}")
    splits_of(network, stages)
    return stages


def check_plan(plan):
    """Raise ValueError unless it is a `Plan` whose every action is one: names, devices, stages and numbers exist."""
    if not isinstance(plan, Plan):
        raise ValueError(f"plan is {shown(plan)}; give one, such as PLANS['gpipe'](4, 8)")
    if not isinstance(plan.network, Network):
        raise ValueError(f"the plan's network is {shown(plan.network)}; it should be what networks.sequential makes")
    stages = check_stages(plan.stages, plan.network)
    check_whole("the plan's micro_batches", plan.micro_batches, most=MOST_MICRO_BATCHES)
    actions = check_list("the plan's actions", plan.actions, of="lists of actions, one for each device")
    check_whole("the number of the plan's devices", len(actions), most=MOST_DEVICES)
    layout = check_list("the plan's layout", plan.layout, of="lists of parts", length=len(actions))
    splits = splits_of(plan.network, stages)
    for device, parts in enumerate(layout):
        for part in check_list(f"the layout of device {device}", parts, of="parts"):
            _check_part(part, device, stages, splits)
    groups = set()  # that are right
    for device, todo in enumerate(actions):
        for number, action in enumerate(check_list(f"the actions of device {device}", todo, of="actions")):
            _check_action(action, device, number, plan, groups)


def _check_part(part, device, stages, splits):
    if not isinstance(part, Part) or not _is_index(part.stage, len(stages)):
        raise PlanError(
            f"the layout of device {device}: {shown(part)} is no Part(stage, params, grads, state) of a stage"
        )
    n = stages[part.stage].params
    for name, bounds in zip(part._fields[1:], part[1:], strict=True):
        if not _are_bounds(bounds, n):
            raise PlanError(
                f"the layout of device {device}, stage {part.stage}: {name} {shown(bounds)} are not within 0 … {n}"
            )
    split = splits[part.stage]
    if split is not None and not (split.is_part(part.params) and part.grads == part.params):
        raise PlanError(
            f"the layout of device {device}, stage {part.stage}: params {part.params} and grads {part.grads} should be "
            f"the same, and whole ones of the {split.units} units of {split.size} elements"
        )


def _check_action(action, device, number, plan, groups):
    """Raise PlanError unless the action's fields are what its kind needs, and exist."""
    if not isinstance(action, Action) or action.what not in ACTIONS:
        raise PlanError(f"device {device}, action {number}: {shown(action)} is none; choose from {', '.join(ACTIONS)}")
    where = device_action(device, number, action)
    if not _is_index(action.stage, len(plan.stages)):
        raise PlanError(f"{where}: there are the stages 0 … {len(plan.stages) - 1}")
    of_micro_batch = action.what in COMPUTES or action.value in OF_MICRO_BATCHES
    if of_micro_batch and not _is_index(action.micro_batch, plan.micro_batches):
        raise PlanError(f"{where}: there are the micro-batches 0 … {plan.micro_batches - 1}")
    if not of_micro_batch and action.micro_batch is not None:
        raise PlanError(f"{where}: it is not of a micro-batch")
    if action.what in (*MOVES, "free") and action.value not in (*OF_MICRO_BATCHES, *OF_STAGES):
        raise PlanError(f"{where}: there are the values {', '.join((*OF_MICRO_BATCHES, *OF_STAGES))}")
    if action.what in ("send", "receive"):
        if not _is_index(action.peer, plan.k) or action.peer == device:
            raise PlanError(f"{where}: the peer should be another one of the devices 0 … {plan.k - 1}")
        if action.value not in ("y", "dy"):
            raise PlanError(f"{where}: y and dy are sent, no others")
    if action.what == "collective":
        members, k = tuple(check_list(f"{where}: group", action.group, of="devices")), plan.k
        if members not in groups and len(set(members)) == len(members) and all(_is_index(i, k) for i in members):
            groups.add(members)
        if members not in groups or device not in members:
            raise PlanError(f"{where}: the group should be different devices of 0 … {plan.k - 1}, this one among them")
        _check_collective(action, where, plan.stages)
    if action.part is not None:
        n = plan.stages[action.stage].params
        if action.what != "free" or action.value not in OF_STAGES or not _are_bounds(action.part, n):
            raise PlanError(f"{where}: part {shown(action.part)} is for free of params or grads, within 0 … {n}")


def _check_collective(action, where, stages):
    s, splits = action.stage, [stage.split for stage in stages]
    if action.value not in (*OF_STAGES, "y", "dy"):
        raise PlanError(f"{where}: collectives are of params and grads, and of y and dy where a stage is split")
    if action.value == "params" and splits[s]:
        raise PlanError(f"{where}: of a stage that is split parameters are not exchanged")
    if (action.value == "y" and not splits[s]) or (action.value == "dy" and not any(splits[s + 1 : s + 2])):
        raise PlanError(f"{where}: no device has a part or a share of it, but all")


def _is_index(number, count):
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number < count


def _are_bounds(bounds, n):
    pair = isinstance(bounds, tuple) and len(bounds) == 2 and all(_is_index(edge, n + 1) for edge in bounds)
    return pair and bounds[0] <= bounds[1]
