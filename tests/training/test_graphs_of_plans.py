"""Which steps on GPUs are CUDA graphs, and which are none; what a graph may use."""

import gc

import numpy as np
import pytest
import standin_cupy
from clusters_in_threads import in_each
from conftest import few, forget_gpus
from standin_nccl import install_nccl
from training_runs import cpus

import d2lmgpu as d2l
from d2lmgpu.networks import Conv2d, Dense, Flatten, MaxPool2d, ReLU, sequential
from d2lmgpu.training.graph_step import GraphStep

pytestmark = [pytest.mark.threads, pytest.mark.long]

NETWORK = sequential(
    (1, 9, 8), Conv2d(3, 3), ReLU(), MaxPool2d(), Conv2d(5, 2), ReLU(), Flatten(), Dense(6), ReLU(), Dense(4)
)
SPLITS = {
    "zero1": {"split": "zero1"},
    "zero2": {"split": "zero2", "micro_batches": 2},
    "zero3": {"split": "zero3"},
    "channels": {"split": "channels"},
    "layers": {"split": "layers"},
    "gpipe": {"split": "layers", "pipeline": "gpipe", "micro_batches": 3},
    "1f1b": {"split": "layers", "micro_batches": 3},
    "micro-batches": {"split": "data", "micro_batches": 2},
    "overlap": {"overlap": True},
}


@pytest.fixture
def machine(monkeypatch):
    """A function: makes a machine of the stand-in, see `standin_driver.Machine`."""

    def make(cards=2, **properties):
        forget_gpus()
        return standin_cupy.install(monkeypatch, cards, **properties)

    yield make
    forget_gpus()


def gpus(k):
    return [d2l.gpu(i) for i in range(k)]


def settings(rng, network=NETWORK, **more):
    """A run of three epochs with 11 examples in minibatches of 4, the last of 3."""
    X, y = rng.integers(0, 256, (17, *network.input_shape)).astype(np.uint8), rng.integers(0, 4, 17).astype(np.uint8)
    given = {"batch_size": 4, "lr": 0.05, "num_epochs": 3, "init": "he", "network": network, "progress": False}
    return given | {"data": (X[:11], y[:11], X[11:], y[11:])} | more


def test_memory_of_a_graph_is_given_to_nobody_else(standin, rng):
    """Between steps other arrays are made, as large as those that came and went while it was recorded."""
    given, devices = settings(rng), gpus(2)
    X, y = given["data"][:2]
    params = d2l.init_params(0, init="he", network=NETWORK)
    found = []
    for meanwhile in (False, True):
        runner = GraphStep.of(X, y, params, devices, NETWORK, batch_size=4)
        gc.collect()
        runner.start_epoch(np.arange(11), 0.05)
        for _ in range(runner.steps):
            runner.launch(1)
            for n in range(1, 1000) if meanwhile else ():
                d2l.put(np.full(n, np.nan, np.float32), devices[n % 2])
        found.append((runner.pause()[0], [d2l.to_host(array).tobytes() for array in runner.copies()[0][0]]))
    assert found[0] == found[1]


@pytest.mark.parametrize("split", few(SPLITS, "1f1b", "overlap", parts=7))
def test_splits_are_launched_kernel_by_kernel(standin, rng, capsys, split):
    given = settings(rng)
    run, expected = d2l.train(gpus(2), **given, **SPLITS[split]), d2l.train(cpus(1), **given)
    assert run.history.phases["step"] == 0 and "CUDA graph" not in capsys.readouterr().err
    assert run.history.train_loss == pytest.approx(expected.history.train_loss, rel=2e-5)


def test_a_device_with_a_limit_keeps_it(standin, rng):
    devices = gpus(1)
    devices[0].limit_memory(2**24)
    run = d2l.train(devices, **settings(rng, num_epochs=1))
    assert run.history.phases["step"] == 0


WHY = {
    "nccl": "allreduce 'nccl' cannot be recorded; 'ring' can",
    "peers": "its cards cannot use each other's memory",
    "processes": "its devices belong to several processes",
}


@pytest.mark.parametrize("what", WHY)
def test_a_note_says_what_prevents_a_graph_and_what_this_costs(machine, rng, monkeypatch, capsys, what):
    machine(2, peers=[] if what == "peers" else None)
    install_nccl(monkeypatch)
    given = settings(rng, num_epochs=1)
    if what == "processes":
        run, _ = in_each((1, 1), lambda cluster: d2l.train(cluster, **given), kinds=["gpu"] * 2)
    else:
        run = d2l.train(gpus(2), **given, algorithm="nccl" if what == "nccl" else "ring")
    assert run.history.phases["step"] == 0
    note = f"note: the step cannot be a CUDA graph ({WHY[what]}); its kernels are launched one by one, which took"
    assert capsys.readouterr().err.count(note) == 1
    assert run.history.train_loss == pytest.approx(d2l.train(cpus(1), **given).history.train_loss, rel=2e-5)
