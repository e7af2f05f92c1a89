"""Exact sums on GPUs, on the stand-in for CuPy: any number of devices gives the same bits.

The CPU runs the kernels, so granules here are of two images.
"""

import functools

import cuda_machines
import numpy as np
import pytest
from clusters_in_threads import in_each
from conftest import REAL_GPU, sampled, use_tiny_granules
from standin_nccl import install_nccl
from test_gpu_rules import machine  # noqa: F401
from test_graphs_of_plans import settings

import d2lmgpu as d2l
from d2lmgpu.kernels.cuda import launch
from d2lmgpu.networks import Conv2d, Dense, Dropout, Flatten, ReLU, sequential

pytestmark = pytest.mark.threads


@pytest.fixture(autouse=True)
def tiny_granules(monkeypatch):
    use_tiny_granules(monkeypatch)


@pytest.fixture(params=["shim", REAL_GPU])
def runs(request):
    return cuda_machines.OnCPU() if request.param == "shim" else cuda_machines.OnGPU()


def gpus(k):
    return [d2l.gpu(i) for i in range(k)]


@pytest.mark.parametrize("n, dst_start, src_start", [(1000, 0, 0), (1000, 1, 1), (999, 0, 1), (1, 1, 0), (5001, 1, 1)])
def test_integers_are_added_from_anywhere(runs, rng, n, dst_start, src_start):
    dst, src = (rng.integers(-(2**62), 2**62, n + 2)[first:][:n] for first in (dst_start, src_start))
    expected = dst + src
    runs.run(launch.add(n, "int64"), dst, src, np.int32(n))
    np.testing.assert_array_equal(dst, expected)


DROPPING = sequential((1, 9, 8), Conv2d(3, 3), ReLU(), Dropout(0.3), Flatten(), Dense(5), ReLU(), Dense(4))

RUNS = {
    "SGD": {},
    "Adam": {"optimizer": "adam", "lr": 0.01},
    "dropout": {"network": DROPPING},
    "another loss": {"loss": (lambda z, y: (((z - 1) ** 2).sum() / 2, z), lambda z: z - 1)},
}
WAYS = [(2, {}), (3, {"loads": [2, 0, 1]}), (2, {"flat": False, "algorithm": "tree"}), (1, {"graphs": False})]


def train(run, devices, **way):
    found = d2l.train(devices, **settings(np.random.default_rng(1), sums="exact", **(RUNS[run] | way)))
    history = found.history
    return history.final_parameters_sha256, *history.train_loss, *history.train_accuracy, *history.test_accuracy


@functools.cache
def alone(run):
    return train(run, gpus(1))


@pytest.mark.parametrize("k, way", WAYS)
@pytest.mark.parametrize("run", ["SGD", *sampled(["Adam", "dropout", "another loss"], 1)])
def test_one_result(standin, run, k, way):
    assert train(run, gpus(k), **way) == alone(run)


def test_processes(machine):  # noqa: F811
    machine(3)
    found = in_each((2, 1), lambda cluster: train("SGD", cluster), kinds=["gpu", "gpu"])
    assert {*found} == {alone("SGD")}


def test_through_the_host(machine):  # noqa: F811
    made = machine(3, peers=[(1, 2)])
    assert train("SGD", gpus(3)) == alone("SGD")
    assert made.staged


def test_nccl_adds_integers(machine, monkeypatch):  # noqa: F811
    machine(2)
    calls = install_nccl(monkeypatch)
    assert train("SGD", gpus(2), algorithm="nccl") == alone("SGD")
    assert {call.kind for call in calls} == {"int64"}
