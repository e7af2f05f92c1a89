"""What plans cost on a machine; no test asserts a time."""

import pytest
from conftest import LONG_ON_STANDIN

import d2lmgpu as d2l
from d2lmgpu.networks import Conv2d, Dense, Flatten, ReLU, sequential
from d2lmgpu.plans import PLANS, costs as measuring, measure_costs

SMALL = sequential((1, 6, 6), Conv2d(2, 3), ReLU(), Flatten(), Dense(5), ReLU(), Dense(3))


@LONG_ON_STANDIN
@pytest.mark.parametrize("name, optimizer", [("1f1b", "sgd"), ("zero-bubble", "adam"), ("zero3", "momentum")])
def test_what_is_measured(name, optimizer, make_devices):
    plan = PLANS[name](2, 2, network=SMALL)
    found = measure_costs(plan, make_devices(1)[0], 10, optimizer, rounds=2)
    back = {"I", "W"} if name == "zero-bubble" else {"B"}
    assert [set(cost) for cost in found] == [{"F", *back, "update"} for _ in plan.stages]
    assert all(seconds > 0 for cost in found for seconds in cost.values())


def test_costs_are_medians(monkeypatch):
    """One stage: four micro-batches, each F and B, and an update, of a second each, or more for F."""
    rounds = iter([99, 3, 2, 50])  # the first does not count
    monkeypatch.setattr(measuring, "_times", lambda *_: [next(rounds)] * 4 + [1] * 5)
    assert measure_costs(PLANS["data"](2, network=SMALL), d2l.cpu(0), rounds=3) == [{"F": 3, "B": 1, "update": 1}]
