"""In which way stages are computed, read off plans whose answer can be told by looking at them."""

import numpy as np
from one_device import DEEP

import d2lmgpu as d2l
from d2lmgpu.collectives.actions import Transfer
from d2lmgpu.networks import LENET, init_params
from d2lmgpu.plans import PLANS, compose, cut, execute
from d2lmgpu.plans.execution.modes import CACHED, FUSED, IN_FUSED, REFERENCE, ExecutionModes
from d2lmgpu.plans.plan import Compute
from d2lmgpu.plans.proof.check import check_plan


def ways_of(plan):
    """For each device and stage the set of ways in which its micro-batches are computed."""
    found = {}
    for (device, s, _), way in ExecutionModes(plan, check_plan(plan)).of.items():
        found.setdefault((device, s), set()).add(way)
    return found


def test_what_goes_back_at_once_keeps_nothing():
    for name in ("data", "zero1"):
        assert set(map(tuple, ways_of(PLANS[name](3, 2)).values())) == {(FUSED,)}


def test_where_there_are_no_kernels():
    assert set(map(tuple, ways_of(PLANS["zero-bubble"](3, 4)).values())) == {(REFERENCE,)}


def test_of_a_pipeline_the_last_stage_keeps_nothing():
    for name in ("1f1b", "layers"):
        found = ways_of(PLANS[name](3, 4))
        assert found == {(0, 0): {CACHED}, (1, 1): {CACHED}, (2, 2): {FUSED}}
    found = ways_of(PLANS["gpipe"](3, 4))  # all forward, then all back, the first one first
    assert found == {(0, 0): {CACHED}, (1, 1): {CACHED}, (2, 2): {CACHED}}


def test_exchanges_come_in_between():
    assert set(map(tuple, ways_of(PLANS["zero3"](2, 2)).values())) == {(CACHED,)}
    found = ways_of(PLANS["zero2"](2, 2))  # before the first of them the last stage has gone back
    assert {way for (_, s), ways in found.items() for way in ways if s == 1} == {FUSED}
    assert {way for (_, s), ways in found.items() for way in ways if s == 0} == {CACHED}


def in_turn(stages, micro_batches):
    """A plan of one device, which takes each micro-batch through all stages and back."""
    order = [
        (what, s, m)
        for m in range(micro_batches)
        for what, s in [("F", s) for s in range(stages)] + [("B", s) for s in reversed(range(stages))]
    ]
    return compose([order], micro_batches, DEEP, cut(DEEP, stages))


def test_a_run_of_several_stages():
    plan = in_turn(3, 2)
    ways = ExecutionModes(plan, check_plan(plan))
    assert {key: way for key, way in ways.of.items() if key[2] == 1} == {
        (0, 0, 1): FUSED,
        (0, 1, 1): IN_FUSED,
        (0, 2, 1): IN_FUSED,
    }
    assert ways.runs[0, 0, 1] == [("grads", 0), ("grads", 1), ("grads", 2)] and len(ways.runs) == 2
    assert ways.is_nothing(0, ("y", 0, 1)) and ways.is_nothing(0, ("dy", 1, 0)) and ways.is_nothing(0, ("cache", 0, 0))
    assert not ways.is_nothing(0, ("grads", 0))


def test_a_transfer_ends_a_run():
    """Gradients are copied before the first stage has gone back: so the run begins with the second stage."""
    plan = in_turn(3, 1)
    n = plan.stages[2].params
    number = next(i for i, step in enumerate(plan.steps) if Compute("B", 0, 0, 0) in step)
    steps = [*plan.steps[:number], [Transfer(0, 0, 0, n, "add", ("grads", 2), ("grads", 2, 0))], *plan.steps[number:]]
    ways = ExecutionModes(plan, check_plan(plan._replace(steps=steps)))
    assert ways.of == {(0, 0, 0): CACHED, (0, 1, 0): FUSED, (0, 2, 0): IN_FUSED}
    assert ways.runs == {(0, 1, 0): [("grads", 1), ("grads", 2)]}


def test_idle_programs_hold_no_parameters():
    """A core's programs outlive the devices' arrays; else a device that gathers parameters would never lose them."""
    device = d2l.cpu(77)
    device.limit_memory(2**30)
    try:
        X, y = np.zeros((5, 1, 28, 28), np.float32), np.zeros(5, int)
        for name in PLANS:
            execute(PLANS[name](1, 2), X, y, init_params(network=LENET), [device])
        assert device.accounting.used == 0
    finally:
        device.limit_memory(None)
