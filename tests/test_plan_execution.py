"""Plans executed: k devices do what one does, with the memory that was predicted, and the bytes of the formulas."""

import itertools
import threading

import numpy as np
import pytest
from conftest import TOLERANCE, assert_close, few, long, sampled
from test_plans import DEEP

import d2lmgpu as d2l
from d2lmgpu.devices import DeviceMemoryError
from d2lmgpu.devices.cpu import MemoryAccounting
from d2lmgpu.layers import Draws
from d2lmgpu.networks import LENET, Conv2d, Dense, Flatten, MaxPool2d, ReLU, init_params, sequential
from d2lmgpu.optimizers import OPTIMIZERS, Optimizer
from d2lmgpu.plans import PLANS, Execution, PlanError, copies_of, cut, execute, prove

SMALL = sequential((2, 6, 5), Conv2d(3, 2), ReLU(), MaxPool2d(), Conv2d(5, 2), ReLU(), Flatten(), Dense(4), Dense(3))
"""Fewer channels than most numbers of devices."""
PIPELINES = ("layers", "gpipe", "1f1b", "zero-bubble")
DEFINED = itertools.product(["lenet", "deep"], PLANS, range(1, 9))
DEFINED = [case for case in DEFINED if case[0] == "deep" or case[1] not in PIPELINES or case[2] <= 4]
"""LeNet has four layers with parameters, and a pipeline no more stages."""
SIZES = {"full": 24, "ragged": 13, "fewer": 2}  # examples: of 24 micro-batches of equal size, and of 8 devices
EVERYTHING = [(*case, size, dtype) for case in DEFINED for size in SIZES for dtype in (np.float32, np.float64)]
"""These take about half an hour."""


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


def assert_gradients(name, k, micro_batches, devices, n, dtype, network=LENET):
    check_gradients(PLANS[name](k, micro_batches, network=network), devices, n, dtype)


def check_gradients(plan, devices, n, dtype=np.float64):
    """The plan's loss and gradients for n examples are those of one device."""
    X, y = batch(n, dtype, plan.network)
    params = start(dtype, plan.network)
    loss, grads = execute(plan, X, y, params, devices, 0.1, GRADIENTS)
    expected_loss, expected = d2l.loss_and_grads(X, y, params, network=plan.network)
    assert loss == pytest.approx(float(expected_loss), rel=TOLERANCE[np.dtype(dtype)])
    for grad, alone in zip(grads, expected, strict=True):
        assert_close(grad, alone, TOLERANCE[np.dtype(dtype)])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", few(SIZES, "ragged"))
@pytest.mark.parametrize("k, micro_batches", [(1, 1), (2, 3), (4, 2)])
@pytest.mark.parametrize("name", PLANS)
def test_gradients_are_those_of_one_device(name, k, micro_batches, size, dtype):
    assert_gradients(name, k, micro_batches, [d2l.cpu(i) for i in range(k)], SIZES[size], dtype)


@pytest.mark.parametrize("name", [*PIPELINES, "channels"])
@pytest.mark.parametrize("copies, k, micro_batches", [(2, 2, 3), *long((2, 4, 2), (3, 2, 1), (1, 3, 2))])
def test_copies(name, copies, k, micro_batches):
    """Devices with the same part of the parameters exchange their gradients."""
    plan, devices = copies_of(name, copies, k, micro_batches), [d2l.cpu(i) for i in range(copies * k)]
    for n, dtype in (13, np.float64), (2, np.float32):
        check_gradients(plan, devices, n, dtype)
    with d2l.record_transfers() as transfers:
        execute(plan, *batch(12, np.float32), start(np.float32), devices)
    between = [t for t in transfers if "host" not in (t.source, t.destination)]
    assert sum(t.nbytes for t in between) == sum(prove(plan, 12).sent)
    column = sum(t.nbytes for t in between if (int(t.source[4:-1]) - int(t.destination[4:-1])) % k == 0)
    assert column == 4 * 2 * (copies - 1) * 129_068 or k == 1


@pytest.mark.parametrize("network, name, k, size, dtype", sampled(EVERYTHING, 10))
def test_gradients_with_any_number_of_devices_and_micro_batches(network, name, k, size, dtype):
    network = {"lenet": LENET, "deep": DEEP}[network]
    for micro_batches in range(1, 9):
        assert_gradients(name, k, micro_batches, [d2l.cpu(i) for i in range(k)], SIZES[size], dtype, network)


@pytest.mark.parametrize("k, micro_batches", [(2, 2), *long((1, 3), (4, 3))])
@pytest.mark.parametrize("name", PLANS)
def test_on_each_kind_of_device(name, k, micro_batches, make_devices):
    assert_gradients(name, k, micro_batches, make_devices(k), 5, np.float32)
    assert_gradients(name, k, micro_batches, make_devices(k), 1, np.float64)


def test_on_devices_of_both_kinds(standin, monkeypatch):
    monkeypatch.setattr("d2lmgpu.networks.compute.USE_CUDA_KERNELS", False)
    for name in PLANS:
        assert_gradients(name, 3, 2, [d2l.gpu(0), d2l.cpu(1), d2l.gpu(1)], 5, np.float32)


@pytest.mark.parametrize("name", PLANS)
def test_on_the_kernels_of_gpus(name, standin):
    """And with virtual devices beside them; examples and units are few, since the CPU does what the kernels do."""
    gpus = [d2l.gpu(0), d2l.gpu(1)]
    assert_gradients(name, 2, 2, gpus, 7, np.float32, SMALL)
    assert_gradients(name, 3, 1, [gpus[1], d2l.cpu(1), gpus[0]], 2, np.float32, SMALL)


@pytest.mark.parametrize("k, micro_batches", [(1, 1), (2, 1), (2, 3), (3, 2)])
def test_data_is_the_textbooks_step_bit_for_bit(k, micro_batches):
    """Where a device's shard is one micro-batch; more of them are added in another order."""
    devices = [d2l.cpu(i) for i in range(k)]
    for n, dtype in (150, np.float32), (7, np.float64):
        (X, y), params = batch(n, dtype), start(dtype)
        loss, after = execute(PLANS["data"](k, micro_batches), X, y, params, devices, 0.1)
        device_params = [d2l.get_params(params, device) for device in devices]
        expected = d2l.train_batch(X, y, device_params, devices, 0.1, "ring", flat=True)
        assert (
            loss == expected if micro_batches == 1 else loss == pytest.approx(expected, rel=TOLERANCE[np.dtype(dtype)])
        )
        for param, other in zip(after, device_params[0], strict=True):
            if micro_batches == 1:
                np.testing.assert_array_equal(param, d2l.to_host(other))
            else:
                assert_close(param, d2l.to_host(other), TOLERANCE[np.dtype(dtype)])


def trained(plan, devices, optimizer, dtype, sizes=(24, 13, 7, 1, 3)):
    """Five steps: losses, and the parameters after them."""
    execution = Execution(plan, start(dtype, plan.network), devices, optimizer)
    losses = [
        execution.step(*batch(n, dtype, plan.network, seed), lr=0.05 if optimizer != "adam" else 0.002)
        for seed, n in enumerate(sizes)
    ]
    return losses, execution.params()


def one_device(network, optimizer, dtype, sizes=(24, 13, 7, 1, 3), done={}):  # noqa: B006
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


CASES = list(itertools.product(["sgd", "momentum", "adam"], ["lenet", "deep"], [(2, 3), (4, 8), (8, 2)]))


@pytest.mark.parametrize("optimizer, network, size", few(CASES, ("momentum", "lenet", (2, 3))))
@pytest.mark.parametrize("name", PLANS)
def test_parameters_after_five_steps(name, optimizer, network, size):
    network = {"lenet": LENET, "deep": DEEP}[network]
    k = min(size[0], 4) if network is LENET and name in PIPELINES else size[0]
    plan = PLANS[name](k, size[1], network=network)
    losses, params = trained(plan, [d2l.cpu(i) for i in range(k)], optimizer, np.float64)
    expected_losses, expected = one_device(network, optimizer, np.float64)
    assert losses == pytest.approx(expected_losses, rel=1e-10)
    for param, alone in zip(params, expected, strict=True):
        assert_close(param, alone, 1e-10)


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


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("k, micro_batches", [(2, 3), *long((4, 1), (3, 8))])
def test_bytes_that_travel(name, k, micro_batches, make_devices):
    """Recorded, proved, and by the formulas of the plans' docstrings."""
    plan = PLANS[name](k, micro_batches)
    devices, (X, y) = make_devices(k), batch(11, np.float32)
    execution = Execution(plan, start(np.float32), devices)
    with d2l.record_transfers() as transfers:
        execution.step(X, y, 0.1)
    sent = {str(device): 0 for device in devices}
    for transfer in transfers:
        if "host" not in (transfer.source, transfer.destination):
            sent[transfer.source] += transfer.nbytes
    assert list(sent.values()) == prove(plan, 11).sent
    if name in PIPELINES:
        handed_on = {2: [20 * 13 * 13], 3: [20 * 13 * 13, 800], 4: [20 * 13 * 13, 800, 128]}[k]
        assert sum(sent.values()) == 2 * 4 * 11 * sum(handed_on)
    elif name == "channels":
        assert sum(sent.values()) == 4 * 11 * (k - 1) * (2 * (20 * 13 * 13 + 800 + 128) + 10)
    else:
        times = {"data": 2, "zero1": 2, "zero2": micro_batches + 1, "zero3": 3 * micro_batches}[name]
        assert sum(sent.values()) == 4 * times * (k - 1) * 129_068


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
    for s, micro_batch in (0, 1), (1, 0):
        forward = execution.stores[s]._F

        def wait(action, forward=forward, mine=begun[s], other=begun[1 - s], micro_batch=micro_batch):
            if action.micro_batch == micro_batch:
                mine.set()
                assert other.wait(30)
            forward(action)

        execution.stores[s]._F = wait
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
