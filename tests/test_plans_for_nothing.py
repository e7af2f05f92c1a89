"""Plans that move or make what nobody uses, keep what is not theirs, or have no right result: each is refused."""

import pytest
from test_plans import changed

from d2lmgpu.collectives import Transfer
from d2lmgpu.language.plan import all_of
from d2lmgpu.networks import Dense, Flatten, sequential
from d2lmgpu.plans import PLANS, Action, Part, PlanError, compose, prove

SMALL = sequential((1, 1, 2), Flatten(), Dense(3), Dense(2))


def at(plan, device, what, value=None, last=False):
    """Where in the device's list such an action is."""
    found = [i for i, a in enumerate(plan.actions[device]) if (a.what, a.value) == (what, value)]
    return found[-1 if last else 0]


def with_actions(plan, device, where, *actions):
    """The plan with more actions on a device, before its action number ``where``."""
    todo = plan.actions[device]
    return changed(plan, device, (*todo[:where], *actions, *todo[where:]))


def gathered_for_nothing():
    plan = PLANS["zero3"](2, 1, network=SMALL)
    gather = plan.actions[0][at(plan, 0, "collective", "params")]
    for device in 0, 1:
        own = plan.layout[device][gather.stage].params
        plan = with_actions(plan, device, 0, gather, Action("free", gather.stage, value="params", part=own))
    return plan


def never_freed():
    plan = PLANS["zero3"](2, 1, network=SMALL)
    gather = plan.actions[0][at(plan, 0, "collective", "params")]
    return plan._replace(actions=tuple((*todo, gather) for todo in plan.actions))


def updated_beside_the_whole():
    plan = PLANS["zero3"](2, 1, network=SMALL)
    where = at(plan, 1, "free", "params", last=True)
    return changed(plan, 1, plan.actions[1][:where] + plan.actions[1][where + 1 :])


def gradients_for_nothing():
    """Device 1 computes them, too, and gets the new parameters from device 0."""
    plan = compose([[("F", 0, 0), ("B", 0, 0)]], 1, SMALL)
    (todo,), whole = plan.actions, all_of(plan.stages[0])
    schedule = ((Transfer(0, 1, *whole, "copy"),),)
    copy = Action("collective", 0, value="params", group=(0, 1), schedule=schedule)
    other = *todo[:3], Action("free", 0, value="grads"), copy
    return plan._replace(actions=((*todo, copy), other), layout=(*plan.layout, (Part(0, whole, (0, 0), (0, 0)),)))


def another_part_than_the_whole_has():
    """Device 1 gathers new parameters over its part, and would keep the old ones."""
    plan = compose([[("F", 0, 0), ("B", 0, 0)]], 1, SMALL)
    (todo,), whole = plan.actions, all_of(plan.stages[0])
    schedule = ((Transfer(0, 1, *whole, "copy"),),)
    copy = Action("collective", 0, value="params", group=(0, 1), schedule=schedule)
    nothing = Action("collective", 0, value="grads", group=(0, 1))
    free = Action("free", 0, value="grads")
    other = copy, *todo[:3], Action("free", 0, value="params", part=(0, 2)), nothing, free
    layout = *plan.layout, (Part(0, (0, 2), (0, 0), (0, 0)),)
    return plan._replace(actions=((*todo[:4], copy, nothing, free), other), layout=layout)


def half_updated():
    plan = PLANS["zero1"](2, 1, network=SMALL)
    return with_actions(plan, 0, at(plan, 0, "update") + 1, Action("F", 0, 0))


def kept_whole():
    plan = PLANS["data"](1, 1, network=SMALL)
    return with_actions(plan, 0, 1, Action("free", 0, value="params", part=all_of(plan.stages[0])))


def update_of_nothing():
    plan = PLANS["zero1"](5, 1, network=sequential((1, 1, 1), Flatten(), Dense(2)))
    return with_actions(plan, 4, at(plan, 4, "collective", "params"), Action("update", 0))


def parameters_that_are_gone():
    plan = PLANS["data"](1, 1, network=SMALL)
    gone = Action("free", 0, value="params"), Action("collective", 0, value="params", group=(0,))
    return with_actions(plan, 0, at(plan, 0, "update"), *gone)


def units_for_nothing():
    """After what needs a part of y alone, and before y is freed."""
    plan, gather = PLANS["channel-pairs"](2, 1, network=SMALL), PLANS["channels"](2, 1, network=SMALL)
    gather = gather.actions[0][at(gather, 0, "collective", "y")]
    for device in 0, 1:
        plan = with_actions(plan, device, at(plan, device, "free", "y"), gather)
    return plan


def added_parameters():
    plan = PLANS["zero1"](2, 1, network=SMALL)

    def added(action):
        if (action.what, action.value) != ("collective", "params"):
            return action
        return action._replace(schedule=tuple(tuple(t._replace(op="add") for t in step) for step in action.schedule))

    return plan._replace(actions=tuple(tuple(map(added, todo)) for todo in plan.actions))


WRONG = {
    gathered_for_nothing: "free of params of stage 0.*: the params have not been used: they came",
    gradients_for_nothing: "device 1, .*free of grads of stage 0.*: the grads have not been used",
    units_for_nothing: "free of y of stage 0.*: it has not been used: it was made for nothing",
    another_part_than_the_whole_has: "device 1, .*the part that it keeps is not the same as in the whole",
    never_freed: "at the end: parameters of stage 0 that were gathered are never freed",
    updated_beside_the_whole: "device 1.*update of stage .*the gathered ones are not freed",
    half_updated: "F of stage 0.*: some of the stage's parameters are updated and some are not",
    kept_whole: "free of params of stage 0.*: .* is not the part that the layout gives this device",
    update_of_nothing: "device 4, .*: the layout gives this device nothing of this stage to update",
    parameters_that_are_gone: "update of stage 0.*: parameters that it updates are not there",
    added_parameters: "collective of params.*: step 1: parameters are copied, not added",
}


@pytest.mark.parametrize("make", WRONG)
def test_it_is_refused(make):
    with pytest.raises(PlanError, match=WRONG[make]):
        prove(make())
