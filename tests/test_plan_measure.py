"""What plans cost on a machine: the arithmetic, with spans of which everything is known; no test asserts a time."""

import numpy as np
import pytest

import d2lmgpu as d2l
from d2lmgpu.collectives.network import full_switch
from d2lmgpu.networks import Conv2d, Dense, Flatten, ReLU, sequential
from d2lmgpu.plans import PLANS, Measured, measure as measuring, measure_costs, simulate

SMALL = sequential((1, 6, 6), Conv2d(2, 3), ReLU(), Flatten(), Dense(5), ReLU(), Dense(3))


@pytest.mark.parametrize(
    "name, optimizer",
    [("1f1b", "sgd"), ("zero-bubble", "adam"), ("zero3", "momentum"), ("channels", "adam")],
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
    monkeypatch.setattr(measuring._Alone, "slower", lambda self, spans, *_: 1 + len(spans) / 4)
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


@pytest.fixture
def alone():
    """One stage: four micro-batches, each F and B, and an update; nine computations of a second."""
    found = measuring._Alone(PLANS["data"](2, 1, network=SMALL), 3, "sgd", "float32")
    assert [action.what for action in found.timed] == [*"FFFFBBBB", "update"]
    return found


ONE = [{"F": 1, "B": 1, "update": 1}]


def test_costs_are_medians(alone):
    runs = [
        measuring._Run(0, [[(i, i + (factor if action.what == "F" else 1)) for i, action in enumerate(alone.timed)]])
        for factor in (3, 2, 50)
    ]
    assert alone.costs(runs) == [{"F": 3, "B": 1, "update": 1}]


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("late", [0, 0.25, 2.5])
def test_contention_is_what_keeps_the_work(k, late, alone):
    """Devices that begin one after the other, whose computations go on at the speed that contention leaves them."""
    factors = [1, 1.5, 2.75][:k]
    spans = simulated(k, late, factors)
    assert alone.slower(spans, ONE, factors[:-1]) == pytest.approx(factors[-1])


def simulated(k, late, factors):
    """Spans of nine computations of a second on each of k devices, device i beginning ``i * late`` late."""
    now, left, spans = 0.0, [9.0] * k, [[] for _ in range(k)]
    begun = [None] * k
    while max(left) > 1e-9:
        busy = [i for i in range(k) if left[i] > 1e-9 and now >= i * late - 1e-9]
        for i in busy:
            if begun[i] is None:
                begun[i] = now
        speed = 1 / factors[len(busy) - 1]
        ends = [(left[i] - np.ceil(left[i] - 1 - 1e-9)) / speed for i in busy]
        starts = [i * late - now for i in range(k) if i * late > now + 1e-9]
        passed = min([*ends, *starts])
        now += passed
        for i in busy:
            left[i] -= passed * speed
            if abs(left[i] - round(left[i])) < 1e-9:
                spans[i].append((begun[i], now))
                begun[i] = None
    return spans
