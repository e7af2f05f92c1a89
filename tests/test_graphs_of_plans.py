"""Steps as CUDA graphs, on the stand-in for CuPy and on real GPUs, as one virtual device; and which steps are none."""

import gc

import numpy as np
import pytest
from clusters_in_threads import in_each
from conftest import assert_close, few, long
from standin_nccl import install_nccl
from test_cuda_program import TINY_NETWORK, interrupted_at_step, make_gpus  # noqa: F401
from test_gpu_rules import machine  # noqa: F401

import d2lmgpu as d2l
from d2lmgpu.networks import BatchNorm, Conv2d, Dense, Flatten, MaxPool2d, ReLU, sequential
from d2lmgpu.training.graph_step import GraphStep
from d2lmgpu.training.plan_step import PlanStep

pytestmark = pytest.mark.threads

NETWORK = sequential(
    (1, 9, 8), Conv2d(3, 3), ReLU(), MaxPool2d(), Conv2d(5, 2), ReLU(), Flatten(), Dense(6), ReLU(), Dense(4)
)
NORMED = sequential(
    (1, 9, 8), Conv2d(3, 3), BatchNorm(), ReLU(), MaxPool2d(), Flatten(), Dense(5), BatchNorm(), Dense(4)
)

SPLITS = {
    "zero1": {"split": "zero1"},
    "zero2": {"split": "zero2", "micro_batches": 2},
    "zero3": {"split": "zero3"},
    "channels": {"split": "channels"},
    "layers": {"split": "layers"},
    "gpipe": {"split": "layers", "pipeline": "gpipe", "micro_batches": 3},
    "1f1b": {"split": "layers", "micro_batches": 3},
    "data": {"split": "data", "micro_batches": 2},
}


def settings(rng, network=NETWORK, **more):
    """A run of three epochs with 11 examples in minibatches of 4, the last of 3."""
    X, y = rng.integers(0, 256, (17, *network.input_shape)).astype(np.uint8), rng.integers(0, 4, 17).astype(np.uint8)
    given = {"batch_size": 4, "lr": 0.05, "num_epochs": 3, "init": "he", "network": network, "progress": False}
    return given | {"data": (X[:11], y[:11], X[11:], y[11:])} | more


def same(run, expected, tolerance):
    assert run.history.phases["step"] > 0 == run.history.phases["forward"] and run.history.peak_memory is None
    assert run.history.train_loss == pytest.approx(expected.history.train_loss, rel=tolerance)
    assert run.history.test_accuracy == expected.history.test_accuracy
    for one, other in zip(run.params, expected.params, strict=True):
        if np.abs(other).max() > 1e-5:  # a bias before batch norm stays 0, but for rounding
            assert_close(one, other, 10 * tolerance)


@pytest.mark.parametrize("k", [2, *long(1, 3)])
@pytest.mark.parametrize("more", [{}, SPLITS["data"], *long({"overlap": True})])
def test_data_parallelism(make_gpus, rng, more, k):  # noqa: F811
    given = settings(rng, optimizer="momentum")
    same(d2l.train(make_gpus(k), **given, **more), d2l.train([d2l.cpu(0)], **given), 2e-5)


@pytest.mark.parametrize("optimizer", ["adam", *long("sgd")])
def test_mixed_precision(make_gpus, rng, optimizer):  # noqa: F811
    given = settings(rng, lr=0.02, optimizer=optimizer)
    run = d2l.train(make_gpus(2), precision="mixed", **given, **SPLITS["data"])
    same(run, d2l.train([d2l.cpu(0)], **given), 1e-2)


def test_an_overflow_keeps_all_from_updating(make_gpus, rng, monkeypatch):  # noqa: F811
    monkeypatch.setattr("d2lmgpu.parallel.loss_scale.FIRST_SCALE", 2.0**120)
    run = d2l.train(make_gpus(2), **settings(rng, num_epochs=1, precision="mixed"))
    assert run.history.phases["step"] > 0
    for param, initial in zip(run.params, d2l.init_params(0, init="he", network=NETWORK), strict=True):
        np.testing.assert_array_equal(param, initial)


def test_batch_norm(make_gpus, rng):  # noqa: F811
    """Of two images' statistics rounding may turn a ReLU: so the reference has the same kernels, one by one."""
    given, devices = settings(rng, NORMED), make_gpus(2)
    expected = d2l.train(devices, graphs=False, **given)
    run = d2l.train(devices, **given)
    same(run, expected, 2e-5)
    for one, other in zip(run.statistics, expected.statistics, strict=True):
        assert_close(one, other, 1e-4)


@pytest.mark.parametrize("split", few(SPLITS, "data"))
def test_going_on_from_a_checkpoint(make_gpus, rng, tmp_path, monkeypatch, split):  # noqa: F811
    """In the middle of an epoch, bit for bit."""
    given, file = settings(rng, optimizer="adam", **SPLITS[split]), tmp_path / "file"
    whole = d2l.train(make_gpus(2), **given).history
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        runner = GraphStep if split == "data" else PlanStep
        patch.setattr(runner, "launch", interrupted_at_step(6, runner))  # of three an epoch
        d2l.train(make_gpus(2), checkpoint=file, checkpoint_steps=2, **given)
    resumed = d2l.train(make_gpus(2), resume=file, **given).history
    assert resumed.final_parameters_sha256 == whole.final_parameters_sha256
    assert (resumed.train_loss, resumed.train_accuracy) == (whole.train_loss, whole.train_accuracy)


def test_memory_of_a_graph_is_given_to_nobody_else(make_gpus, rng):  # noqa: F811
    """Between steps other arrays are made, as large as those that came and went while it was recorded."""
    given, devices = settings(rng), make_gpus(2)
    X, y = given["data"][:2]
    params = d2l.init_params(0, init="he", network=NETWORK)
    found = []
    for meanwhile in (False, True):
        runner = GraphStep.of(X, y, params, devices, NETWORK, batch_size=4, **SPLITS["data"])
        gc.collect()
        runner.start_epoch(np.arange(11), 0.05)
        for _ in range(runner.steps):
            runner.launch(1)
            for n in range(1, 1000) if meanwhile else ():
                d2l.put(np.full(n, np.nan, np.float32), devices[n % 2])
        found.append((runner.pause()[0], [d2l.to_host(array).tobytes() for array in runner.replicas[0].params]))
    assert found[0] == found[1]


@pytest.mark.parametrize("split", few([name for name in SPLITS if name != "data"], "1f1b"))
def test_splits_are_launched_kernel_by_kernel(make_gpus, rng, capsys, split):  # noqa: F811
    given = settings(rng)
    run, expected = d2l.train(make_gpus(2), **given, **SPLITS[split]), d2l.train([d2l.cpu(0)], **given)
    assert run.history.phases["step"] == 0 and "CUDA graph" not in capsys.readouterr().err
    assert run.history.train_loss == pytest.approx(expected.history.train_loss, rel=2e-5)


def test_a_device_with_a_limit_keeps_it(standin, rng):
    devices = [d2l.gpu(0)]
    devices[0].limit_memory(2**24)
    run = d2l.train(devices, **settings(rng, num_epochs=1))
    assert run.history.phases["step"] == 0


WHY = {
    "nccl": "allreduce 'nccl' cannot be recorded; 'ring' can",
    "peers": "its cards cannot use each other's memory",
    "processes": "its devices belong to several processes",
}


@pytest.mark.parametrize("what", WHY)
def test_a_note_says_what_prevents_a_graph_and_what_this_costs(machine, rng, monkeypatch, capsys, what):  # noqa: F811
    machine(2, peers=[] if what == "peers" else None)
    install_nccl(monkeypatch)
    given = settings(rng, num_epochs=1)
    if what == "processes":
        run, _ = in_each((1, 1), lambda cluster: d2l.train(cluster, **given), kinds=["gpu"] * 2)
    else:
        run = d2l.train([d2l.gpu(0), d2l.gpu(1)], **given, algorithm="nccl" if what == "nccl" else "ring")
    assert run.history.phases["step"] == 0
    note = f"note: the step cannot be a CUDA graph ({WHY[what]}); its kernels are launched one by one, which took"
    assert capsys.readouterr().err.count(note) == 1
    assert run.history.train_loss == pytest.approx(d2l.train([d2l.cpu(0)], **given).history.train_loss, rel=2e-5)


def test_several_steps_in_one_launch(make_gpus, rng, monkeypatch):  # noqa: F811
    given = settings(rng)
    expected = d2l.train(make_gpus(2), **given)
    monkeypatch.setattr("d2lmgpu.training.graph_step.TOGETHER", 2)
    run = d2l.train(make_gpus(2), **given)
    assert run.history.final_parameters_sha256 == expected.history.final_parameters_sha256
    assert run.history.train_loss == expected.history.train_loss
