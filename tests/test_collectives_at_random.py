"""Twelve thousand random allreduces on virtual devices: any k, n, algorithm, dtype, and uneven groups."""

import sys
import threading
import time

import numpy as np
import pytest
from conftest import sampled

import d2lmgpu as d2l
from d2lmgpu.collectives import ALGORITHMS, execute, hierarchical

EXECUTE = sys.modules["d2lmgpu.collectives.execute"]  # the module, whose name the function hides
SUMMING = sorted(set(ALGORITHMS) - {"none"})
PRIMES = [2, 3, 5, 7, 11, 13, 17, 97, 101, 997, 9973, 99991]
CASES_A_BLOCK = 1000


def random_size(rng, k):
    """From 0 to 100,000: fewer than k, primes, multiples of k, and all magnitudes alike."""
    kind = rng.integers(4)
    if kind == 0:
        return int(rng.integers(0, k + 1))
    if kind == 1:
        return int(rng.choice(PRIMES))
    size = int(10 ** rng.uniform(0, 5))
    return size // k * k if kind == 2 else size


def random_groups(rng, k):
    """Every device in one of some groups, in any order, of any sizes."""
    order = rng.permutation(k).tolist()
    cuts = sorted(rng.choice(np.arange(1, k), rng.integers(0, k), replace=False).tolist()) if k > 1 else []
    return [order[start:stop] for start, stop in zip([0, *cuts], [*cuts, k], strict=True)]


@pytest.mark.parametrize("block", sampled(range(12), 3))  # some 4 seconds each
def test_at_random(block, monkeypatch):
    rng = np.random.default_rng([2025, block])
    for case in range(CASES_A_BLOCK):
        # alternately on the host program's thread, as short ones are, and on the devices' threads
        monkeypatch.setattr(EXECUTE, "SHORT", 2**30 if case % 2 else -1)
        k = int(rng.integers(1, 18))
        n = random_size(rng, k)
        algorithm = str(rng.choice(SUMMING))
        dtype = np.dtype(rng.choice(["float16", "float32", "float64"]))
        exact = case % 4 != 0
        if exact:  # whole numbers: their sums are exact in any order, float16 included
            values = rng.integers(-60, 61, (k, n)).astype(dtype)
        else:
            values = rng.standard_normal((k, n)).astype(dtype)
        data = [d2l.put(value, d2l.cpu(i)) for i, value in enumerate(values)]
        if algorithm == "hierarchical":
            groups = random_groups(rng, k)
            execute(hierarchical(k, n, groups), data)
        else:
            d2l.allreduce(data, algorithm)
        results = np.array([d2l.to_host(array) for array in data])
        where = f"block {block}, case {case}: {algorithm}, k = {k}, n = {n}, {dtype}"
        assert results.dtype == dtype and (results == results[0]).all(), where  # the same bits everywhere
        if exact:
            assert (results[0] == values.sum(axis=0, dtype=float)).all(), where
        else:  # every one of at most k - 1 additions may round the sum of magnitudes by half a unit in the last place
            wide = values.astype(float)
            error = np.abs(results[0] - wide.sum(axis=0))
            assert (error <= k * np.finfo(dtype).eps * np.abs(wide).sum(axis=0)).all(), where


@pytest.mark.parametrize("algorithm", SUMMING)
def test_either_thread_gives_the_same_bits(algorithm, rng, monkeypatch):
    values = rng.standard_normal((5, 333)).astype(np.float32)
    results = set()
    for short in (-1, 2**30):
        monkeypatch.setattr(EXECUTE, "SHORT", short)
        data = [d2l.put(value, d2l.cpu(i)) for i, value in enumerate(values)]
        d2l.allreduce(data, algorithm)
        results |= {d2l.to_host(array).tobytes() for array in data}
    assert len(results) == 1


@pytest.mark.threads
def test_a_collective_waits_for_its_turn():
    """Devices with work to do are not overtaken by the host program's thread."""
    devices = [d2l.cpu(i) for i in range(3)]
    data = [d2l.put(np.zeros(4), device) for device in devices]
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
        data = [d2l.put(value, d2l.cpu(i)) for i, value in enumerate(values)]
        d2l.synchronize([array.device for array in data])

        def do_action(action, i, *rest, slow=slow):
            if i == slow and action.op == "copy":
                time.sleep(0.005)
            act(action, i, *rest)

        monkeypatch.setattr(EXECUTE, "do_action", do_action)
        d2l.allreduce(data, algorithm)
        for i, array in enumerate(data):
            if i != slow:
                array.device.run(np.ndarray.fill, array, -1000)
        assert np.array_equal(d2l.to_host(data[slow]), values.sum(axis=0))
