"""Plans that compute, move or keep what nobody uses: they are right, and the proof names what is wasted.

And what looks alike and is wrong: what is updated in part, or by a device that has nothing to update.
"""

import re

import pytest
from test_plans import told, with_steps

from d2lmgpu.collectives import Transfer
from d2lmgpu.networks import Dense, Flatten, sequential
from d2lmgpu.plans import PLANS, Compute, Part, compose, prove

SMALL = sequential((1, 1, 2), Flatten(), Dense(3), Dense(2))


def about(plan, kind):
    """The numbers of the steps, from 0, with a transfer of such values."""
    return [n for n, step in enumerate(plan.steps) if any(isinstance(a, Transfer) and a.value[0] == kind for a in step)]


def gathered_for_nothing():
    """Before the step that gathers them for what is computed."""
    plan = PLANS["zero3"](2, 1, network=SMALL)
    return plan._replace(steps=[plan.steps[0], *plan.steps])


def gathered_at_the_end():
    plan = PLANS["zero3"](2, 1, network=SMALL)
    return plan._replace(steps=[*plan.steps, plan.steps[0]])


def gradients_for_nothing():
    """Device 1 computes them, too, and gets the new parameters from device 0."""
    plan = compose([[("F", 0, 0), ("B", 0, 0)]], 1, SMALL)
    n, (forward, backward, update) = plan.stages[0].params, plan.steps
    both = [[*step, step[0]._replace(device=1)] for step in (forward, backward)]
    copy = [Transfer(0, 1, 0, n, "copy", ("params", 0))]
    return plan._replace(steps=[*both, update, copy], layout=(*plan.layout, (Part(0, (0, n), (0, 0)),)))


def a_forward_for_nothing():
    plan = PLANS["zero3"](1, 1, network=SMALL)
    return with_steps(plan, 0, plan.steps[0], plan.steps[0])


def copied_twice():
    plan = PLANS["layers"](2, 1, network=SMALL)
    number = about(plan, "y")[0]
    return with_steps(plan, number, plan.steps[number], plan.steps[number])


WASTED = {
    gathered_for_nothing: "step 2: device 0 sends device 1 elements 0 to 5 of params of stage 0: what is there already",
    gathered_at_the_end: "step 15: params of stage 0 of device 0: nobody uses it",
    gradients_for_nothing: "step 2: grads of stage 0 of device 1: nobody uses it",
    a_forward_for_nothing: (
        "step 2: device 0, F of stage 0, micro-batch 0: y of stage 0, micro-batch 0 is there already, and nobody has "
        "used it"
    ),
    copied_twice: "step 3: device 0 sends device 1 units 0 to 3 of y of stage 0, micro-batch 0: what is there already",
}


def update_of_nothing():
    plan = PLANS["zero1"](5, 1, network=sequential((1, 1, 1), Flatten(), Dense(2)))
    return plan._replace(steps=[*plan.steps, [Compute("update", 4, 0)]])


def another_part_than_the_whole_has():
    """Device 1 would keep old parameters."""
    plan = gradients_for_nothing()
    return plan._replace(steps=plan.steps[:-1])


def a_part_that_is_not_gathered():
    plan = PLANS["zero3"](2, 1, network=SMALL)
    return plan._replace(steps=[[plan.steps[0][0]], *plan.steps[1:]])


WRONG = {
    update_of_nothing: "device 4, .*: the layout gives this device nothing of this stage to update",
    another_part_than_the_whole_has: "at the end: device 1, elements 0 to 17 of params of stage 0: not updated",
    a_part_that_is_not_gathered: "step 2: device ., F of stage 0.*: params of stage 0, elements 5 to 9, are not there",
}


@pytest.mark.parametrize("make", WASTED)
def test_what_is_wasted_is_named(make):
    assert WASTED[make] in prove(make()).wasted


@pytest.mark.parametrize("make", WRONG)
def test_what_is_wrong_is_refused(make):
    assert re.search(WRONG[make], told(make()))
