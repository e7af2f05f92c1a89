"""From what is computed to a whole plan: F and B in order are written down, and the rest is added.

`compose` takes for each device a list of ("F", stage, micro_batch), ("B", …), ("I", …) and ("W", …). A stage's
parameters are on each device that computes it. Added are:

    receive    just before what needs the value
    send       just after what makes it
    free       of what was used up: after its last use; of what was sent: when the other will have received it
    collective, update, free of the gradients: at the end, the last stage first
"""

import bisect
import contextlib
import math

from ..arguments import check_list, check_name, check_text, check_whole, shown
from ..collectives import ALGORITHMS
from ..language.plan import COMPUTES, MOST_MICRO_BATCHES, Action, Part, Plan, PlanError, all_of
from ..networks import LENET, check_network
from .check import check_stages
from .cut import cut
from .order import order

COST = {"F": 1, "B": 2, "I": 1, "W": 1}
"""What is assumed of computations' times to decide when what was sent can be freed."""


def compose(computations, micro_batches, network=LENET, stages=None, name="composed", algorithm="ring"):
    """The `Plan` that does the ``computations``, for each device a list of (what, stage, micro_batch).

    ``micro_batches``: into how many the minibatch is cut. ``stages``: of `cut`; as many as the computations name,
    unless given. ``algorithm``: the allreduce among devices that have the same stage, of `collectives.ALGORITHMS`.

    Raises ValueError for what are no computations. Whether the plan is right, `prove` says.
    """
    check_network(network)
    check_text("name", name)
    check_name("algorithm", algorithm, ALGORITHMS)
    check_whole("micro_batches", micro_batches, most=MOST_MICRO_BATCHES)
    devices = [
        [_computation(short, device) for short in check_list(f"device {device}", todo, of="computations")]
        for device, todo in enumerate(check_list("computations", computations, of="lists, one for each device"))
    ]
    if stages is None:
        stages = cut(network, 1 + max((a.stage for todo in devices for a in todo), default=0))
    stages = check_stages(stages, network)
    owners = {}
    for device, todo in enumerate(devices):
        for action in todo:
            owners.setdefault((action.what == "F", action.stage, action.micro_batch), device)
    holders = [[i for i, todo in enumerate(devices) if any(a.stage == s for a in todo)] for s in range(len(stages))]
    layout = tuple(
        tuple(
            Part(s, all_of(stage), all_of(stage), all_of(stage))
            for s, stage in enumerate(stages)
            if device in holders[s]
        )
        for device in range(len(devices))
    )
    moved = [with_messages(todo, device, owners, len(stages)) for device, todo in enumerate(devices)]
    plan = _with_frees_of_sent(Plan(name, network, stages, micro_batches, layout, tuple(moved)))
    exchanges = [
        collective("grads", s, group, frozen(ALGORITHMS[algorithm](len(group), stage.params))) if group else []
        for s, (stage, group) in enumerate(zip(stages, holders, strict=True))
    ]
    actions = []
    for device, todo in enumerate(plan.actions):
        whole = list(todo)
        for s in reversed(range(len(stages))):
            if device in holders[s]:
                whole += [*exchanges[s], Action("update", s), Action("free", s, value="grads")]
        actions.append(tuple(whole))
    return plan._replace(actions=tuple(actions))


def collective(value, s, group, schedule, micro_batch=None):
    """A collective of a value of stage s over a ``group`` of devices, as a list of actions: none if nothing is sent."""
    return [Action("collective", s, micro_batch, value, group=tuple(group), schedule=schedule)] if schedule else []


def frozen(schedule):
    """A schedule as tuples, without transfers of nothing and steps without transfers."""
    steps = (tuple(t for t in step if t.size) for step in schedule)
    return tuple(step for step in steps if step)


def alone(device, computations, stages):
    """`with_messages` of a device that computes all stages, of ``computations`` as `compose` takes them."""
    todo = [Action(*short) for short in computations]
    return with_messages(todo, device, {(a.what == "F", a.stage, a.micro_batch): device for a in todo}, stages)


def with_messages(computations, device, owners, stages):
    """A device's computations with what they receive and send, and the frees of what is used up.

    ``owners``: the device that computes it, by (is it forward, stage, micro-batch).
    """
    todo = []
    for action in computations:
        what, s, m = action[:3]
        before = _owner(owners, what == "F", s - 1, m, action, device) if s > 0 else device
        after = _owner(owners, what == "F", s + 1, m, action, device) if s < stages - 1 else device
        if what == "F":
            todo += [Action("receive", s - 1, m, "y", before)] if before != device else []
            todo += [action] + ([Action("free", s - 1, m, "y")] if s > 0 else [])
            todo += [Action("send", s, m, "y", after)] if after != device else []
            continue
        if what in "BI":
            todo += [Action("receive", s, m, "dy", after)] if after != device else []
            todo += [action] + ([Action("free", s, m, "dy")] if s < stages - 1 else [])
            todo += [Action("send", s - 1, m, "dy", before)] if before != device else []
        else:
            todo += [action, Action("free", s, m, "delta")]
        if what in "BW":
            todo.append(Action("free", s, m, "cache"))
    return todo


def _owner(owners, is_forward, s, m, action, device):
    """The device that does the same for a neighbouring stage."""
    try:
        return owners[is_forward, s, m]
    except KeyError:
        way = "forward" if is_forward else "backward"
        raise PlanError(f"device {device}, {action}: no device does stage {s} {way} for this micro-batch") from None


def _with_frees_of_sent(plan):
    """The plan with a free of each value that was sent.

    In an order in which all can happen, if F takes 1, B 2, I and W 1: a free comes after the receipt and one more
    computation of the sender, so that a receiver that is a little late delays no other device.
    """
    times, received = [[] for _ in plan.actions], [{} for _ in plan.actions]
    with contextlib.suppress(PlanError):  # which `prove` will tell
        for time, event in enumerate(
            order(plan, lambda devices, action, start: (start + COST.get(action.what, 0),) * 2)
        ):
            times[event.devices[0]].append(time)
            if event.action.what == "receive":
                received[event.action.peer][event.action.key] = time
    each_device = zip(plan.actions, times, received, strict=True)
    return plan._replace(actions=tuple(_with_frees(*lists) for lists in each_device))


def _with_frees(todo, times, received):
    """A device's actions, done at ``times``, with frees of what it sent, which others ``received`` at a time each."""
    frees = {}  # by the number of the action after which they come
    for action in todo:
        if action.what == "send":
            begin = bisect.bisect(times, received.get(action.key, math.inf))
            after = next((i for i in range(begin, len(todo)) if todo[i].what in COMPUTES), len(todo) - 1)
            frees.setdefault(after, []).append(Action("free", action.stage, action.micro_batch, action.value))
    return [extended for i, action in enumerate(todo) for extended in (action, *frees.get(i, ()))]


def _computation(short, device):
    """The action of (what, stage, micro_batch)."""
    short = tuple(check_list(f"device {device}: a computation", short, of="what, stage and micro-batch", length=3))
    numbers = all(isinstance(number, int) and number >= 0 for number in short[1:])
    if not isinstance(short[0], str) or short[0] not in COMPUTES or not numbers:
        raise ValueError(f"device {device}: {shown(short)} is no computation; write ('F', stage, micro_batch)")
    return Action(*short)
