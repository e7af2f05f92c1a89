"""Limits to the memory of devices: what is counted, and what happens to one too many."""

import gc
import tracemalloc

import numpy as np
import pytest
import standin_cupy
from conftest import few, long
from test_plan_execution import assert_memory
from test_training import quick

import d2lmgpu as d2l
from d2lmgpu.devices import DeviceMemoryError
from d2lmgpu.kernels.cpu import Pass
from d2lmgpu.layers.functions import with_shapes
from d2lmgpu.networks import (
    NETWORKS,
    AvgPool2d,
    BatchNorm,
    Conv2d,
    Dense,
    Dropout,
    Flatten,
    MaxPool2d,
    ReLU,
    init_params,
    sequential,
)
from d2lmgpu.plans import PLANS, copies_of
from d2lmgpu.plans.proof.sizes import owned_arrays


@pytest.fixture
def limited():
    """A virtual device that may take 1,000 bytes."""
    device = d2l.cpu(7)
    device.limit_memory(1000)
    yield device
    device.limit_memory(None)


def test_arrays_are_counted_while_they_live(limited):
    x = d2l.put(np.ones(50, np.float32), limited)  # 200 bytes
    assert limited.accounting.used == 200
    views = x[10:], x.T, x.reshape(5, 10)
    assert limited.accounting.used == 200
    y = x + x
    assert limited.accounting.used == 400
    del x, y
    gc.collect()
    assert limited.accounting.used == 200  # the views still look at x
    del views
    gc.collect()
    assert limited.accounting.used == 0


def test_one_too_many(limited):
    x = d2l.put(np.ones(100), limited)  # 800 bytes
    with pytest.raises(
        DeviceMemoryError, match=r"cpu\(7\) is out of memory: 800 bytes asked for, 800 of its limit of 1,000"
    ):
        d2l.put(x, limited)
    with pytest.raises(MemoryError, match="out of memory"):
        x + x
    with pytest.raises(d2l.DeviceError, match="out of memory"):
        limited.buffer("too large", 200, float)
    x += 1  # needs no more
    np.testing.assert_array_equal(d2l.to_host(x), 2)
    d2l.put(np.ones(25), limited)  # exactly what is left, and it is free again at once
    d2l.put(np.ones(25), limited)
    assert d2l.to_host(d2l.put(np.ones(1000), d2l.cpu(6))).sum() == 1000  # others have no limit
    limited.limit_memory(None)
    assert d2l.put(np.ones(1000), limited).nbytes == 8000
    with pytest.raises(ValueError, match="a limit in bytes is .*; it should be a whole number"):
        limited.limit_memory("4G")


OF_ALL_LAYERS = sequential(
    (2, 15, 14),
    *(Conv2d(7, 3, padding=1), BatchNorm(), ReLU(), MaxPool2d(), Dropout(0.2), Conv2d(9, 3, padding=2), Conv2d(8, 3)),
    *(ReLU(), Conv2d(6, 3, stride=2), AvgPool2d(2), Flatten(), Dense(33), BatchNorm(), ReLU(), Dropout(0.5), Dense(5)),
)
KNOWN = {**NETWORKS, "of all layers": OF_ALL_LAYERS}


@pytest.mark.parametrize(
    "k, micro_batches, n, optimizer, dtype",
    [(2, 3, 29, "adam", np.float32), *long((1, 1, 1, "sgd", np.float64), (3, 1, 5, "momentum", np.float32))],
)
@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("network", few(KNOWN, "lenet", "of all layers"))
def test_memory_is_what_was_predicted(name, network, k, micro_batches, n, optimizer, dtype):
    plan = PLANS[name](k, micro_batches, network=KNOWN[network])
    assert_memory(plan, n, optimizer, dtype)
    assert_memory(plan, n, optimizer, dtype, kernels=False)


@pytest.mark.long
@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("network", KNOWN)
def test_memory_of_many_examples_and_devices(name, network):
    """Kernels take the examples in several parts."""
    assert_memory(PLANS[name](2, 1, network=KNOWN[network]), 150, "adam", np.float32)
    if name not in ("data", "zero1", "zero2", "zero3"):  # these are copies themselves
        assert_memory(copies_of(name, 2, 2, 2, network=KNOWN[network]), 301, "adam", np.float32)


@pytest.mark.parametrize("name", NETWORKS)
def test_what_kernels_keep_is_what_they_hold(name):
    """As Python's tracing of memory counts it: each array once, and no view."""
    network, scratch = NETWORKS[name], {}
    params = init_params(network=network)
    arguments = with_shapes(network, params), params, network.input_shape, np.float32, 70, False, True, None
    Pass(*arguments, {})  # what is made once and kept for ever
    tracemalloc.start()
    try:
        kept = Pass(*arguments, scratch)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    counted = [*owned_arrays(kept, scratch), *(array for arrays in scratch.values() for array in arrays)]
    assert sum(array.nbytes for array in counted) == pytest.approx(held, rel=0.01)


def test_training_within_a_limit(small):
    """What fits trains as ever; what does not, says so before a step, and leaves the devices usable."""
    devices = [d2l.cpu(40), d2l.cpu(41)]  # of nobody else, so that they have no memory yet
    usual = quick(devices, small, num_epochs=1)
    for device in devices:
        device.limit_memory(2**21)
    try:
        assert quick(devices, small, num_epochs=1).history.train_loss == usual.history.train_loss
        for device in devices:
            device.limit_memory(600_000)  # LeNet's parameters take 516,104
        with pytest.raises(DeviceMemoryError, match="split data needs .* bytes on cpu.40., .* more than its limit"):
            quick(devices, small, num_epochs=1, optimizer="adam")
    finally:
        for device in devices:
            device.limit_memory(None)
    assert quick(devices, small, num_epochs=1).history.train_loss == usual.history.train_loss


def test_gpus_have_pools_of_their_own(standin):
    """The stand-in knows a pool's limit, and does not keep it."""
    first, second = d2l.gpu(0), d2l.gpu(1)
    first.limit_memory(1000)
    first.limit_memory(2000)  # in place of the first limit
    pools = [device.submit(lambda: getattr(standin_cupy.thread, "pools", [])).result() for device in (first, second)]
    assert [pool.limit for pool in pools[0]] == [2000] and pools[1] == []
    first.limit_memory(None)
    assert [pool.limit for pool in pools[0]] == [0]
    with pytest.raises(ValueError, match="a limit in bytes is .*; it should be a whole number"):
        second.limit_memory(-5)


def test_the_comm_stream_counts_with_its_device():
    device = d2l.cpu(61)
    stream = device.comm_stream
    try:
        device.limit_memory(1000)
        array = stream.empty(200, np.float32)
        assert device.accounting.used == array.nbytes
        with pytest.raises(DeviceMemoryError):
            stream.empty(200, np.float32)
    finally:
        device.limit_memory(None)
    assert stream.accounting is None
