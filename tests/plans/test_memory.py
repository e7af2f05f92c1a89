"""Limits to the memory of devices: what is counted, and what happens to one too many."""

import gc
import tracemalloc

import numpy as np
import pytest
import standin_cupy
from conftest import long
from one_device import ONE_UNIT, examples, first_params

import d2lmgpu as d2l
from d2lmgpu.devices import DeviceMemoryError
from d2lmgpu.devices.cpu import MemoryAccounting
from d2lmgpu.kernels.cpu import Pass
from d2lmgpu.layers import Draws
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
from d2lmgpu.plans import PLANS, Execution, copies_of, prove
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


class _PeakAccounting(MemoryAccounting):
    peak = 0

    def enter(self, raw):
        super().enter(raw)
        self.peak = max(self.peak, self.used)


def assert_memory(plan, n, optimizer, dtype):
    """Two steps of n examples take at most what is predicted, and at least 95 % of it; between steps all of it."""
    X, y = examples(plan.network, n, dtype)
    devices = [d2l.cpu(20 + i) for i in range(plan.k)]
    proof = prove(plan, len(y), optimizer, np.dtype(dtype).name)
    try:
        for device in devices:
            device.accounting = _PeakAccounting(device, 2**40)
        execution = Execution(plan, first_params(plan.network, dtype), devices, optimizer)
        for _ in range(2):
            execution.step(X, y, 0.01, draws=Draws(0))
            assert [device.accounting.used for device in devices] == proof.between
        for device, peak in zip(devices, proof.peak, strict=True):
            assert device.accounting.peak <= peak <= 1.05 * device.accounting.peak
    finally:
        for device in devices:
            device.accounting = None


OF_ALL_LAYERS = sequential(
    (2, 15, 14),
    *(Conv2d(7, 3, padding=1), BatchNorm(), ReLU(), MaxPool2d(), Dropout(0.2), Conv2d(9, 3, padding=2), Conv2d(8, 3)),
    *(ReLU(), Conv2d(6, 3, stride=2), AvgPool2d(2), Flatten(), Dense(33), BatchNorm(), ReLU(), Dropout(0.5), Dense(5)),
)
KNOWN = {**NETWORKS, "of all layers": OF_ALL_LAYERS, "one unit": ONE_UNIT}


COPIED = [f"data=2,{name}" for name in ("layers", "gpipe", "1f1b", "zero-bubble", "channels")]
ROWS = [  # network, devices, micro-batches, examples, optimiser, dtype
    ("of all layers", 2, 3, 29, "adam", np.float32),
    *long(("one unit", 3, 2, 2, "momentum", np.float64), ("lenet", 2, 1, 150, "adam", np.float32)),
    *(pytest.param(name, 2, 3, 29, "adam", np.float32, marks=pytest.mark.nightly) for name in NETWORKS),
]


@pytest.mark.parametrize("network, k, micro_batches, n, optimizer, dtype", ROWS)
@pytest.mark.parametrize("name", [*PLANS, *long(*COPIED)])
def test_memory_is_what_was_predicted(name, network, k, micro_batches, n, optimizer, dtype):
    """Of 150 examples kernels take several parts."""
    if name in COPIED:
        plan = copies_of(name[7:], 2, k, micro_batches, network=KNOWN[network])
    else:
        plan = PLANS[name](k, micro_batches, network=KNOWN[network])
    assert_memory(plan, n, optimizer, dtype)


@pytest.mark.parametrize("name", NETWORKS)
def test_what_kernels_keep_is_what_they_hold(name):
    """As Python's tracing of memory counts it: each array once, and no view."""
    network, papers = NETWORKS[name], {}
    params = init_params(network=network)
    arguments = with_shapes(network, params), params, network.input_shape, np.float32, 70, False, True, None
    Pass(*arguments, {})  # what is made once and kept for ever
    tracemalloc.start()
    try:
        kept = Pass(*arguments, papers)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    counted = [*owned_arrays(kept, papers), *(array for paper in papers.values() for array in paper)]
    assert sum(array.nbytes for array in counted) == pytest.approx(held, rel=0.01)


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
