"""Plans of a network with batch norm, whose statistics are of a micro-batch, or of all images."""

import numpy as np
import pytest
from conftest import TOLERANCE, assert_close, few
from test_plan_execution import GRADIENTS, PIPELINES, assert_memory, batch, one_device, start, trained

import d2lmgpu as d2l
from d2lmgpu.collectives import chunk_bounds
from d2lmgpu.networks import LENET_BN, BatchNorm, Conv2d, Dense, Flatten, MaxPool2d, ReLU, sequential
from d2lmgpu.plans import PLANS, Compute, Execution, PlanError, execute, prove, with_statistics

WHOLE = ["layers", "gpipe", "1f1b", "zero-bubble", "channels", "channel-pairs"]
"""Plans of which each device sees all images, if there is one micro-batch."""
BIASES = [1, 5]
"""Parameters whose gradient is 0, since batch norm takes away what they add: what is computed is rounding."""


@pytest.mark.parametrize("dtype", few([np.float32, np.float64], np.float64))
@pytest.mark.parametrize("k, n", few([(k, n) for k in (1, 2, 3, 4) for n in (13, 24, 2)], (1, 13), (2, 2), (3, 13)))
@pytest.mark.parametrize("name", WHOLE)
def test_gradients_are_those_of_one_device(name, k, n, dtype, make_devices):
    X, y = batch(n, dtype, LENET_BN)
    params, plan = start(dtype, LENET_BN), PLANS[name](k, 1, network=LENET_BN)
    loss, grads = execute(plan, X, y, params, make_devices(k), 0.1, GRADIENTS)
    expected_loss, expected = d2l.loss_and_grads(X, y, params, network=LENET_BN)
    # sums in another order, divided by small deviations: one device's own float32 is as far from its float64
    tolerance = 3 * TOLERANCE[np.dtype(dtype)]
    assert loss == pytest.approx(float(expected_loss), rel=tolerance)
    for i, (grad, alone) in enumerate(zip(grads, expected, strict=True)):
        if i in BIASES:
            assert np.abs(grad).max() < tolerance * np.abs(expected[i - 1]).max()
        else:
            assert_close(grad, alone, tolerance)


@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
@pytest.mark.parametrize("name, k", [("zero-bubble", 3), ("channel-pairs", 2), ("channels", 3)])
def test_parameters_after_five_steps(name, k, optimizer):
    sizes = 24, 13, 7, 5, 9
    plan, devices = PLANS[name](k, 1, network=LENET_BN), [d2l.cpu(i) for i in range(k)]
    losses, params = trained(plan, devices, optimizer, np.float64, sizes)
    expected_losses, expected = one_device(LENET_BN, optimizer, np.float64, sizes)
    assert losses == pytest.approx(expected_losses, rel=1e-9)
    for i, (param, alone) in enumerate(zip(params, expected, strict=True)):
        if i not in BIASES:  # whose rounding Adam magnifies
            assert_close(param, alone, 1e-9)


@pytest.mark.parametrize("name", WHOLE)
def test_memory_is_what_was_predicted(name):
    assert_memory(PLANS[name](2, 1, network=LENET_BN), 13, "adam", np.float32)


SMALL = Conv2d(3, 2), BatchNorm(), ReLU(), MaxPool2d(), Flatten(), Dense(4), BatchNorm(), Dense(3)
SMALL = sequential((2, 6, 5), *SMALL)
"""Fewer channels than most numbers of devices."""
CASES = [(k, micro_batches) for k in (1, 2, 3, 5) for micro_batches in (1, 2, 3)]


def synchronised(name, k, micro_batches, network=LENET_BN):
    """The plan, or None where there is none."""
    if name == "zero-bubble" or (name == "zero3" and micro_batches > 1) or (name in PIPELINES and k > 3):
        return None
    return with_statistics(PLANS[name](k, micro_batches, network=network), "synchronised")


def alone(params, batches, network, dtype):
    """What one device learns: its `Execution`."""
    execution = Execution(PLANS["data"](1, network=network), params, [d2l.cpu(0)])
    for X, y in batches:
        execution.step(X, y, 0.1)
    return execution


@pytest.mark.parametrize("k, micro_batches", few(CASES, (1, 2), (2, 1), (3, 2)))
@pytest.mark.parametrize("name", PLANS)
def test_synchronised_every_plan_equals_one_device(name, k, micro_batches):
    """With ragged and empty micro-batches, and those of which kernels do not take all images at a time."""
    plan, network = synchronised(name, k, micro_batches, SMALL), SMALL
    if plan is None:
        return
    params = start(np.float64, network)
    batches = [batch(n, np.float64, network, seed) for seed, n in enumerate((152, 13, 7, 2))]
    expected = alone(params, batches, network, np.float64)
    local = prove(PLANS[name](k, micro_batches, network=network), 13).wasted  # where devices have no units of a stage
    assert bool(prove(plan, 13).wasted) == bool(local)
    for kernels in True, False:
        execution = Execution(plan, params, [d2l.cpu(i) for i in range(k)], kernels=kernels)
        for X, y in batches:
            execution.step(X, y, 0.1)
        for param, other in zip(execution.params(), expected.params(), strict=True):
            np.testing.assert_allclose(param, other, rtol=0, atol=1e-10)
        for own in execution.statistics():
            for array, other in zip(own, expected.statistics()[0], strict=True):
                assert_close(array, other, 1e-9)


@pytest.mark.parametrize("name", PLANS)
def test_the_kernels_of_gpus_synchronise_too(name, standin):
    plan = synchronised(name, 2, 2 if name != "zero3" else 1, SMALL)
    if plan is None:
        return
    params, (X, y) = start(np.float32, SMALL), batch(7, np.float32, SMALL)
    expected = alone(params, [(X, y)] * 2, SMALL, np.float32)
    for devices in [d2l.gpu(0), d2l.gpu(1)], [d2l.gpu(1), d2l.cpu(0)]:
        execution = Execution(plan, params, devices)
        for _ in range(2):
            execution.step(X, y, 0.1)
        for param, other in zip(execution.params(), expected.params(), strict=True):
            np.testing.assert_allclose(param, other, rtol=0, atol=1e-5)
        for array, other in zip(execution.statistics()[1], expected.statistics()[0], strict=True):
            assert_close(array, other, 1e-5)


@pytest.mark.parametrize("kind", ["local", "aggregated"])
@pytest.mark.parametrize("k, micro_batches", [(1, 3), (3, 1), (2, 2)])
def test_statistics_of_ones_own_images(kind, k, micro_batches, rng):
    """Gradients are those of each micro-batch by itself; running statistics follow the sums of some, or of all."""
    network = sequential((2, 3, 3), BatchNorm(), Flatten(), Dense(3))
    plan = with_statistics(PLANS["data"](k, micro_batches, network=network), kind)
    params, (X, y) = start(np.float64, network), batch(13, np.float64, network)
    loss, grads = execute(plan, X, y, params, [d2l.cpu(i) for i in range(k)], 0.1, GRADIENTS)
    parts = [slice(*bounds) for bounds in chunk_bounds(13, k * micro_batches)]
    each = [d2l.loss_and_grads(X[part], y[part], params, network=network) for part in parts]
    assert loss == pytest.approx(sum(float(own) for own, _ in each))
    for i, grad in enumerate(grads):
        assert_close(grad, sum(own[i] for _, own in each), 1e-12)
    execution = Execution(plan, params, [d2l.cpu(i) for i in range(k)])
    execution.step(X, y, 0.1)
    for i, own in enumerate(execution.statistics()):
        mine = parts[i * micro_batches : (i + 1) * micro_batches]
        images = X if kind == "aggregated" else np.concatenate([X[part] for part in mine])
        mean, variance = images.mean(axis=(0, 2, 3)), images.var(axis=(0, 2, 3), ddof=1)
        assert_close(own[0], 0.1 * mean, 1e-12)
        assert_close(own[1], 0.9 + 0.1 * variance, 1e-12)


@pytest.mark.parametrize("name", ["data", "gpipe", "channels", "zero3"])
def test_memory_of_sums(name):
    """To the byte."""
    assert_memory(synchronised(name, 2, 2 if name != "zero3" else 1), 13, "adam", np.float32)


def changed(plan, change):
    """The plan without actions for which ``change`` says so."""
    steps = [[action for action in step if not change(action)] for step in plan.steps]
    return plan._replace(steps=[step for step in steps if step])


def is_compute(action, *about):
    return isinstance(action, Compute) and action[: len(about)] == about


def is_moved(action, kind):
    return not isinstance(action, Compute) and action.value[0] == kind


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda a: is_compute(a, "M", 1, 0), "device 1 does not have moments of stage 0"),
        (lambda a: is_compute(a, "F", 1, 0), "device 1, M of stage 0, micro-batch 1|device 1: after M|y of stage 0"),
        (lambda a: is_moved(a, "moments"), "moments of stage 0.* is missing"),
        (lambda a: is_moved(a, "sums") and a.op == "copy", "sums of stage [01].* missing"),
    ],
)
def test_what_a_proof_finds(change, said):
    plan = synchronised("data", 2, 1)
    with pytest.raises(PlanError, match=said):
        prove(changed(plan, change))


@pytest.mark.parametrize("what, before", [("F", "M"), ("B", "S")])
def test_the_second_half_twice(what, before):
    plan = synchronised("data", 2, 1)
    number = next(i for i, step in enumerate(plan.steps) if any(is_compute(a, what, 0, 0) for a in step))
    steps = [*plan.steps[: number + 1], [Compute(what, 0, 0, 0)], *plan.steps[number + 1 :]]
    said = f"there is no {before} before it|cache .* is not there"
    with pytest.raises(PlanError, match=f"device 0, {what} of stage 0, .*({said})"):
        prove(plan._replace(steps=steps))


def test_running_statistics_are_of_all_or_of_ones_own():
    plan = with_statistics(PLANS["data"](3, network=LENET_BN), "aggregated")
    *others, last = (number for number, step in enumerate(plan.steps) if any(is_moved(a, "moments") for a in step))
    with pytest.raises(PlanError, match="at the end: device .*moments of stage 0.* missing"):
        prove(plan._replace(steps=plan.steps[:last] + plan.steps[last + 1 :]))


def test_what_cannot_be_synchronised():
    for name, k, micro_batches, said in (
        ("zero-bubble", 2, 2, "it has I and W"),
        ("zero3", 2, 2, "use one micro-batch"),
    ):
        with pytest.raises(ValueError, match=said):
            with_statistics(PLANS[name](k, micro_batches, network=LENET_BN), "synchronised")
    with pytest.raises(ValueError, match="batch_statistics 'all' is unknown"):
        with_statistics(PLANS["data"](2, network=LENET_BN), "all")
    plan = PLANS["data"](2, network=LENET_BN)
    one = plan._replace(steps=[[Compute("M", 0, 0, 0)], *plan.steps])
    with pytest.raises(PlanError, match="step 1: .*has one batch norm layer"):
        prove(one)
