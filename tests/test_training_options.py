"""What `train` offers beside the textbook's run: loads, scaling, optimisers, networks, and runs that diverge."""

import json

import numpy as np
import pytest
from conftest import LONG_ON_STANDIN
from test_training import quick

import d2lmgpu as d2l
from d2lmgpu import cli
from d2lmgpu.networks import LENET
from d2lmgpu.training import why_diverged
from d2lmgpu.training.checkpoints import CheckpointError
from d2lmgpu.training.history import PATIENCE, why_slow


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


def with_numbers(X, number, count):
    X = d2l.to_float(X)
    X[: 2 * count : 2, 0, 3, 4] = number
    return X


ODD = {  # what replaces a part of the data, the settings, and what is said
    "0 to 255": (0, lambda X: X.astype(np.float32), {"lr": 10}, "X_train the network sees numbers from 0 to 255;"),
    "as uint8": (0, lambda X: X // 255, {"num_epochs": 3}, "X_train the network sees numbers from 0 to 0.00392;"),
    "black": (
        0,
        np.zeros_like,
        {"num_epochs": 3, "init": "normal"},
        "X_train the network sees numbers from 0 to 0;",
    ),
    "NaN": (
        0,
        lambda X: with_numbers(X, np.nan, 3),
        {},
        "X_train has numbers that are not finite in 3 of 600",
    ),
    "inf": (2, lambda X: with_numbers(X, -np.inf, 2), {"lr": 20}, "X_test has numbers that are not finite in 2 of"),
    "too much": (
        0,
        lambda X: with_numbers(X, 1e5, 600),
        {"precision": "mixed"},
        "X_train the network sees",
    ),
    "targets": (
        1,
        lambda y: 300 * np.eye(10, dtype=np.float32)[y],
        {"loss": "squared_error", "lr": 1},
        "in y_train the",
    ),
    "nothing": (1, lambda y: y, {"lr": 20}, "; try a smaller learning rate, or a warm-up"),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("odd", ODD)
def test_a_run_that_diverges_looks_at_its_data(small, capsys, odd):
    part, change, settings, said = ODD[odd]
    data = [*small]
    data[part] = change(data[part])
    history, _ = quick(2, data, **settings)
    assert said in history.diverged and ("look at the data first" in history.diverged) == (odd != "nothing")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_test_set_that_is_not_finite_is_told(small, capsys):
    X_train, y_train, X_test, y_test = small
    y_train, y_test = (np.eye(10, dtype=np.float32)[y] for y in (y_train, y_test))
    data = X_train, y_train, with_numbers(X_test, np.nan, 5), y_test
    history, _ = quick(1, data, loss="squared_error", lr=0.01, num_epochs=1, progress=True)
    said = capsys.readouterr().out
    assert not history.diverged and "X_test has numbers that are not finite in 5 of 100 examples" in said


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


def test_a_first_epoch_that_learned_nothing_is_explained(small, capsys):
    """The textbook's weights; of a run that goes on, once. Not where they are He's, or where something was learned."""
    for settings, times in (
        ({"init": "normal"}, 1),
        ({"init": "he", "lr": 1e-6}, 0),
        ({"init": "normal", "lr": 50}, 0),
    ):
        with np.errstate(all="ignore"):
            history, _ = quick([d2l.cpu(0)], small, progress=True, **settings)
        out = capsys.readouterr().out
        assert out.count("epoch 1/2: nothing is learned yet") == out.count("--init he") == times, (settings, out)
    history.init, history.train_loss = "normal", [2.0]
    assert why_slow(history, LENET) is None
    history.train_loss = [2.3]
    assert 'init="he"' in why_slow(history, LENET)


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
