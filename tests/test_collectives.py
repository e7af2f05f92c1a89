"""Schedules as data, and executed: sums are exact because the values are whole numbers, different everywhere."""

import sys
import tracemalloc

import numpy as np
import pytest
from conftest import REAL_GPU, long
from standin_nccl import install_nccl

import d2lmgpu as d2l
from d2lmgpu.collectives import ALGORITHMS, ScheduleError, Transfer, check_algorithm, execute, measuring as measure
from d2lmgpu.collectives.benchmark import parse_size

SUMMING = sorted(set(ALGORITHMS) - {"none"})
SIZES = [0, 1, 2, 3, 7, 8, 97, 1000]


def different_values(k, n, dtype, rng):
    """Whole numbers whose sums are exact in ``dtype``, no two devices alike."""
    return [rng.integers(-100, 100, n).astype(dtype) for _ in range(k)]


@pytest.mark.parametrize("dtype", [np.float32, *long(np.float16, np.float64)])
@pytest.mark.parametrize("k", [1, 2, 3, *long(4), 5, 8])
@pytest.mark.parametrize("algorithm", SUMMING)
def test_every_device_gets_the_sum(make_devices, rng, algorithm, k, dtype):
    devices = make_devices(k)
    for n in SIZES:
        values = different_values(k, n, dtype, rng)
        data = [d2l.put(value, device) for value, device in zip(values, devices, strict=True)]
        raws = [array.raw for array in data]
        d2l.allreduce(data, algorithm)
        for array, raw, device in zip(data, raws, devices, strict=True):
            assert array.raw is raw and array.device is device  # in place: nothing was rebound
            assert array.dtype == dtype
            np.testing.assert_array_equal(d2l.to_host(array), sum(values))


@pytest.mark.parametrize("algorithm", SUMMING)
def test_same_bits_everywhere_and_every_time(make_devices, rng, algorithm):
    devices = make_devices(5)
    values = rng.normal(size=(5, 3, 11)).astype(np.float32)
    runs = []
    for _ in range(3):
        data = [d2l.put(value, device) for value, device in zip(values, devices, strict=True)]
        d2l.allreduce(data, algorithm)
        runs += [d2l.to_host(array).tobytes() for array in data]
    assert len(set(runs)) == 1
    np.testing.assert_allclose(d2l.to_host(data[0]), values.astype(float).sum(axis=0), atol=1e-5)


def test_the_textbooks_example(make_devices):
    data = [d2l.put(np.ones((1, 2)) * (i + 1), device) for i, device in enumerate(make_devices(2))]
    d2l.allreduce(data)
    assert [d2l.to_host(array).tolist() for array in data] == [[[3, 3]], [[3, 3]]]


def test_a_part_of_a_larger_buffer(make_devices):
    buffers = [d2l.put(np.arange(10.0) * (i + 1), device) for i, device in enumerate(make_devices(3))]
    d2l.allreduce([buffer[2:7] for buffer in buffers], "ring")
    for i, buffer in enumerate(buffers):
        expected = np.arange(10.0) * (i + 1)
        expected[2:7] = np.arange(2.0, 7) * 6
        np.testing.assert_array_equal(d2l.to_host(buffer), expected)


@pytest.mark.parametrize("k", [2, 4, 8])
def test_what_travels(make_devices, k):
    """Bytes counted on the wire: naive sends all through device 0, the others 2(k-1)/k·n from each device."""
    n = 16 * k
    for algorithm in ("naive", "ring", "halving_doubling", "sharded", "bidirectional_ring"):
        devices = make_devices(k)
        data = [d2l.put(np.ones(n, np.float32), device) for device in devices]
        with d2l.record_transfers() as transfers:
            d2l.allreduce(data, algorithm)
        sent = [sum(t.nbytes for t in transfers if t.source == str(device)) for device in devices]
        received = [sum(t.nbytes for t in transfers if t.destination == str(device)) for device in devices]
        expected = [2 * (k - 1) * 4 * n // k] * k
        if algorithm == "naive":
            expected = [(k - 1) * 4 * n] + [4 * n] * (k - 1)
        assert sent == received == expected, algorithm
        assert all(t.seconds > 0 for t in transfers)


def test_the_ring_sends_to_the_right_neighbour_only():
    schedule = ALGORITHMS["ring"](3, 7)
    assert len(schedule) == 4 and all(len(step) == 3 for step in schedule)
    assert all(t.destination == (t.source + 1) % 3 for step in schedule for t in step)
    assert schedule[0] == [Transfer(0, 1, 5, 7, "add"), Transfer(1, 2, 0, 3, "add"), Transfer(2, 0, 3, 5, "add")]


def test_all_reads_of_a_step_come_before_its_writes(make_devices):
    """Two devices exchange whole buffers: the second reader must not see the first one's write."""
    data = [d2l.put(np.full(1000, float(i)), device) for i, device in enumerate(make_devices(2))]
    execute([[Transfer(0, 1, 0, 1000, "copy"), Transfer(1, 0, 0, 1000, "copy")]], data)
    assert [d2l.to_host(array)[[0, -1]].tolist() for array in data] == [[1, 1], [0, 0]]


@pytest.mark.parametrize("short", [-1, 2**30])
def test_any_schedule_does_what_its_definition_says(short, rng, monkeypatch):
    """Steps in which many overwrite what many read: each message is what its source held when the step began."""
    monkeypatch.setattr(sys.modules["d2lmgpu.collectives.execute"], "SHORT", short)
    for k in (2, 3, 5, 8):
        held = rng.integers(-9, 10, (k, 23))
        data = [d2l.put(values, d2l.cpu(i)) for i, values in enumerate(held)]
        schedule = []
        for _ in range(6):
            step = []
            for _ in range(rng.integers(0, 3 * k)):
                source, destination = rng.choice(k, 2, replace=False).tolist()
                start, stop = np.sort(rng.integers(0, 24, 2)).tolist()
                step.append(Transfer(source, destination, start, stop, ("add", "copy")[rng.integers(2)]))
            schedule.append(step)
            before = held.copy()
            for t in step:  # what goes to one place, goes there in the order of the list
                target = held[t.destination, t.start : t.stop]
                target[...] = before[t.source, t.start : t.stop] + (target if t.op == "add" else 0)
        execute(schedule, data)
        assert np.array_equal(held, [d2l.to_host(array) for array in data])


def test_a_schedule_of_ones_own_is_checked_before_it_runs(make_devices):
    one, other = make_devices(2)
    a, b = d2l.put(np.zeros((4, 6)), one), d2l.put(np.zeros((4, 6)), other)
    for transfer in (Transfer(0, 2, 0, 5, "add"), Transfer(0, 1, 0, 25, "add"), Transfer(0, 1, 0, 5, "max")):
        with pytest.raises(ScheduleError, match="step 1"):
            execute([[transfer]], [a, b])
    with pytest.raises(ValueError, match="contiguous"):  # or the result would be lost in a copy
        execute([[Transfer(0, 1, 0, 8, "add")]], [a[:, :2], b[:, :2]])


def test_wrong_arrays_and_names(make_devices):
    one, other = make_devices(2)
    a = d2l.put(np.zeros((4, 6)), one)
    cases = [
        ([], "empty"),
        ([np.zeros(3)], "not on a device"),
        ([a, d2l.put(np.zeros((6, 4)), other)], "alike"),
        ([a, d2l.put(np.zeros((4, 6), np.float32), other)], "alike"),
        ([a, a], "twice"),
        ([a[:, :2], d2l.put(np.zeros((4, 6)), other)[:, :2]], "contiguous"),
    ]
    for data, message in cases:
        with pytest.raises(ValueError, match=message):
            d2l.allreduce(data)
    with pytest.raises(ValueError, match="choose from .*naive.*ring"):
        d2l.allreduce([a, d2l.put(np.zeros((4, 6)), other)], "rnig")


def test_sizes_as_people_write_them():
    assert [parse_size(text) for text in ("4", "4K", "512k", "64MB", "1G", " 10 ")] == [4, 4096, 2**19, 2**26, 2**30, 8]


def test_a_wrong_sum_is_never_timed(monkeypatch):
    def forgetful(data, algorithm):
        d2l.allreduce(data[:1], algorithm)

    monkeypatch.setattr(measure, "allreduce", forgetful)
    with pytest.raises(RuntimeError, match="wrong sum"):
        list(measure.measure_allreduce([d2l.cpu(0), d2l.cpu(1)], ["ring"], [400]))


def test_nccl_says_what_it_needs(device_kind):
    make = d2l.cpu if device_kind == "cpu" else d2l.gpu
    cards = {getattr(make(i), "card", None) for i in range(3)}
    if device_kind == "gpu" and len(cards) == 3:
        pytest.skip("three cards: NCCL would run")
    data = [d2l.put(np.ones(3, np.float32), make(i)) for i in range(3)]
    with pytest.raises(d2l.DeviceError, match="needs at least two GPUs" if device_kind == "cpu" else "share cards"):
        d2l.allreduce(data, "nccl")


@pytest.mark.parametrize("device_kind", ["standin", REAL_GPU], indirect=True)
def test_nccl_runs_on_cards_of_their_own(make_devices, device_kind, monkeypatch):
    """With real GPUs the real NCCL; on the stand-in, that each communicator is called once, on its device."""
    devices = make_devices(2)
    if devices[0].card == devices[1].card:
        pytest.skip("NCCL needs two cards")
    values = [np.arange(5, dtype=np.float32), np.full(5, 10, np.float32)]
    data = [d2l.put(value, device) for value, device in zip(values, devices, strict=True)]
    if device_kind == "gpu":
        try:
            d2l.allreduce(data, "nccl")
        except d2l.DeviceError as error:
            if "CuPy finds no NCCL here" not in str(error):
                raise
            pytest.skip(str(error))
        for array in data:
            np.testing.assert_array_equal(d2l.to_host(array), sum(values))
        return
    calls = install_nccl(monkeypatch)
    d2l.allreduce(data, "nccl")
    d2l.synchronize(devices)
    assert sorted(calls) == [(0, 5, "float32", "sum", 1), (1, 5, "float32", "sum", 1)]
    with pytest.raises(ValueError, match="int32 is not among"):
        d2l.allreduce([d2l.put(np.arange(3, dtype=np.int32), device) for device in devices], "nccl")


@pytest.mark.parametrize("short", [-1, 2**30])
@pytest.mark.parametrize("algorithm", SUMMING)
def test_no_arrays_are_allocated_once_it_runs(algorithm, short, monkeypatch):
    """Neither on the host program's thread nor on the devices': staging buffers are reused."""
    monkeypatch.setattr(sys.modules["d2lmgpu.collectives.execute"], "SHORT", short)
    devices = [d2l.cpu(i) for i in range(4)]
    data = [d2l.put(np.zeros(250_000, np.float32), device) for device in devices]

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


def test_an_algorithm_of_ones_own(monkeypatch):
    """What a person enters in `ALGORITHMS` is known from then on, to training, too."""
    monkeypatch.setitem(ALGORITHMS, "mine", ALGORITHMS["tree"])
    data = [d2l.put(np.full(5, i + 1.0), d2l.cpu(i)) for i in range(3)]
    d2l.allreduce(data, "mine")
    assert all((d2l.to_host(array) == 6).all() for array in data)
    check_algorithm("mine", training=True)
    with pytest.raises(ValueError, match=r"'mime' is unknown; .*; did you mean mine\?"):
        check_algorithm("mime", training=True)
