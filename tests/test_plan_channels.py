"""Stages split by channels: their numbering, their exchanges, more devices than channels, and what is wrong."""

import itertools

import numpy as np
import pytest
from conftest import few, long
from test_plan_execution import CHANNELS as NAMES, NETWORKS, TINY, assert_memory
from test_plans import check_mutants, told, with_steps

import d2lmgpu as d2l
from d2lmgpu.collectives import Transfer
from d2lmgpu.collectives.network import full_switch
from d2lmgpu.language.plan import shapes_of
from d2lmgpu.language.split import numbered, splits_of, views
from d2lmgpu.networks import init_params
from d2lmgpu.plans import PLANS, Compute, PlanError, copies_of, execute, prove, simulate
from d2lmgpu.plans.channels import columns, pairs


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("cut", [columns, pairs])
def test_parts_are_numbered_unit_by_unit(cut, network, k, rng):
    network = NETWORKS[network]
    stages = cut(network)
    for stage, split in zip(stages, splits_of(network, stages), strict=True):
        if split is None:
            continue
        weight, bias = (rng.normal(size=shape) for shape in shapes_of(stage, network))
        flat = numbered([weight, bias], split, np)
        assert sorted(flat) == sorted([*weight.ravel(), *bias])
        parts, units = [split.part(k, i) for i in range(k)], []
        assert [start for start, _ in parts] == [0, *(stop for _, stop in parts[:-1])] and parts[-1][1] == stage.params
        for part in parts:
            own = views(flat[slice(*part)], split, None, part)
            a, b = split.units_of(part)
            units.append(b - a)
            outputs = weight if weight.ndim == 4 else weight.T
            if split.what == "columns":
                np.testing.assert_array_equal(own[0] if weight.ndim == 4 else own[0].T, outputs[a:b])
                np.testing.assert_array_equal(own[1], bias[a:b])
            else:
                each = outputs.shape[1] // split.units
                np.testing.assert_array_equal(own[0] if weight.ndim == 4 else own[0].T, outputs[:, a * each : b * each])
                has_biases = part[0] < part[1] == stage.params
                np.testing.assert_array_equal(own[1], bias if has_biases else np.zeros_like(bias))
            assert a == b or np.shares_memory(own[0], flat)  # so that an update of the flat array is one of these
        assert sum(units) == split.units and max(units) - min(units) <= 1


@pytest.mark.parametrize("copies, k, network", [(1, 4, "tiny"), *long((2, 2, "lenet"), (2, 4, "small"))])
@pytest.mark.parametrize("name", few(NAMES, "channels"))
def test_what_is_removed_or_doubled_is_found(name, copies, k, network):
    check_mutants(copies_of(name, copies, k, 1, network=NETWORKS[network]))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "copies, k, micro_batches, n", [(1, 5, 2, 2), (2, 2, 1, 9), *long((1, 8, 3, 1), (2, 3, 2, 29))]
)
@pytest.mark.parametrize("network", few(NETWORKS, "small"))
def test_memory_is_what_was_predicted(name, copies, k, micro_batches, n, network):
    assert_memory(copies_of(name, copies, k, micro_batches, network=NETWORKS[network]), n, "adam", np.float32)


def exchanges(plan):
    """What values are exchanged, once for each run of steps of transfers."""
    values = [step[0].value if isinstance(step[0], Transfer) else None for step in plan.steps]
    return [value[0] for before, value in itertools.pairwise([None, *values]) if value and value != before]


def test_pairs_exchange_half_as_often():
    counts = {name: (exchanges(PLANS[name](3)).count("y"), exchanges(PLANS[name](3)).count("dy")) for name in NAMES}
    assert counts == {"channels": (4, 3), "channel-pairs": (2, 1)}
    assert not any(exchanges(PLANS[name](1, 3)) for name in NAMES)


def test_each_device_holds_its_part_to_the_element():
    for name, k in itertools.product(NAMES, (1, 2, 3, 8)):
        between = prove(PLANS[name](k), 9, "adam").between
        assert sum(between) == 4 * 3 * 129_068
        assert max(between) - min(between) <= 4 * 3 * (10 + 501 + 1251 + 801 + 129 + 128 + 10)  # a unit of each layer


@pytest.mark.parametrize("name", NAMES)
def test_time_of_exchanges(name):
    """With computations that cost nothing there are the collectives alone, whose elements are units of all examples."""
    network, plan = full_switch(2, 1e6, latency=1e-3), PLANS[name](2)
    result = simulate(plan, network, costs={"F": 0, "B": 0}, batch_size=12)
    steps = {"channels": 7, "channel-pairs": 6}[name]  # a sum is two: collect, and send to all
    elements = {"channels": 2 * (20 * 169 + 800 + 128) + 10, "channel-pairs": 2 * (50 * 81 + 800 + 10)}[name]
    assert result.seconds == pytest.approx(1e-3 * steps + 4 * 12 * elements / 2 / 1e6)
    assert result.link_bytes[:2].tolist() == prove(plan, 12).sent


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
    parts, sums = PLANS["channels"](2), PLANS["channel-pairs"](2)
    y, dy, summed = ("y", 0, 0), ("dy", 2, 0), ("y", 1, 0)
    yield "F of stage 1, .*: y of stage 0, .*, units 10 to 20, is not there", exchanged_by(parts, y)
    yield "B of stage 2, .*: dy of stage 2, .*, units 0 to 64: a share is missing", exchanged_by(parts, dy)
    yield "F of stage 2, .*: y of stage 1, .*: a share is missing", exchanged_by(sums, summed)
    both = Transfer(1, 0, 0, 50, "add"), Transfer(0, 1, 0, 50, "add")
    yield "F of stage 2, .*: y of stage 1.*: a share was added twice", exchanged_by(sums, summed, both, both)
    yield "step 2: .*within the elements 0 … 20", exchanged_by(parts, y, [Transfer(1, 0, 0, 21, "copy")])
    yield (
        "device 0 does not have y of stage 0, .*, elements 0 to 20, to send",
        exchanged_by(parts, y, [Transfer(0, 1, 0, 20, "copy")]),
    )
    yield "device 0 has no such elements, to which", exchanged_by(parts, y, [Transfer(1, 0, 10, 20, "add")])
    yield "device 0, stage 1: params .* should be whole", with_part(parts, 0, 1, params=(0, 7), state=(0, 7))
    empty = dict.fromkeys(("params", "state"), (25050, 25050))
    yield "element 12525 of the parameters of stage 1 is held by no device", with_part(parts, 1, 1, **empty)
    nothing = parts._replace(layout=(parts.layout[0], parts.layout[1][1:]))
    yield "element 100 of the parameters of stage 0 is held by no device", nothing
    whole = with_part(parts, 0, 0, params=(0, 200), state=(0, 200))._replace(layout=(((parts.layout[0][0]),), ()))
    yield "held by no device", whole
    for split, said in ("diagonal", "split is 'diagonal'; choose from"), ("rows", "it should come after"):
        first = parts.stages[0]._replace(stop=1, split=split)
        yield said, parts._replace(stages=(first, parts.stages[1]._replace(first=1), *parts.stages[2:]))
    longer, shorter = sums.stages[1]._replace(stop=5), sums.stages[2]._replace(first=5)
    stages = sums.stages[0], longer, shorter, *sums.stages[3:]
    yield "stage 1: split by rows it should have one .*, at its end", sums._replace(stages=stages)


@pytest.mark.parametrize("said, plan", wrong_plans())
def test_wrong_plans(said, plan):
    with pytest.raises(ValueError, match=said):
        prove(plan)


def test_devices_with_different_parts_do_not_add_gradients():
    """The first copy's device 0 has nothing to do with the second copy's device 1."""
    plan = copies_of("channels", 2, 2)
    members = {0: 0, 2: 3, 1: 1, 3: 2}
    steps = [
        [
            t._replace(source=members[t.source], destination=members[t.destination])
            if isinstance(t, Transfer) and t.value == ("grads", 3)
            else t
            for t in step
        ]
        for step in plan.steps
    ]
    assert "does not have grads of stage 3" in told(plan._replace(steps=steps))


def test_a_device_without_a_part_does_not_compute():
    plan = PLANS["channels"](2, network=TINY)
    third = plan._replace(layout=(*plan.layout, ()))
    assert "device 2, F of stage 0, micro-batch 0: the layout gives this device no part of this stage" in told(
        with_steps(third, 0, [*plan.steps[0], Compute("F", 2, 0, 0)])
    )


def test_a_stage_that_is_computed_again_between_two_exchanges_of_its_units():
    plan = PLANS["channels"](4, 1, network=TINY)
    moves = [(n, step[0]) for n, step in enumerate(plan.steps) if isinstance(step[0], Transfer)]
    gathering = [n for n, action in moves if action.value == ("y", 1, 0)]
    again = [Compute("F", 1, 1, 0)]
    X, y = np.random.default_rng(0).random((5, *TINY.input_shape)), np.arange(5) % TINY.classes
    params = [param + 0.1 for param in init_params(1, init="he", dtype=np.float64, network=TINY)]
    expected = execute(plan, X, y, params, [d2l.cpu(i) for i in range(4)])
    tried = 0
    for number in gathering:
        other = plan._replace(steps=[*plan.steps[:number], again, *plan.steps[number:]])
        try:
            prove(other)
        except PlanError:  # parts that had come are gone
            continue
        loss, found = execute(other, X, y, params, [d2l.cpu(i) for i in range(4)])
        assert loss == expected[0] and all(map(np.array_equal, found, expected[1]))
        tried += 1
    assert tried


def test_units_for_nothing():
    """For what needs a part of y alone: before that they are wasted, and after that they would change what it keeps."""
    plan = PLANS["channel-pairs"](2, 1, network=TINY)
    gather = [[Transfer(0, 1, 0, 2, "copy", ("y", 0, 0)), Transfer(1, 0, 2, 3, "copy", ("y", 0, 0))]]
    wasted = prove(plan._replace(steps=[plan.steps[0], *gather, *plan.steps[1:]])).wasted
    assert wasted == ["step 2: y of stage 0, micro-batch 0 of device 0: nobody uses it"]
    late = told(plan._replace(steps=[*plan.steps[:2], *gather, *plan.steps[2:]]))
    assert late.endswith("device 1 has computed with y of stage 0, micro-batch 0 already")
