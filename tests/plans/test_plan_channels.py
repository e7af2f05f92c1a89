"""Stages split by channels: their numbering, their exchanges, and what is wrong."""

import pytest
from conftest import long
from one_device import DEEP, ONE_UNIT, PLAIN
from test_plans import check_mutants, with_part, with_steps

from d2lmgpu.collectives import Transfer
from d2lmgpu.networks import LENET, Dense, Flatten, ReLU, sequential
from d2lmgpu.plans import PLANS, Compute, copies_of, prove

TINY = sequential((1, 1, 4), Flatten(), Dense(3), ReLU(), Dense(2))
NETWORKS = {"lenet": LENET, "deep": DEEP, "plain": PLAIN, "tiny": TINY, "one unit": ONE_UNIT}


@pytest.mark.parametrize("copies, k, network", [(1, 4, "tiny"), *long((2, 2, "lenet"))])
def test_what_is_removed_or_doubled_is_found(copies, k, network):
    check_mutants(copies_of("channels", copies, k, 1, network=NETWORKS[network]))


def test_each_device_holds_its_part_to_the_element():
    for k in (1, 2, 3, 8):
        between = prove(PLANS["channels"](k), 9, "adam").between
        assert sum(between) == 4 * 3 * 129_068
        assert max(between) - min(between) <= 4 * 3 * (10 + 501 + 1251 + 801 + 129 + 128 + 10)  # a unit of each layer


def exchanged_by(plan, value, *schedule):
    """The plan with another schedule of these transfers."""
    about = [i for i, step in enumerate(plan.steps) if isinstance(step[0], Transfer) and step[0].value == value]
    schedule = [[t._replace(value=value) for t in step] for step in schedule]
    return plan._replace(steps=[*plan.steps[: about[0]], *schedule, *plan.steps[about[-1] + 1 :]])


def wrong_plans():
    """What is said, and the plan."""
    parts = PLANS["channels"](2)
    y, dy = ("y", 0, 0), ("dy", 2, 0)
    yield "F of stage 1, .*: y of stage 0, .*, units 10 to 20, is not there", exchanged_by(parts, y)
    yield "B of stage 2, .*: dy of stage 2, .*, units 0 to 64: a share is missing", exchanged_by(parts, dy)
    again = [*parts.steps[:3], parts.steps[1], *parts.steps[3:]]
    yield "step 4: .* device 0 has computed with y of stage 0", parts._replace(steps=again)
    both = Transfer(1, 0, 0, 128, "add"), Transfer(0, 1, 0, 128, "add")
    yield "B of stage 2, .*: dy of stage 2.*: a share was added twice", exchanged_by(parts, dy, both, both)
    yield "device 0, stage 1: params .* should be whole", with_part(parts, 0, 1, params=(0, 7), state=(0, 7))
    empty = dict.fromkeys(("params", "state"), (25050, 25050))
    yield "element 12525 of the parameters of stage 1 is held by no device", with_part(parts, 1, 1, **empty)
    idle = with_steps(parts._replace(layout=(*parts.layout, ())), 0, [*parts.steps[0], Compute("F", 2, 0, 0)])
    yield "device 2, F of stage 0, micro-batch 0: the layout gives this device no part of this stage", idle
    first = parts.stages[0]._replace(split="rows")
    yield "split is 'rows'; choose from", parts._replace(stages=(first, *parts.stages[1:]))
    both = parts.stages[0]._replace(stop=parts.stages[1].stop, params=200 + 25050)
    yield "stage 0: split by columns, it should have one", parts._replace(stages=(both, *parts.stages[2:]))


@pytest.mark.parametrize("said, plan", wrong_plans())
def test_wrong_plans(said, plan):
    with pytest.raises(ValueError, match=said):
        prove(plan)
