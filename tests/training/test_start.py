"""Training starts from what one has: parameters, a model, a file; and on devices as people say them."""

import numpy as np
import pytest
from conftest import LONG_ON_STANDIN
from runs import DATA, PLAIN, TINY, brief, quick

import d2lmgpu as d2l
from d2lmgpu import cli
from d2lmgpu.networks import AvgPool2d, Dense, Flatten, described, sequential

ONE_STEP = {"batch_size": 60, "lr": 0.05}
"""An epoch: two epochs are two steps, whatever the order."""


def close(result, expected):
    for one, other in zip([*result.params, *result.statistics], [*expected.params, *expected.statistics], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=2e-5)


@LONG_ON_STANDIN
@pytest.mark.parametrize(
    "k, network, options",
    [(1, TINY, {}), (3, PLAIN, {"loads": [2, 0, 1]}), (2, TINY, {"split": "layers"}), (2, PLAIN, {"split": "zero3"})],
)
def test_one_epoch_and_another_are_two(make_devices, tmp_path, k, network, options):
    """From a result, a model, a file, a checkpoint and parameters alone, which stay as they are.

    Statistics of batch norm included: without them they would be half of what they are.
    """
    settings, devices = ONE_STEP | options, make_devices(k)
    expected = brief(devices, network=network, **settings)
    first = brief(devices, network=network, num_epochs=1, checkpoint=tmp_path / "run", **settings)
    first.model.save(tmp_path / "file")
    before = [param.copy() for param in first.params]
    for init in (first, first.model, tmp_path / "file", str(tmp_path / "run")):
        result = brief(devices, num_epochs=1, init=init, network="lenet", **settings)  # the default
        close(result, expected)
        assert (result.history.init, result.history.network) == ("given", "custom")
        assert described(result.network) == described(network)
    if network is PLAIN:
        params = first.params
        others = tuple(params), d2l.get_params(params, d2l.cpu(1)), [param.astype(float) for param in params]
        for init in (params, *others):
            close(brief(devices, network=PLAIN, num_epochs=1, init=init, **settings), expected)
    for one, other in zip(first.params, before, strict=True):
        np.testing.assert_array_equal(one, other)


def test_another_head(small, capsys):
    """Of LeNet, whose name is known in the model."""
    X, y, X_test, y_test = (part[:40] for part in small)
    model = quick(1, (X, y, X_test, y_test), num_epochs=1).model
    head = model.with_classes(["a", "b", "c"], seed=5)
    assert head.network.classes == 3 and head.classes == ["a", "b", "c"] and model.network.classes == 10
    assert [param.shape for param in head.params[-2:]] == [(128, 3), (3,)] and head.params[-2].std() > 0.005
    for one, other in zip(head.params[:-2], model.params[:-2], strict=True):
        np.testing.assert_array_equal(one, other)
        assert not np.shares_memory(one, other)
    np.testing.assert_array_equal(model.with_classes(10).params[-2], model.params[-2])
    data = X, y % 3, X_test, y_test % 3, ["a", "b", "c"]
    expected = quick(1, data, init=head, num_epochs=1, seed=5)
    assert capsys.readouterr().out == ""
    result = quick(1, data, init=model, num_epochs=1, seed=5, progress=True)
    assert "init: the model has 10 classes and the data 3: its last layer begins anew" in capsys.readouterr().out
    assert result.history.final_parameters_sha256 == expected.history.final_parameters_sha256
    assert result.history.network == "lenet" and result.model.classes == ["a", "b", "c"]


def test_the_option(tmp_path, capsys):
    file, network = tmp_path / "a.model", sequential((1, 28, 28), AvgPool2d(7), Flatten(), Dense(10))
    d2l.Model(network, d2l.init_params(3, init="he", network=network)).save(file)
    words = ["train", "--limit", "30", "--epochs", "1", "--environment", "cpu", "--init", str(file)]
    assert cli.main([*words, "--json", str(tmp_path / "a.json")]) == 0
    assert '"init": "given"' in (tmp_path / "a.json").read_text()
    capsys.readouterr()
    assert cli.main([*words, "--checkpoint", str(file)]) == 2
    assert "a.model exists; resume from it" in capsys.readouterr().err


# Devices:


@pytest.mark.parametrize(
    "devices", [2, ["cpu:0", "cpu:1"], [0, 1], "cpu:0,cpu:1", ["cpu(0)", "cpu(1)"], (d2l.cpu(0), d2l.cpu(1))]
)
def test_devices_as_people_say_them(devices):
    history = brief(devices, num_epochs=1).history
    assert (history.devices, history.environment) == (["cpu(0)", "cpu(1)"], "cpu")
    params = d2l.init_params(3, network=PLAIN)
    assert d2l.evaluate(params, *DATA[2:], devices, PLAIN) == d2l.evaluate(params, *DATA[2:], network=PLAIN)


def test_environments_choose(standin, monkeypatch):
    assert (d2l.num_gpus(), d2l.can_use_gpu()) == (2, True)
    monkeypatch.setattr("d2lmgpu.networks.compute.USE_CUDA_KERNELS", False)
    data = tuple(part[:6] for part in DATA)
    for given, devices, environment in (
        ({"environment": "multi-gpu"}, ["gpu(0)", "gpu(1)"], "multi-gpu"),
        ({"environment": "cpu", "devices": 2}, ["cpu(0)", "cpu(1)"], "cpu"),
        ({"num_gpus": 2}, ["gpu(0)", "gpu(1)"], "gpu"),
        ({"devices": [d2l.gpu(1)], "environment": "multi-gpu"}, ["gpu(1)"], "multi-gpu"),
        ({"devices": ["gpu:0", "cpu:0"], "environment": "auto"}, ["gpu(0)", "cpu(0)"], "gpu+cpu"),
    ):
        history = brief(**{"devices": None} | given, data=data, num_epochs=1, network=PLAIN, graphs=False).history
        assert (history.devices, history.environment) == (devices, environment), given
