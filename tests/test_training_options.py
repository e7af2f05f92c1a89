"""What `train` offers beside the textbook's run: loads, scaling, optimisers, networks, and runs that diverge."""

import json

import numpy as np
import pytest
from conftest import LONG_ON_STANDIN
from test_training import quick

import d2lmgpu as d2l
from d2lmgpu import cli
from d2lmgpu.checkpoints import CheckpointError
from d2lmgpu.networks import LENET
from d2lmgpu.parallel.step import Step
from d2lmgpu.training import sha256, why_diverged
from d2lmgpu.training.history import PATIENCE


@LONG_ON_STANDIN
def test_loads_equal_an_even_split(make_devices, small):
    even, params = quick(make_devices(3), small, num_epochs=1)
    uneven, others = quick(make_devices(3), small, num_epochs=1, loads=[1, 0, 0.5])
    assert uneven.loads == [1, 0, 0.5] and even.loads is None
    assert uneven.train_loss == pytest.approx(even.train_loss, rel=1e-4)
    for param, other in zip(params, others, strict=True):
        np.testing.assert_allclose(
            param, other, atol=1e-2 * np.abs(param).max()
        )  # ten steps of float32, see test_loads


def test_scaling_the_batch(small):
    scaled, params = quick([d2l.cpu(i) for i in range(2)], small, batch_size=32, lr=0.05, scale_batch=True)
    plain, same = quick([d2l.cpu(i) for i in range(2)], small, batch_size=64, lr=0.1)
    assert (scaled.batch_size, scaled.lr) == (64, 0.1) and scaled.train_loss == plain.train_loss
    assert scaled.final_parameters_sha256 == plain.final_parameters_sha256 == sha256(params) == sha256(same)


def test_the_rate_of_every_step(small, monkeypatch):
    """600 examples in steps of 250 are 3 steps an epoch; the last has 100 examples."""
    rates, submit = [], Step.__init__

    def spy(self, replicas, X, y, lr, *args, **how):
        rates.append(lr)
        return submit(self, replicas, X, y, lr, *args, **how)

    monkeypatch.setattr(Step, "__init__", spy)
    history, _ = quick([d2l.cpu(0)], small, batch_size=250, num_epochs=3, lr=0.3, warmup=1, schedule="cosine")
    expected = [0.1, 0.2, 0.3, *(0.15 * (1 + np.cos(np.pi * np.arange(6) / 6)))]
    np.testing.assert_allclose(rates, expected)
    assert (history.warmup, history.schedule) == (1, "cosine")


@LONG_ON_STANDIN
@pytest.mark.parametrize("settings", [{"optimizer": "momentum", "lr": 0.02}, {"optimizer": "adam", "lr": 0.002}])
def test_other_optimizers_learn(make_devices, small, settings):
    history, _ = quick(make_devices(2), small, num_epochs=3, **settings)
    assert history.train_loss[-1] < 0.7 * history.train_loss[0] and history.optimizer == settings["optimizer"]


@LONG_ON_STANDIN
@pytest.mark.parametrize("name", ["lenet-bn", "cnn"])
def test_other_networks_learn(make_devices, small, name):
    devices = make_devices(2)
    history, params = result = quick(devices, small, num_epochs=3, network=name)
    assert history.train_loss[-1] < 0.7 * history.train_loss[0] and history.network == name
    accuracy = d2l.evaluate(params, *small[2:], devices[:1], result.network, result.statistics)
    assert accuracy == history.test_accuracy[-1] > 0.5
    assert history.final_parameters_sha256 == sha256([*params, *result.statistics])


def test_a_run_that_diverges_is_given_up(small, capsys):
    with np.errstate(all="ignore"):
        history, _ = quick([d2l.cpu(0)], small, lr=20, num_epochs=5, progress=True)
    assert len(history.train_loss) == 1 and history.diverged.startswith("diverged in epoch 1: the training loss is ")
    assert history.diverged in capsys.readouterr().out


@pytest.mark.parametrize("lr", [20, 0.1])  # the same again, and what the error then advises
def test_a_run_that_was_given_up_does_not_go_on(small, tmp_path, lr):
    """Not to more epochs, and not to those that were asked for; its checkpoint stays."""
    file = tmp_path / "file"
    history, _ = quick([d2l.cpu(0)], small, lr=20, checkpoint=file)
    assert history.diverged.startswith("diverged in epoch 1: ")
    before = file.read_bytes()
    message = "resume: the run was given up: diverged in epoch 1: .*; try a smaller .*; start again without resume$"
    for num_epochs in (1, 2, 3):
        with pytest.raises(CheckpointError, match=message):
            quick([d2l.cpu(0)], small, lr=lr, num_epochs=num_epochs, checkpoint=file, resume=file)
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    "losses, expected",
    [
        ([2.302, 1.5], None),  # the textbook's plateau
        ([2.303, 2.303], None),
        ([2.42], None),  # a rough start after which it learns
        ([9.9], None),  # of a single step, say, with initial weights that are sure of what is wrong
        ([9.9, 9.9], "diverged in epoch 2: the training loss is 9.9"),
        ([12.0], "diverged in epoch 1: the training loss is 12"),
        ([0.5, 4.5], "diverged in epoch 2: the training loss is 4.5, where guessing gives 2.3"),
        ([float("nan")], "diverged in epoch 1: the training loss is nan"),
        ([float("inf")], "diverged"),
        ([0.5, *[2.305] * PATIENCE], "nothing was learned in 3 epochs: the training loss is 2.31"),
    ],
)
def test_what_divergence_is(losses, expected):
    said = why_diverged(losses, LENET)
    assert said is None if expected is None else said.startswith(expected)


def test_statistics_of_a_network_that_has_none(small, capsys):
    statistics = "aggregated"
    message = (
        f"batch_statistics is '{statistics}', but network 'lenet' has no batch norm; leave it out, or train another"
    )
    with pytest.raises(ValueError, match=message):
        quick([d2l.cpu(0)], small, batch_statistics=statistics)
    with pytest.raises(ValueError, match="network 'custom' has no batch norm"):
        quick([d2l.cpu(0)], small, network=LENET, batch_statistics=statistics)
    with pytest.raises(ValueError, match=f"trial 2: {message}"):
        d2l.sweep(d2l.grid(network=["lenet-bn", "lenet"], batch_statistics=statistics), progress=False)
    assert cli.main(["train", "--environment", "cpu", "--batch-statistics", statistics]) == 2
    assert message in capsys.readouterr().err


def test_a_network_that_is_none(small):
    for network, given in (
        ("vgg", "'vgg' is unknown"),
        (list(LENET), r"\[Layer.* is unknown"),
        (None, "None is unknown"),
    ):
        with pytest.raises(ValueError, match=f"network {given}; choose from lenet, lenet-bn, cnn, deep, or give what"):
            quick([d2l.cpu(0)], small, network=network)


@pytest.mark.long
def test_the_command(tmp_path, capsys):
    file = tmp_path / "result.json"
    command = ["train", "--environment", "cpu", "--devices", "3", "--limit", "300", "--epochs", "1", "--init", "he"]
    options = [
        "--network",
        "lenet-bn",
        "--optimizer",
        "adam",
        "--lr",
        "0.001",
        "--loads",
        "1,0.5,0",
        "--schedule",
        "step",
    ]
    options += ["--batch-size", "32", "--scale-batch", "--warmup", "0.5", "--batch-statistics", "aggregated"]
    assert cli.main([*command, *options, "--json", str(file)]) == 0
    result = json.loads(file.read_text())
    names = "network optimizer loads batch_size lr warmup schedule batch_statistics".split()
    expected = ["lenet-bn", "adam", [1, 0.5, 0], 96, pytest.approx(0.003), 0.5, "step", "aggregated"]
    assert [result[name] for name in names] == expected
    assert len(result["final_parameters_sha256"]) == 64
    with np.errstate(all="ignore"):
        assert cli.main([*command, "--lr", "50", "--json", str(file)]) == 1
    assert json.loads(file.read_text())["diverged"].startswith("diverged in epoch 1")
    capsys.readouterr()
