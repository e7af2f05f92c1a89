"""Stages split by channels: their numbering, their exchanges, more devices than channels, and what is wrong."""

import itertools

import numpy as np
import pytest
from conftest import few, long
from test_plan_execution import SMALL, assert_memory, check_gradients
from test_plans import DEEP, check_mutants, told, with_steps

import d2lmgpu as d2l
from d2lmgpu.collectives import Transfer
from d2lmgpu.networks import LENET, Conv2d, Dense, Flatten, MaxPool2d, ReLU, sequential
from d2lmgpu.plans import PLANS, Compute, copies_of, prove
from d2lmgpu.plans.plan import shapes_of
from d2lmgpu.plans.splits.channels import columns
from d2lmgpu.plans.stages import numbered, splits_of, views

TINY = sequential((1, 1, 4), Flatten(), Dense(3), ReLU(), Dense(2))
NETWORKS = {"lenet": LENET, "deep": DEEP, "small": SMALL, "tiny": TINY}


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("network", NETWORKS)
def test_parts_are_numbered_unit_by_unit(network, k, rng):
    network = NETWORKS[network]
    stages = columns(network)
    for stage, split in zip(stages, splits_of(network, stages), strict=True):
        if split is None:
            continue
        weight, bias = (rng.normal(size=shape) for shape in shapes_of(stage, network))
        flat = numbered([weight, bias], split)
        assert sorted(flat) == sorted([*weight.ravel(), *bias])
        parts, units = [split.part(k, i) for i in range(k)], []
        assert [start for start, _ in parts] == [0, *(stop for _, stop in parts[:-1])] and parts[-1][1] == stage.params
        for part in parts:
            own = views(flat[slice(*part)], split, [weight.shape, bias.shape])
            a, b = split.units_of(part)
            units.append(b - a)
            outputs = weight if weight.ndim == 4 else weight.T
            np.testing.assert_array_equal(own[0] if weight.ndim == 4 else own[0].T, outputs[a:b])
            np.testing.assert_array_equal(own[1], bias[a:b])
            assert a == b or np.shares_memory(own[0], flat)  # so that an update of the flat array is one of these
        assert sum(units) == split.units and max(units) - min(units) <= 1


@pytest.mark.parametrize(
    "k, micro_batches, n",
    few(list(itertools.product([2, 3, 5, 8], [1, 3], [1, 2, 7])), (2, 3, 1), (5, 1, 2), (8, 3, 7)),
)
def test_fewer_examples_and_channels_than_devices(k, micro_batches, n):
    plan, devices = PLANS["channels"](k, micro_batches, network=SMALL), [d2l.cpu(i) for i in range(k)]
    check_gradients(plan, devices, n)
    check_gradients(plan, devices, n, np.float32)


@pytest.mark.parametrize("k", [1, 2, 3, *long(5, 8)])
@pytest.mark.parametrize("a, b, c", few([*itertools.product([1, 2, 3], repeat=3)], (1, 3, 2), (2, 1, 1), (3, 2, 1)))
def test_layers_of_one_unit(a, b, c, k):
    """Where columns have one output, device 0 alone has a share, and it is all."""
    for micro_batches in (1, 2):
        for network in (
            sequential((1, 2, 3), Flatten(), Dense(a), ReLU(), Dense(b), Dense(c), ReLU(), Dense(2)),
            sequential((2, 5, 6), Conv2d(a, 2), ReLU(), Conv2d(b, 2), MaxPool2d(), Flatten(), Dense(c), Dense(3)),
        ):
            plan = PLANS["channels"](k, micro_batches, network=network)
            check_gradients(plan, [d2l.cpu(i) for i in range(k)], 5)


@pytest.mark.parametrize("copies, k, network", [(1, 4, "tiny"), *long((2, 2, "lenet"), (2, 4, "small"))])
def test_what_is_removed_or_doubled_is_found(copies, k, network):
    check_mutants(copies_of("channels", copies, k, 1, network=NETWORKS[network]))


@pytest.mark.parametrize(
    "copies, k, micro_batches, n", [(1, 5, 2, 2), (2, 2, 1, 9), *long((1, 8, 3, 1), (2, 3, 2, 29))]
)
@pytest.mark.parametrize("network", few(NETWORKS, "small"))
def test_memory_is_what_was_predicted(copies, k, micro_batches, n, network):
    assert_memory(copies_of("channels", copies, k, micro_batches, network=NETWORKS[network]), n, "adam", np.float32)


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


def with_part(plan, device, stage, **fields):
    """The plan with another part of a stage in a device's layout."""
    own = tuple(part._replace(**fields) if part.stage == stage else part for part in plan.layout[device])
    return plan._replace(layout=(*plan.layout[:device], own, *plan.layout[device + 1 :]))


def wrong_plans():
    """What is said, and the plan."""
    parts = PLANS["channels"](2)
    y, dy = ("y", 0, 0), ("dy", 2, 0)
    yield "F of stage 1, .*: y of stage 0, .*, units 10 to 20, is not there", exchanged_by(parts, y)
    yield "B of stage 2, .*: dy of stage 2, .*, units 0 to 64: a share is missing", exchanged_by(parts, dy)
    both = Transfer(1, 0, 0, 128, "add"), Transfer(0, 1, 0, 128, "add")
    yield "B of stage 2, .*: dy of stage 2.*: a share was added twice", exchanged_by(parts, dy, both, both)
    yield (
        "device 0 does not have y of stage 0, .*, elements 0 to 20, to send",
        exchanged_by(parts, y, [Transfer(0, 1, 0, 20, "copy")]),
    )
    yield "device 0 has no such elements, to which", exchanged_by(parts, y, [Transfer(1, 0, 10, 20, "add")])
    yield "device 0, stage 1: params .* should be whole", with_part(parts, 0, 1, params=(0, 7), state=(0, 7))
    empty = dict.fromkeys(("params", "state"), (25050, 25050))
    yield "element 12525 of the parameters of stage 1 is held by no device", with_part(parts, 1, 1, **empty)
    first = parts.stages[0]._replace(split="rows")
    yield "split is 'rows'; choose from", parts._replace(stages=(first, *parts.stages[1:]))
    both = parts.stages[0]._replace(stop=parts.stages[1].stop, params=200 + 25050)
    yield "stage 0: split by columns, it should have one", parts._replace(stages=(both, *parts.stages[2:]))


@pytest.mark.parametrize("said, plan", wrong_plans())
def test_wrong_plans(said, plan):
    with pytest.raises(ValueError, match=said):
        prove(plan)


def test_a_device_without_a_part_does_not_compute():
    plan = PLANS["channels"](2, network=TINY)
    third = plan._replace(layout=(*plan.layout, ()))
    assert "device 2, F of stage 0, micro-batch 0: the layout gives this device no part of this stage" in told(
        with_steps(third, 0, [*plan.steps[0], Compute("F", 2, 0, 0)])
    )
