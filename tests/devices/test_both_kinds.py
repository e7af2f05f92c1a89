"""GPUs and virtual devices in one run: they take part in collectives and steps like any others."""

import numpy as np
import pytest
from conftest import REAL_GPU, assert_close, few
from gpus import assert_as, small_data, train

import d2lmgpu as d2l
from d2lmgpu.collectives import ALGORITHMS
from d2lmgpu.devices import choose_devices, parse_devices

KINDS = {2: "gc", 3: "cgc", 5: "ggcgc", 8: "cgcgcggc"}


@pytest.fixture(params=["standin", REAL_GPU])
def make_both(request, monkeypatch):
    """A function from k to a list of k devices, of both kinds."""
    if request.param == "standin":
        request.getfixturevalue("standin")
        monkeypatch.setattr("d2lmgpu.networks.compute.USE_CUDA_KERNELS", False)
    return lambda k: [d2l.gpu(i) if kind == "g" else d2l.cpu(i) for i, kind in enumerate(KINDS[k])]


CASES = [(algorithm, k) for algorithm in ALGORITHMS if algorithm != "none" for k in KINDS]


@pytest.mark.parametrize("algorithm, k", few(CASES, ("ring", 3), ("tree", 5), parts=4))
def test_allreduce(make_both, rng, algorithm, k):
    """Twice, with work of each device before, between and after; long arrays and such as are shorter than k."""
    devices = make_both(k)
    for n in (3, 1001, 2**20 // 8 + 5):
        values = [rng.normal(0, 1, n) for _ in devices]
        arrays = [d2l.put(value, device) for value, device in zip(values, devices, strict=True)]
        for array in arrays:
            array *= 2
        d2l.allreduce(arrays, algorithm)
        for i, array in enumerate(arrays):
            array += i
        d2l.allreduce(arrays, algorithm)
        for array in arrays:
            array -= 1
        expected = 2 * k * np.sum(values, axis=0) + k * (k - 1) / 2 - 1
        for array in arrays:
            assert d2l.to_host(array).tobytes() == d2l.to_host(arrays[0]).tobytes()
            assert_close(array, expected, 1e-12)


@pytest.mark.parametrize("overlap", [False, True])
def test_training(make_both, rng, overlap):
    data = small_data(rng)
    both = train(make_both(3), data, loads=[1, 2, 0.5], precision="float32", overlap=overlap, optimizer="momentum")
    assert both.history.environment == "gpu+cpu" and both.history.devices == ["cpu(0)", "gpu(1)", "cpu(2)"]
    assert_as(both, train([d2l.cpu(5)], data, optimizer="momentum"))


def test_choosing_by_name(make_both):
    assert choose_devices("auto", parse_devices("gpu:0, cpu:1")) == ("gpu+cpu", [d2l.gpu(0), d2l.cpu(1)])
    assert choose_devices("auto", ["cpu:3"]) == ("cpu", [d2l.cpu(3)])
