"""Steps as CUDA graphs in pieces, where exchanges cannot be recorded: between processes, by NCCL, through the host."""

import numpy as np
import pytest
from clusters_in_threads import in_each
from conftest import few, long
from standin_nccl import install_nccl
from test_cluster_gpus import nccl_world
from test_gpu_rules import machine  # noqa: F401
from test_graphs_of_plans import NETWORK, NORMED, SPLITS, same, settings

import d2lmgpu as d2l


def gpus(k):
    return [d2l.gpu(i) for i in range(k)]


def alone(given):
    return d2l.train([d2l.cpu(0)], **given)


def in_processes(splits, **given):
    """The runs of processes with so many GPUs each; all are the same."""
    runs = in_each(splits, lambda cluster: d2l.train(cluster, **given), kinds=["gpu"] * len(splits))
    for run in runs[1:]:
        assert run.history.final_parameters_sha256 == runs[0].history.final_parameters_sha256
        assert run.history.train_loss == runs[0].history.train_loss
        assert run.history.train_accuracy == runs[0].history.train_accuracy
    return runs[0]


EVERY = ["default", *SPLITS]


@pytest.mark.parametrize(
    "split, splits", [*few([(s, (2, 1)) for s in EVERY], ("1f1b", (2, 1))), *long(("zero3", (1, 1, 1)))]
)
def test_processes(machine, rng, split, splits):  # noqa: F811
    machine(sum(splits))
    given = settings(rng, optimizer="momentum")
    same(in_processes(splits, **given, **SPLITS.get(split, {})), alone(given), 2e-5)


@pytest.mark.parametrize("split, k", [*few([(s, 2) for s in EVERY], ("zero2", 2)), *long(("default", 3), ("gpipe", 3))])
def test_through_the_host(machine, rng, split, k):  # noqa: F811
    """Of three cards two use each other's memory."""
    made = machine(3, peers=[(1, 2)])
    given = settings(rng, optimizer="adam", lr=0.01)
    same(d2l.train(gpus(k), **given, **SPLITS.get(split, {})), alone(given), 2e-5)
    assert made.staged


def test_nccl(machine, rng, monkeypatch):  # noqa: F811
    machine(2)
    calls, given = install_nccl(monkeypatch), settings(rng)
    same(d2l.train(gpus(2), algorithm="nccl", **given), alone(given), 2e-5)
    assert len(calls) == 2 * 9  # and nothing is summed to record a step


def test_nccl_beside_batch_norm(machine, rng, monkeypatch):  # noqa: F811
    """Which has arrays of its own that are the same in each step, as NCCL's gradients are."""
    machine(2)
    install_nccl(monkeypatch)
    given = settings(rng, network=NORMED, batch_statistics="synchronised")
    same(d2l.train(gpus(2), algorithm="nccl", **given), alone(given), 2e-5)


def test_nccl_between_processes(machine, rng, monkeypatch):  # noqa: F811
    machine(2)
    install_nccl(monkeypatch)
    given, join = settings(rng), nccl_world((1, 1), [])

    def run(cluster):
        join(cluster)
        return d2l.train(cluster, algorithm="nccl", **given)

    same(in_each((1, 1), run, kinds=["gpu", "gpu"])[1], alone(given), 2e-5)


@pytest.mark.parametrize("more", [{"overlap": True}, *long({"flat": False}, {"overlap": True, "split": "zero1"})])
@pytest.mark.parametrize("where", ["processes", "through the host"])
def test_other_ways_to_exchange(machine, rng, where, more):  # noqa: F811
    machine(3, peers=[])
    given = settings(rng)
    run = in_processes((1, 2), **given, **more) if where == "processes" else d2l.train(gpus(3), **given, **more)
    same(run, alone(given), 2e-5)


TRIED = [("zero1", "mixed"), ("default", "mixed"), ("1f1b", "mixed"), ("channels", "mixed")]


@pytest.mark.parametrize("split, precision", few(TRIED, ("zero1", "mixed")))
def test_precisions(machine, rng, split, precision):  # noqa: F811
    machine(2)
    given = settings(rng, lr=0.02, optimizer="adam")
    same(in_processes((1, 1), precision=precision, **given, **SPLITS.get(split, {})), alone(given), 1e-2)


@pytest.mark.parametrize("split", long("zero1", "default", "1f1b"))
def test_an_overflow_anywhere_keeps_all_from_updating(machine, rng, monkeypatch, split):  # noqa: F811
    machine(2)
    monkeypatch.setattr("d2lmgpu.parallel.loss_scale.FIRST_SCALE", 2.0**120)
    run = in_processes((1, 1), **settings(rng, num_epochs=1, precision="mixed"), **SPLITS.get(split, {}))
    assert run.history.phases["step"] > 0
    for param, initial in zip(run.params, d2l.init_params(0, init="he", network=NETWORK), strict=True):
        np.testing.assert_array_equal(param, initial)


@pytest.mark.parametrize("statistics", ["synchronised", *long("local", "aggregated")])
@pytest.mark.parametrize("split", few(["default", "zero1", "channels", "gpipe"], "gpipe"))
def test_batch_norm(machine, rng, split, statistics):  # noqa: F811
    """Of two images' statistics rounding may turn a ReLU: then the reference has the same kernels, one by one."""
    machine(2)
    given = settings(rng, NORMED, batch_statistics=statistics, **SPLITS.get(split, {}))
    reference = [d2l.cpu(i) for i in range(2)] if statistics == "synchronised" else gpus(2)
    same(in_processes((1, 1), **given), d2l.train(reference, graphs=False, **given), 2e-5)


@pytest.mark.parametrize("loads", [[1, 0.5, 0], *long([0, 1, 1])])
def test_loads(machine, rng, loads):  # noqa: F811
    machine(3)
    given = settings(rng)
    same(in_processes((2, 1), loads=loads, **given), alone(given), 2e-5)


@pytest.mark.parametrize("split", long("1f1b", "default", "zero3"))
def test_going_on_from_a_checkpoint(machine, rng, tmp_path, split):  # noqa: F811
    """In the middle of an epoch, bit for bit, also of a run in one process whose cards use no other's memory."""
    machine(2, peers=[])
    given = settings(rng, optimizer="adam", **SPLITS.get(split, {}))
    whole = in_processes((1, 1), **given).history
    for splits in (1, 1), (2,):
        file = tmp_path / str(len(splits))

        def begin(cluster, file=file):
            with pytest.raises(KeyboardInterrupt):
                d2l.train(cluster, checkpoint=file, checkpoint_steps=2, callbacks=[Interrupt()], **given)

        in_each(splits, begin, kinds=["gpu"] * len(splits))
        resumed = in_processes((1, 1), resume=file, **given).history
        assert resumed.final_parameters_sha256 == whole.final_parameters_sha256
        assert (resumed.train_loss, resumed.train_accuracy) == (whole.train_loss, whole.train_accuracy)


class Interrupt(d2l.Callback):
    """Ctrl-C after the last step of the second epoch's three."""

    def on_step(self, epoch, step, loss):
        """As of `Callback`."""
        if (epoch, step) == (1, 3):
            raise KeyboardInterrupt
