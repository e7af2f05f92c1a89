"""Plans executed: k devices do what one does, with the memory that was predicted, and the bytes of the formulas."""

import importlib
import itertools
import threading

import numpy as np
import pytest
from conftest import TOLERANCE, assert_close, few, long
from test_plans import DEEP

import d2lmgpu as d2l
from d2lmgpu.devices import DeviceMemoryError
from d2lmgpu.devices.cpu import MemoryAccounting
from d2lmgpu.layers import Draws
from d2lmgpu.networks import LENET, Conv2d, Dense, Flatten, MaxPool2d, ReLU, init_params, sequential
from d2lmgpu.networks.optimizers import OPTIMIZERS, Optimizer
from d2lmgpu.plans import PLANS, Execution, PlanError, copies_of, cut, execute, prove
from d2lmgpu.plans.execution.compute import FUNCTIONS

SMALL = sequential((2, 6, 5), Conv2d(3, 2), ReLU(), MaxPool2d(), Conv2d(5, 2), ReLU(), Flatten(), Dense(4), Dense(3))
"""Fewer channels than most numbers of devices."""

TINY = sequential((1, 1, 4), Flatten(), Dense(3), ReLU(), Dense(2))
ONE_UNIT = sequential((2, 5, 6), Conv2d(1, 2), ReLU(), Conv2d(2, 2), MaxPool2d(), Flatten(), Dense(1), Dense(3))
"""Where columns have one output, device 0 alone has a share, and it is all."""

NETWORKS = {"lenet": LENET, "deep": DEEP, "small": SMALL, "tiny": TINY, "one unit": ONE_UNIT}

PIPELINES = ("layers", "gpipe", "1f1b", "zero-bubble")
COPIED = [f"data=2,{name}" for name in (*PIPELINES, "channels")]
SIZES = (24, 13, 7, 1, 3)
"""Of minibatches: ragged, and some with fewer examples than devices or micro-batches."""


def plan_of(name, k, micro_batches, network=LENET):
    """A plan by its name, or two copies of it, with k devices each."""
    if name in COPIED:
        return copies_of(name.removeprefix("data=2,"), 2, k, micro_batches, network=network)
    return PLANS[name](k, micro_batches, network=network)


def rows():
    """Plan, network, devices, micro-batches, optimiser."""
    each = itertools.product([*PLANS, *COPIED], NETWORKS, (1, 2, 3, 5, 8), (1, 2, 3), OPTIMIZERS)
    for name, network, k, *rest in each:
        stages = sum(bool(layer.shapes) for layer in NETWORKS[network])
        if k <= stages or name.removeprefix("data=2,") not in PIPELINES:
            yield name, network, k, *rest


ROWS = list(rows())
USUAL = {(1, 2, "adam"), (2, 3, "momentum"), (3, 1, "sgd"), (5, 2, "momentum"), (8, 3, "sgd")}
KEPT = [row for row in ROWS if row[2:] in USUAL and row[1] == ("deep" if row[2] > 4 else "small")]
KEPT = [row for row in KEPT if row[0] not in COPIED or row[2] in (2, 3)]
KEPT += [row for row in ROWS if row[2:] == (2, 3, "momentum") and row[0] not in COPIED]


def into_params(params, grads, step, lr, batch_size):
    """In the place of an optimiser: the parameters after a step are its gradients."""
    for param, grad in zip(params, grads, strict=True):
        param[...] = grad


GRADIENTS = Optimizer("gradients", into_params, 0)


def batch(n, dtype, network=LENET, seed=5):
    rng = np.random.default_rng(seed)
    return rng.random((n, *network.input_shape)).astype(dtype), rng.integers(0, network.classes, n)


def start(dtype, network=LENET):
    rng = np.random.default_rng(3)
    params = init_params(seed=2, init="he", dtype=dtype, network=network)
    return [param + rng.normal(0, 0.05, param.shape).astype(dtype) for param in params]  # biases, too


def check_gradients(plan, devices, n, dtype=np.float64):
    X, y = batch(n, dtype, plan.network)
    params = start(dtype, plan.network)
    loss, grads = execute(plan, X, y, params, devices, 0.1, GRADIENTS)
    expected_loss, expected = d2l.loss_and_grads(X, y, params, network=plan.network)
    assert loss == pytest.approx(float(expected_loss), rel=TOLERANCE[np.dtype(dtype)])
    for grad, alone in zip(grads, expected, strict=True):
        assert_close(grad, alone, TOLERANCE[np.dtype(dtype)])


def cpus(plan):
    return [d2l.cpu(i) for i in range(plan.k)]


@pytest.mark.parametrize("name, network, k, micro_batches, optimizer", few(ROWS, *KEPT, parts=40))
def test_a_plan_does_what_one_device_does(name, network, k, micro_batches, optimizer):
    """Gradients in float32, and parameters after five steps in float64."""
    plan = plan_of(name, k, micro_batches, NETWORKS[network])
    for n in 13, 2:
        check_gradients(plan, cpus(plan), n, np.float32)
    losses, params = trained(plan, cpus(plan), optimizer, np.float64)
    expected_losses, expected = one_device(plan.network, optimizer, np.float64)
    assert losses == pytest.approx(expected_losses, rel=1e-10)
    for param, alone in zip(params, expected, strict=True):
        assert_close(param, alone, 1e-10)


@pytest.mark.parametrize("name", PLANS)
def test_on_each_kind_of_device(name, make_devices):
    check_gradients(plan_of(name, 2, 2), make_devices(2), 5, np.float32)


@pytest.mark.parametrize("name", PLANS)
def test_on_the_kernels_of_gpus(name, standin):
    """And with virtual devices beside them; examples and units are few, since the CPU does what the kernels do."""
    gpus = [d2l.gpu(0), d2l.gpu(1)]
    check_gradients(plan_of(name, 2, 2, SMALL), gpus, 7, np.float32)
    check_gradients(plan_of(name, 3, 1, SMALL), [gpus[1], d2l.cpu(1), gpus[0]], 2, np.float32)


def trained(plan, devices, optimizer, dtype, sizes=SIZES):
    """Five steps: losses, and the parameters after them."""
    execution = Execution(plan, start(dtype, plan.network), devices, optimizer)
    losses = [
        execution.step(*batch(n, dtype, plan.network, seed), lr=0.05 if optimizer != "adam" else 0.002)
        for seed, n in enumerate(sizes)
    ]
    return losses, execution.params()


def one_device(network, optimizer, dtype, sizes=SIZES, done={}):  # noqa: B006
    """The same by the functions that a person would call, one after the other."""
    key = id(network), optimizer, dtype, sizes
    if key not in done:
        params, losses = start(dtype, network), []
        state = [[np.zeros_like(param) for param in params] for _ in range(OPTIMIZERS[optimizer].states)]
        for seed, n in enumerate(sizes):
            X, y = batch(n, dtype, network, seed)
            loss, grads = d2l.loss_and_grads(X, y, params, network=network)
            losses.append(float(loss))
            lr = 0.05 if optimizer != "adam" else 0.002
            OPTIMIZERS[optimizer].update(params, grads, *state, seed + 1, lr, n)
        done[key] = losses, params
    return done[key]


class _PeakAccounting(MemoryAccounting):
    peak = 0

    def enter(self, raw):
        super().enter(raw)
        self.peak = max(self.peak, self.used)


def assert_memory(plan, n, optimizer, dtype, kernels=True):
    """Two steps of n examples take at most what is predicted, and at least 95 % of it; between steps all of it."""
    X, y = batch(n, dtype, plan.network)
    devices = [d2l.cpu(20 + i) for i in range(plan.k)]
    proof = prove(plan, len(y), optimizer, np.dtype(dtype).name, kernels=kernels)
    try:
        for device in devices:
            device.accounting = _PeakAccounting(device, 2**40)
        execution = Execution(plan, start(dtype, plan.network), devices, optimizer, kernels=kernels)
        for _ in range(2):
            execution.step(X, y, 0.01, draws=Draws(0))
            assert [device.accounting.used for device in devices] == proof.between
        for device, peak in zip(devices, proof.peak, strict=True):
            assert device.accounting.peak <= peak <= 1.05 * device.accounting.peak
    finally:
        for device in devices:
            device.accounting = None


def test_a_limit_that_is_too_low():
    plan, (X, y) = PLANS["gpipe"](2, 4), batch(24, np.float32)
    devices = [d2l.cpu(20), d2l.cpu(21)]
    peak = prove(plan, 24).peak[1]
    try:
        devices[1].limit_memory(peak)
        execute(plan, X, y, start(np.float32), devices)
        devices[1].limit_memory(int(peak / 1.05))
        execution = Execution(plan, start(np.float32), devices)
        with pytest.raises(DeviceMemoryError, match=r"cpu\(21\) is out of memory"):
            execution.step(X, y, 0.1)
        with pytest.raises(ValueError, match="has failed"):
            execution.step(X, y, 0.1)
    finally:
        devices[1].limit_memory(None)
    d2l.synchronize(devices)


@pytest.mark.parametrize("name", [*PLANS, *COPIED])
@pytest.mark.parametrize("k, micro_batches", [(2, 3), *long((4, 1), (3, 8))])
def test_bytes_that_travel(name, k, micro_batches, make_devices):
    """Recorded, proved, and by the formulas of the plans' docstrings."""
    plan = plan_of(name, k, micro_batches)
    devices, (X, y) = make_devices(plan.k), batch(11, np.float32)
    execution = Execution(plan, start(np.float32), devices)
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
def test_devices_work_at_the_same_time():
    """Stage 0 is at micro-batch 1 while stage 1 is at micro-batch 0: each waits until the other has begun."""
    plan, begun = PLANS["gpipe"](2, 2), [threading.Event(), threading.Event()]
    execution = Execution(plan, start(np.float32), [d2l.cpu(0), d2l.cpu(1)])

    def wait(store, action, *more):
        if action.stage + action.micro_batch == 1:
            begun[action.stage].set()
            assert begun[1 - action.stage].wait(30)
        FUNCTIONS["F", store.way_of(action)](store, action, *more)

    execution.functions = FUNCTIONS | {key: wait for key in FUNCTIONS if key[0] == "F"}
    execution.step(*batch(2, np.float32), 0.1)


def test_an_error_of_a_device_is_raised():
    def broken(*arguments):
        raise ArithmeticError("no output today")

    layers = list(LENET)
    layers[3] = layers[3]._replace(forward=broken)
    network = type(LENET)(layers, LENET.input_shape, LENET.classes)
    plan = PLANS["data"](3, 2)._replace(network=network)
    devices = [d2l.cpu(i) for i in range(3)]
    X, y = batch(7, np.float32)
    execution = Execution(PLANS["data"](3, 2), start(np.float32), devices)
    execution.plan = plan
    for store in execution.stores:
        store.layers = [network]
    with pytest.raises(ArithmeticError, match="no output today"):
        execution.step(X, y, 0.1)
    d2l.synchronize(devices)


@pytest.mark.parametrize("name", ["data", "zero1", "zero2"])
def test_gradients_that_cannot_be_summed_are_not_used(name, monkeypatch):
    """A collective is no action of one device: its error is one of the devices' queues."""
    module = importlib.import_module("d2lmgpu.collectives.execute")  # the package has a function of this name
    do_action = module.do_action

    def broken(action, i, *arguments):
        if i == 1:
            raise ArithmeticError("no sum today")
        do_action(action, i, *arguments)

    execution = Execution(PLANS[name](3), start(np.float32), [d2l.cpu(i) for i in range(3)])
    monkeypatch.setattr(module, "do_action", broken)
    with pytest.raises(ArithmeticError, match="no sum today"):
        execution.step(*batch(7, np.float32), 0.1)
    for param, before in zip(execution.params(), start(np.float32), strict=True):
        np.testing.assert_array_equal(param, before)


def test_what_cannot_be_executed():
    plan, params, (X, y) = PLANS["layers"](2), start(np.float32), batch(3, np.float32)
    devices = [d2l.cpu(0), d2l.cpu(1)]
    with pytest.raises(ValueError, match="is for 2 devices, not 1"):
        Execution(plan, params, devices[:1])
    with pytest.raises(ValueError, match="params"):
        Execution(plan, params[:3], devices)
    with pytest.raises(PlanError, match="at the end: device 0, .* not updated"):
        Execution(plan._replace(steps=plan.steps[:-1]), params, devices)
    execution = Execution(plan, params, devices)
    for wrong, said in (
        ((X[:, :, 1:], y, 0.1), "X is .*should be float32"),
        ((X.astype(float), y, 0.1), "X is .*should be float32"),
        ((X[:0], y[:0], 0.1), "X is"),
        ((X, y[:1], 0.1), "label"),
    ):
        with pytest.raises(ValueError, match=said):
            execution.step(*wrong)


def test_backward_in_two_halves(rng):
    """I and W compute what B does; I of no weights, W of no input."""
    x, weight, bias = rng.normal(size=(3, 2, 6, 5)), rng.normal(size=(4, 2, 3, 3)), rng.normal(size=4)
    for forward, backward, arguments in (
        (d2l.conv2d, d2l.conv2d_grad, (x, weight, bias)),
        (d2l.dense, d2l.dense_grad, (x.reshape(3, -1), rng.normal(size=(60, 4)), bias)),
    ):
        y, cache = forward(*arguments)
        dy = rng.normal(size=y.shape)
        whole = backward(dy, cache)
        dx, *none = backward(dy, cache, weight_grad=False)
        assert none == [None, None]
        np.testing.assert_array_equal(dx, whole[0])
        none, *rest = backward(dy, cache, input_grad=False)
        assert none is None
        for value, expected in zip(rest, whole[1:], strict=True):
            np.testing.assert_array_equal(value, expected)
