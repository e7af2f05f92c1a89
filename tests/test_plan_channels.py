"""Stages split by channels: their numbering, their exchanges, more devices than channels, and what is wrong."""

import itertools

import numpy as np
import pytest
from conftest import TOLERANCE, assert_close, few, long
from test_plan_execution import GRADIENTS, _PeakAccounting, batch, start
from test_plans import DEEP, changed, mutants

import d2lmgpu as d2l
from d2lmgpu.collectives import Transfer
from d2lmgpu.collectives.network import full_switch
from d2lmgpu.language.plan import shapes_of
from d2lmgpu.language.split import numbered, splits_of, views
from d2lmgpu.networks import LENET, Conv2d, Dense, Flatten, MaxPool2d, ReLU, sequential
from d2lmgpu.plans import PLANS, Action, Execution, PlanError, copies_of, execute, prove, simulate
from d2lmgpu.plans.channels import columns, pairs

NAMES = ("channels", "channel-pairs")
SMALL = sequential((2, 6, 5), Conv2d(3, 2), ReLU(), MaxPool2d(), Conv2d(5, 2), ReLU(), Flatten(), Dense(4), Dense(3))
"""Fewer channels than most numbers of devices."""
TINY = sequential((1, 1, 4), Flatten(), Dense(3), ReLU(), Dense(2))
NETWORKS = {"lenet": LENET, "deep": DEEP, "small": SMALL, "tiny": TINY}
"""With pairs, deep has a dense layer's rows after a convolution's columns."""


def check_gradients(plan, devices, n, dtype=np.float64):
    X, y = batch(n, dtype, plan.network)
    params = start(dtype, plan.network)
    loss, grads = execute(plan, X, y, params, devices, 0.1, GRADIENTS)
    expected_loss, expected = d2l.loss_and_grads(X, y, params, network=plan.network)
    assert loss == pytest.approx(float(expected_loss), rel=TOLERANCE[np.dtype(dtype)])
    for grad, alone in zip(grads, expected, strict=True):
        assert_close(grad, alone, TOLERANCE[np.dtype(dtype)])


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


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("k", [4, *long(2, 3, 5, 8)])
def test_more_devices_than_channels(name, k, make_devices):
    check_gradients(PLANS[name](k, 1, network=SMALL), make_devices(k), 3)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "k, micro_batches, n",
    few(list(itertools.product([2, 3, 5, 8], [1, 3], [1, 2, 7])), (2, 3, 1), (5, 1, 2), (8, 3, 7)),
)
def test_fewer_examples_and_channels_than_devices(name, k, micro_batches, n):
    plan, devices = PLANS[name](k, micro_batches, network=SMALL), [d2l.cpu(i) for i in range(k)]
    check_gradients(plan, devices, n)
    check_gradients(plan, devices, n, np.float32)


@pytest.mark.parametrize("k", [1, 2, 3, *long(5, 8)])
@pytest.mark.parametrize("a, b, c", few([*itertools.product([1, 2, 3], repeat=3)], (1, 3, 2), (2, 1, 1), (3, 2, 1)))
def test_layers_of_one_unit(a, b, c, k):
    """Where a pair's second layer has one input, or columns one output, device 0 alone has a share, and it is all."""
    for name, micro_batches in itertools.product(NAMES, (1, 2)):
        for network in (
            sequential((1, 2, 3), Flatten(), Dense(a), ReLU(), Dense(b), Dense(c), ReLU(), Dense(2)),
            sequential((2, 5, 6), Conv2d(a, 2), ReLU(), Conv2d(b, 2), MaxPool2d(), Flatten(), Dense(c), Dense(3)),
        ):
            plan = PLANS[name](k, micro_batches, network=network)
            check_gradients(plan, [d2l.cpu(i) for i in range(k)], 5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("copies, k, micro_batches", [(2, 2, 1), *long((3, 2, 2), (2, 4, 3), (4, 1, 2))])
def test_copies(name, copies, k, micro_batches, make_devices):
    """Of the parameters each device has its part, and exchanges its gradients with those that have the same."""
    plan, devices = copies_of(name, copies, k, micro_batches), make_devices(copies * k)
    assert plan.name == f"data={copies},{name}={k}"
    for n, dtype in (13, np.float64), (1, np.float32):
        check_gradients(plan, devices, n, dtype)
    with d2l.record_transfers() as transfers:
        execute(plan, *batch(11, np.float32), start(np.float32), devices)
    numbers = {str(device): i for i, device in enumerate(devices)}
    between = [t for t in transfers if "host" not in (t.source, t.destination)]
    assert sum(t.nbytes for t in between) == sum(prove(plan, 11).sent)
    column = sum(t.nbytes for t in between if (numbers[t.source] - numbers[t.destination]) % k == 0)
    assert column == 4 * 2 * (copies - 1) * 129_068 or k == 1


@pytest.mark.parametrize("copies, k, network", [(1, 4, "tiny"), *long((2, 2, "lenet"), (2, 4, "small"))])
@pytest.mark.parametrize("name", few(NAMES, "channels"))
def test_what_is_removed_or_doubled_is_found(name, copies, k, network):
    for how, action, mutant in mutants(copies_of(name, copies, k, 1, network=NETWORKS[network])):
        if how != "swapped":
            with pytest.raises(PlanError, match=r"device \d+"):
                prove(mutant)
                pytest.fail(f"accepted: {how} {action}")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "copies, k, micro_batches, n", [(1, 5, 2, 2), (2, 2, 1, 9), *long((1, 8, 3, 1), (2, 3, 2, 29))]
)
@pytest.mark.parametrize("network", few(NETWORKS, "small"))
def test_memory_is_what_was_predicted(name, copies, k, micro_batches, n, network):
    network = NETWORKS[network]
    plan, devices = copies_of(name, copies, k, micro_batches, network=network), [d2l.cpu(20 + i) for i in range(10)]
    proof, devices = prove(plan, n, "adam"), devices[: copies * k]
    try:
        for device in devices:
            device.accounting = _PeakAccounting(device, 2**40)
        execution = Execution(plan, start(np.float32, network), devices, "adam")
        for _ in range(2):
            execution.step(*batch(n, np.float32, network), 0.01)
            assert [device.accounting.used for device in devices] == proof.between
        assert [device.accounting.peak for device in devices] == proof.peak
    finally:
        for device in devices:
            device.accounting = None


def test_pairs_exchange_half_as_often():
    counts = {}
    for name in NAMES:
        exchanged = [a.value for a in PLANS[name](3).actions[2] if a.what == "collective"]
        counts[name] = exchanged.count("y"), exchanged.count("dy")
    assert counts == {"channels": (4, 3), "channel-pairs": (2, 1)}
    assert not any(a.what == "collective" for name in NAMES for a in PLANS[name](1, 3).actions[0])


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


def without(plan, what, value, stage):
    """The plan without these actions, on all devices."""
    lists = ([a for a in todo if (a.what, a.value, a.stage) != (what, value, stage)] for todo in plan.actions)
    return plan._replace(actions=tuple(map(tuple, lists)))


def with_schedule(plan, value, stage, *steps):
    """The plan with another schedule of these collectives."""

    def other(action):
        is_it = (action.what, action.value, action.stage) == ("collective", value, stage)
        return action._replace(schedule=steps) if is_it else action

    return plan._replace(actions=tuple(tuple(map(other, todo)) for todo in plan.actions))


def with_part(plan, device, stage, **fields):
    """The plan with another part of a stage in a device's layout."""
    own = tuple(part._replace(**fields) if part.stage == stage else part for part in plan.layout[device])
    return plan._replace(layout=(*plan.layout[:device], own, *plan.layout[device + 1 :]))


def wrong_plans():
    """What is said, and the plan."""
    parts, sums = PLANS["channels"](2), PLANS["channel-pairs"](2)
    yield "F of stage 1, .*: y of stage 0, .*: of units 10 to 20 something", without(parts, "collective", "y", 0)
    yield "B of stage 2, .*: dy of stage 2, .*: of units 0 to 64 something", without(parts, "collective", "dy", 2)
    yield "F of stage 2, .*: y of stage 1, .*: of units 0 to 50 something", without(sums, "collective", "y", 1)
    both = Transfer(1, 0, 0, 50, "add"), Transfer(0, 1, 0, 50, "add")
    yield "F of stage 2, .*: of units 0 to 50 a share was added 2 times", with_schedule(sums, "y", 1, both, both)
    nothing_new = (Transfer(1, 0, 0, 3, "copy"), Transfer(1, 0, 0, 3, "copy"))
    yield "step 1 sends device 0 what it has: units 0 to 3", with_schedule(parts, "dy", 2, nothing_new)
    yield "step 1: .*within the elements", with_schedule(parts, "y", 0, (Transfer(1, 0, 0, 21, "copy"),))
    yield "parameters are not exchanged", changed(parts, 0, [Action("collective", 0, None, "params", group=(0, 1))])
    yield "no device has a part", changed(parts, 0, [Action("collective", 4, 0, "dy", group=(0, 1))])
    for wrong in {"params": (0, 7), "grads": (0, 7)}, {"grads": (0, 0)}:
        yield "device 0, stage 1: params .* should be the same, and whole", with_part(parts, 0, 1, **wrong)
    empty = dict.fromkeys(("params", "grads", "state"), (25050, 25050))
    yield "element 12525 of the parameters of stage 1 is held by no device", with_part(parts, 1, 1, **empty)
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
    plan = copies_of("channels", 2, 2)
    own = [[a for a in todo if a.value != "grads" or not a.group] for todo in plan.actions]
    whole = [[a for a in todo if a.value == "grads" and a.group] for todo in plan.actions]
    for device, other in (0, 3), (1, 2):
        for action in whole[device]:
            crossed = action._replace(group=(device, other))
            for i in device, other:
                at = next(n for n, a in enumerate(own[i]) if (a.what, a.stage) == ("update", action.stage))
                own[i].insert(at, crossed)
    with pytest.raises(PlanError, match="collective of grads of stage 3.*: the devices have different parts"):
        prove(plan._replace(actions=tuple(map(tuple, own))))
