"""Plans executed: the kernels of GPUs, the bytes of the formulas, errors, and what cannot be executed.

That k devices do what one does, tests/training/test_equals_one_device.py and test_plans_at_random.py say.
"""

import importlib
import threading

import numpy as np
import pytest
from conftest import TOLERANCE, assert_close, long
from one_device import DEEP, PLAIN, examples, first_params, learned_alone
from training_runs import cpus

import d2lmgpu as d2l
from d2lmgpu.devices import DeviceMemoryError
from d2lmgpu.layers import Draws
from d2lmgpu.networks import LENET, Conv2d, Dense, Dropout, Flatten, ReLU, init_params, sequential
from d2lmgpu.plans import PLANS, Execution, copies_of, cut, execute, prove
from d2lmgpu.plans.execution.compute import FUNCTIONS

PIPELINES = ("layers", "gpipe", "1f1b", "zero-bubble")
COPIED = [f"data=2,{name}" for name in (*PIPELINES, "channels")]


def plan_of(name, k, micro_batches, network=LENET):
    """A plan by its name, or two copies of it, with k devices each."""
    if name in COPIED:
        return copies_of(name.removeprefix("data=2,"), 2, k, micro_batches, network=network)
    return PLANS[name](k, micro_batches, network=network)


def check_step(plan, devices, n):
    """A step in float32, in which rounding turns no ReLU on or off: the gradients are those of one device."""
    X, y = examples(plan.network, n, np.float32)
    expected = learned_alone(plan.network, [(X, y)])
    loss, params = execute(plan, X, y, first_params(plan.network, np.float32), devices)
    assert loss == pytest.approx(expected.losses[0], rel=TOLERANCE[np.dtype(np.float32)])
    for param, alone in zip(params, expected.params, strict=True):
        assert_close(param, alone, TOLERANCE[param.dtype])


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.long if name in ("channels", "zero-bubble") else pytest.mark.nightly)
        for name in PLANS
    ],
)
def test_on_the_kernels_of_gpus(name, standin):
    """And with virtual devices beside them; examples are few, since the CPU does what the kernels do."""
    gpus = [d2l.gpu(0), d2l.gpu(1)]
    check_step(plan_of(name, 2, 2, PLAIN), gpus, 7)
    check_step(plan_of(name, 3, 1, PLAIN), [gpus[1], d2l.cpu(1), gpus[0]], 2)


FIRST_DROPS = sequential((2, 6, 5), Dropout(0.5), Conv2d(5, 3), ReLU(), Flatten(), Dense(4), Dense(3))


@pytest.mark.parametrize("name", [name for name in PLANS if name != "channels"])
def test_a_network_that_begins_with_dropout(name):
    X, y = examples(FIRST_DROPS, 7)
    expected = learned_alone(FIRST_DROPS, [(X, y)], draws=lambda _: Draws(3))
    plan = PLANS[name](2, 2, network=FIRST_DROPS)
    loss, _ = execute(plan, X, y, first_params(FIRST_DROPS), cpus(2), draws=Draws(3))
    assert loss == pytest.approx(expected.losses[0])


def test_a_limit_that_is_too_low():
    plan, (X, y) = PLANS["gpipe"](2, 4), examples(LENET, 24, np.float32)
    devices = [d2l.cpu(20), d2l.cpu(21)]
    peak = prove(plan, 24).peak[1]
    try:
        devices[1].limit_memory(peak)
        execute(plan, X, y, init_params(2, init="he"), devices)
        devices[1].limit_memory(int(peak / 1.05))
        execution = Execution(plan, init_params(2, init="he"), devices)
        with pytest.raises(DeviceMemoryError, match=r"cpu\(21\) is out of memory"):
            execution.step(X, y, 0.1)
        with pytest.raises(ValueError, match="has failed"):
            execution.step(X, y, 0.1)
    finally:
        devices[1].limit_memory(None)
    d2l.synchronize(devices)


@pytest.mark.parametrize("name", [*PLANS, *COPIED])
@pytest.mark.parametrize(
    "k, micro_batches, device_kind",
    [(2, 3, "cpu"), *long((4, 1, "cpu"), (3, 8, "cpu"), (2, 2, "standin"))],
    indirect=["device_kind"],
)
def test_bytes_that_travel(name, k, micro_batches, make_devices):
    """Recorded, proved, and by the formulas of the plans' docstrings."""
    plan = plan_of(name, k, micro_batches)
    devices, (X, y) = make_devices(plan.k), examples(LENET, 11, np.float32)
    execution = Execution(plan, init_params(2, init="he"), devices)
    with d2l.record_transfers() as transfers:
        execution.step(X, y, 0.1)
    numbers, sent, between_copies = {str(device): i for i, device in enumerate(devices)}, [0] * plan.k, 0
    for transfer in transfers:
        if "host" not in (transfer.source, transfer.destination):
            source, destination = numbers[transfer.source], numbers[transfer.destination]
            sent[source] += transfer.nbytes
            between_copies += transfer.nbytes * ((source - destination) % k == 0)
    assert sent == prove(plan, 11).sent
    if name in COPIED:
        assert between_copies == 4 * 2 * 129_068
    elif name in PIPELINES:
        handed_on = {2: [20 * 13 * 13], 3: [20 * 13 * 13, 800], 4: [20 * 13 * 13, 800, 128]}[k]
        assert sum(sent) == 2 * 4 * 11 * sum(handed_on)
    elif name == "channels":
        assert sum(sent) == 4 * 11 * (k - 1) * (2 * (20 * 13 * 13 + 800 + 128) + 10)
    else:
        times = {"data": 2, "zero1": 2, "zero2": micro_batches + 1, "zero3": 3 * micro_batches}[name]
        assert sum(sent) == 4 * times * (k - 1) * 129_068


def test_zero3_holds_its_part_to_the_element():
    for network, n in (LENET, 129_068), (DEEP, sum(stage.params for stage in cut(DEEP, 1))):
        for k in (1, 2, 3, 8):
            between = prove(PLANS["zero3"](k, 2, network=network), 9, "adam").between
            assert sum(between) == 4 * 3 * n
            assert max(between) - min(between) <= 4 * 3 * 8  # one element of each of at most 8 stages


@pytest.mark.threads
def test_devices_work_at_the_same_time(monkeypatch):
    """Stage 0 is at micro-batch 1 while stage 1 is at micro-batch 0: each waits until the other has begun."""
    plan, begun = PLANS["gpipe"](2, 2), [threading.Event(), threading.Event()]
    execution, forward = Execution(plan, init_params(2, init="he"), cpus(2)), dict(FUNCTIONS)

    def wait(store, action, *more):
        if action.stage + action.micro_batch == 1:
            begun[action.stage].set()
            assert begun[1 - action.stage].wait(30)
        forward["F", store.mode_of(action)](store, action, *more)

    for key in [key for key in FUNCTIONS if key[0] == "F"]:
        monkeypatch.setitem(FUNCTIONS, key, wait)
    execution.step(*examples(LENET, 2, np.float32), 0.1)


@pytest.mark.parametrize("name", ["data", "zero1", "zero2"])
def test_gradients_that_cannot_be_summed_are_not_used(name, monkeypatch):
    """A collective is no action of one device: its error is one of the devices' queues."""
    module = importlib.import_module("d2lmgpu.collectives.execute")  # the package has a function of this name
    do_action = module.do_action

    def broken(action, i, *arguments):
        if i == 1:
            raise ArithmeticError("no sum today")
        do_action(action, i, *arguments)

    execution = Execution(PLANS[name](3), init_params(2, init="he"), cpus(3))
    monkeypatch.setattr(module, "do_action", broken)
    with pytest.raises(ArithmeticError, match="no sum today"):
        execution.step(*examples(LENET, 7, np.float32), 0.1)
    for param, before in zip(execution.params(), init_params(2, init="he"), strict=True):
        np.testing.assert_array_equal(param, before)
