"""Collectives on devices of each kind: sums, what travels, and what is refused. Any schedule at all: see at_random."""

import sys
import threading
import time
import tracemalloc

import numpy as np
import pytest
from conftest import REAL_GPU
from schedules import SUMMING
from standin_nccl import install_nccl

import d2lmgpu as d2l
from d2lmgpu.collectives import ALGORITHMS, benchmark as measure, check_algorithm
from d2lmgpu.collectives.benchmark import parse_size

EXECUTE = sys.modules["d2lmgpu.collectives.execute"]  # the module, whose name the function hides
SHORT = pytest.mark.parametrize("short", [-1, 2**30])
"""Each device does its own part, or one thread those of all."""


def put(values, devices):
    return [d2l.put(value, device) for value, device in zip(values, devices, strict=True)]


@pytest.mark.parametrize("algorithm", SUMMING)
def test_every_device_gets_the_sum(make_devices, rng, algorithm):
    """In place, the same bits everywhere; the values are whole numbers but for some, no two devices' alike."""
    for k in (1, 2, 3, 5, 8):
        for n in (0, 7, 97):
            values = rng.integers(-100, 100, (k, n)).astype(np.float32)
            values[:, n // 2 :] += rng.random((k, n - n // 2), np.float32)
            data = put(values, make_devices(k))
            raws = [array.raw for array in data]
            d2l.allreduce(data, algorithm)
            results = np.array([d2l.to_host(array) for array in data])
            for array, raw in zip(data, raws, strict=True):
                assert array.raw is raw  # nothing was rebound
            assert results.dtype == np.float32 and (results == results[0]).all()
            total = values.astype(float).sum(axis=0)
            assert (results[0, : n // 2] == total[: n // 2]).all()
            np.testing.assert_allclose(results[0], total, atol=1e-4, rtol=0)


def test_a_part_of_a_larger_buffer(make_devices):
    buffers = put([np.arange(10.0) * (i + 1) for i in range(3)], make_devices(3))
    d2l.allreduce([buffer[2:7] for buffer in buffers], "ring")
    for i, buffer in enumerate(buffers):
        expected = np.arange(10.0) * (i + 1)
        expected[2:7] = np.arange(2.0, 7) * 6
        np.testing.assert_array_equal(d2l.to_host(buffer), expected)


@pytest.mark.parametrize("k", [2, 8])
def test_what_travels(make_devices, k):
    """Bytes counted on the wire: naive sends all through device 0, the others 2(k-1)/k·n from each device."""
    n, devices = 16 * k, make_devices(k)
    for algorithm in ("naive", "ring", "halving_doubling", "sharded", "bidirectional_ring"):
        data = put(np.ones((k, n), np.float32), devices)
        with d2l.record_transfers() as transfers:
            d2l.allreduce(data, algorithm)
        sent = [sum(t.nbytes for t in transfers if t.source == str(device)) for device in devices]
        received = [sum(t.nbytes for t in transfers if t.destination == str(device)) for device in devices]
        expected = [2 * (k - 1) * 4 * n // k] * k
        if algorithm == "naive":
            expected = [(k - 1) * 4 * n] + [4 * n] * (k - 1)
        assert sent == received == expected, algorithm


def test_sizes_as_people_write_them():
    assert [parse_size(text) for text in ("4", "4K", "512k", "64MB", "1G", " 10 ")] == [4, 4096, 2**19, 2**26, 2**30, 8]


def test_measured_beside_others_and_never_with_a_wrong_sum(monkeypatch):
    devices = [d2l.cpu(0), d2l.cpu(1)]
    rows = list(measure.measure_allreduce(devices, ["ring", ALGORITHMS["tree"]], [4096]))
    assert [(row.algorithm, row.steps, row.correct) for row in rows] == [("ring", 2, True), ("tree", 2, True)]

    def forgetful(data, algorithm):
        d2l.allreduce(data[:1], algorithm)

    monkeypatch.setattr(measure, "allreduce", forgetful)
    with pytest.raises(RuntimeError, match="wrong sum"):
        list(measure.measure_allreduce(devices, ["ring"], [400]))


def test_nccl_says_what_it_needs(device_kind):
    make = d2l.cpu if device_kind == "cpu" else d2l.gpu
    if device_kind == "gpu" and len({make(i).card for i in range(3)}) == 3:
        pytest.skip("three cards: NCCL would run")
    data = put(np.ones((3, 3), np.float32), [make(i) for i in range(3)])
    with pytest.raises(d2l.DeviceError, match="needs at least two GPUs" if device_kind == "cpu" else "share cards"):
        d2l.allreduce(data, "nccl")


@pytest.mark.parametrize("device_kind", ["standin", REAL_GPU], indirect=True)
def test_nccl_runs_on_cards_of_their_own(make_devices, device_kind, monkeypatch):
    """With real GPUs the real NCCL; on the stand-in, that each communicator is called once, on its device."""
    devices, values = make_devices(2), np.arange(10, dtype=np.float32).reshape(2, 5)
    if devices[0].card == devices[1].card:
        pytest.skip("NCCL needs two cards")
    calls, data = None if device_kind == "gpu" else install_nccl(monkeypatch), put(values, devices)
    try:
        d2l.allreduce(data, "nccl")
    except d2l.DeviceError as error:
        if "CuPy finds no NCCL here" not in str(error):
            raise
        pytest.skip(str(error))
    d2l.synchronize(devices)
    if device_kind == "gpu":
        for array in data:
            np.testing.assert_array_equal(d2l.to_host(array), values.sum(axis=0))
    else:
        assert sorted(calls) == [(0, 5, "float32", "sum", 1), (1, 5, "float32", "sum", 1)]
    with pytest.raises(ValueError, match="int32 is not among"):
        d2l.allreduce(put(np.arange(6, dtype=np.int32).reshape(2, 3), devices), "nccl")


@SHORT
@pytest.mark.parametrize("algorithm", ["ring", "recursive_doubling"])  # without and with messages that are staged
def test_no_arrays_are_allocated_once_it_runs(algorithm, short, monkeypatch):
    """Neither on the host program's thread nor on the devices': staging buffers are reused."""
    monkeypatch.setattr(EXECUTE, "SHORT", short)
    devices = [d2l.cpu(i) for i in range(4)]
    data = put(np.zeros((4, 250_000), np.float32), devices)

    def run():
        d2l.allreduce(data, algorithm)
        d2l.synchronize(devices)

    run()
    tracemalloc.start()
    try:
        run()
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        run()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak - before < 100_000  # an array of a device has 1,000,000 bytes, a chunk of it 250,000


def test_a_name_of_ones_own(monkeypatch):
    """What a person enters in `ALGORITHMS` is known from then on, to training, too."""
    monkeypatch.setitem(ALGORITHMS, "mine", ALGORITHMS["tree"])
    data = put(np.full((3, 5), 2.0), [d2l.cpu(i) for i in range(3)])
    d2l.allreduce(data, "mine")
    assert all((d2l.to_host(array) == 6).all() for array in data)
    check_algorithm("mine", training=True)
    with pytest.raises(ValueError, match=r"'mime' is unknown; .*; did you mean mine\?"):
        check_algorithm("mime", training=True)


@pytest.mark.threads
def test_a_collective_waits_for_its_turn():
    """Devices with work to do are not overtaken by the host program's thread."""
    devices = [d2l.cpu(i) for i in range(3)]
    data = put(np.zeros((3, 4)), devices)
    gate = threading.Event()

    def fill(array):
        gate.wait(30)
        array[:] = 5

    devices[1].run(fill, data[1])
    d2l.allreduce(data, "ring")
    later = devices[2].run(np.multiply, data[2], 2)
    assert not later.done()
    gate.set()
    assert d2l.to_host(later.result()).tolist() == [10] * 4
    assert d2l.to_host(data[0]).tolist() == [5] * 4


@pytest.mark.parametrize("algorithm", SUMMING)
def test_what_overwrites_an_array_waits_for_all_who_still_read_it(algorithm, rng, monkeypatch):
    """A long collective's readers are slow; each device has done its own part when its array is overwritten."""
    monkeypatch.setattr(EXECUTE, "SHORT", -1)
    k, act = 5, EXECUTE.do_action
    for slow in range(k):
        values = rng.integers(-60, 61, (k, 1009)).astype(np.float32)
        data = put(values, [d2l.cpu(i) for i in range(k)])
        d2l.synchronize([array.device for array in data])

        def do_action(action, i, *rest, slow=slow):
            if i == slow and action.op == "copy":
                time.sleep(0.003)
            act(action, i, *rest)

        monkeypatch.setattr(EXECUTE, "do_action", do_action)
        d2l.allreduce(data, algorithm)
        for i, array in enumerate(data):
            if i != slow:
                array.device.run(np.ndarray.fill, array, -1000)
        assert np.array_equal(d2l.to_host(data[slow]), values.sum(axis=0))
