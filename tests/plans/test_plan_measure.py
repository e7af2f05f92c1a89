"""What plans cost on a machine: the arithmetic, with spans of which everything is known; no test asserts a time."""

import pytest
from conftest import LONG_ON_STANDIN

import d2lmgpu as d2l
from d2lmgpu.collectives.network import full_switch
from d2lmgpu.networks import Conv2d, Dense, Flatten, ReLU, sequential
from d2lmgpu.plans import PLANS, Measured, costs as measuring, measure_costs, simulate

SMALL = sequential((1, 6, 6), Conv2d(2, 3), ReLU(), Flatten(), Dense(5), ReLU(), Dense(3))


@LONG_ON_STANDIN
@pytest.mark.parametrize(
    "name, optimizer",
    [("1f1b", "sgd"), ("zero-bubble", "adam"), ("zero3", "momentum")],
)
def test_what_is_measured(name, optimizer, make_devices):
    plan = PLANS[name](2, 2, network=SMALL)
    found = measure_costs(plan, make_devices(2), 10, optimizer, rounds=2)
    back = {"I", "W"} if name == "zero-bubble" else {"B"}
    updated = [{"update"} if stage.params else set() for stage in plan.stages]  # not the loss alone
    assert [set(cost) for cost in found.costs] == [{"F", *back, *update} for update in updated]
    assert all(seconds > 0 for cost in found.costs for seconds in cost.values())
    assert found.contention[0] == 1 and len(found.contention) == 2 and found.contention[1] >= 1
    result = simulate(plan, full_switch(2, 1e9), found.costs, 10, optimizer, contention=found.contention)
    assert found.step_seconds(result) >= result.seconds > 0


def test_a_device_alone_tells_nothing_of_contention():
    assert measure_costs(PLANS["data"](3, 1, network=SMALL), [d2l.cpu(0)], 6, rounds=1).contention == [1]


@pytest.mark.parametrize("cores", [1, 2, 3])
def test_beyond_the_cores_contention_is_computed(cores, device_kind, make_devices, monkeypatch):
    """Virtual devices that have to share cores; of GPUs each has its own, however few cores there are."""
    monkeypatch.setattr(measuring, "count_cores", lambda: cores)
    spans = [(0, 1)], [(0, 2)], [(1, 3.25)]
    monkeypatch.setattr(measuring._Alone, "run", lambda self, devices, _: [measuring._Run(9, spans[: len(devices)])])
    monkeypatch.setattr(measuring._Alone, "run_at_once", lambda *_: [measuring._Run(9, spans[:1])])
    monkeypatch.setattr(measuring._Alone, "costs", lambda *_: [{"F": 1, "B": 1}])
    k = 5 if device_kind == "cpu" else 2
    found = measure_costs(PLANS["data"](k, 1, network=SMALL), make_devices(k), 10, rounds=1).contention
    if device_kind == "cpu":
        expected = {1: [1, 2, 3, 4, 5], 2: [1, 1.5, 2.25, 3, 3.75], 3: [1, 1.5, 1.75, 7 / 3, 35 / 12]}[cores]
    else:
        expected = [1, 1.5]
    assert found == pytest.approx(expected)


def test_preparation_is_of_each_computation_of_each_device():
    plan = PLANS["data"](3, 1, network=SMALL)
    result = simulate(plan, full_switch(3, 1e6))
    expected = result.seconds + 0.5 * 3 * 3  # F, B and update
    assert Measured([], [], 0.5).step_seconds(result) == expected


def test_costs_are_medians():
    """One stage: four micro-batches, each F and B, and an update; nine computations of a second, or more."""
    alone = measuring._Alone(PLANS["data"](2, 1, network=SMALL), 3, "sgd", "float32")
    assert [action.what for action in alone.timed] == [*"FFFFBBBB", "update"]
    runs = [
        measuring._Run(0, [[(i, i + (factor if action.what == "F" else 1)) for i, action in enumerate(alone.timed)]])
        for factor in (3, 2, 50)
    ]
    assert alone.costs(runs) == [{"F": 3, "B": 1, "update": 1}]
