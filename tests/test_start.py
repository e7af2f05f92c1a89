"""Training starts from what one has: parameters, a model, a file; and on devices as people say them."""

import time

import numpy as np
import pytest
import standin_cupy
from conftest import LONG_ON_STANDIN
from test_training import quick

import d2lmgpu as d2l
from d2lmgpu import cli, networks
from d2lmgpu.devices import DeviceError
from d2lmgpu.networks import Conv2d, Dense, Flatten, MaxPool2d, ReLU

TINY = networks.sequential((1, 28, 28), Conv2d(3, 5), ReLU(), MaxPool2d(4), Flatten(), Dense(10))


def some(small, n):
    """n training examples, in one minibatch of which two epochs are two steps, whatever the order."""
    X, y, X_test, y_test = small
    return {"data": (X[:n], y[:n], X_test, y_test), "batch_size": n, "progress": False, "lr": 0.05}


def close(result, expected):
    for one, other in zip([*result.params, *result.statistics], [*expected.params, *expected.statistics], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=2e-5)


@LONG_ON_STANDIN
@pytest.mark.parametrize(
    "k, how", [(1, {}), (3, {"loads": [2, 0, 1]}), (2, {"split": "layers"}), (2, {"split": "zero3"})]
)
def test_one_epoch_and_another_are_two(make_devices, small, tmp_path, k, how):
    """Statistics of batch norm included: without them they would be half of what they are."""
    # where devices have their own images, the order would decide whose statistics they are in
    name = "lenet-bn" if k == 1 or how == {"split": "layers"} else "lenet"
    settings = some(small, 45) | {"network": name} | how
    devices = make_devices(k)
    expected = d2l.train(devices, num_epochs=2, init="he", **settings)
    first = d2l.train(devices, num_epochs=1, init="he", **settings)
    first.model.save(tmp_path / "file")
    for init in (first, first.model, tmp_path / "file", str(tmp_path / "file")):
        before = [param.copy() for param in first.params]
        result = d2l.train(devices, num_epochs=1, init=init, **settings | {"network": "lenet"})
        close(result, expected)
        assert (result.history.init, result.history.network) == ("given", name)
        for one, other in zip(first.params, before, strict=True):
            np.testing.assert_array_equal(one, other)  # the user's own stay as they are


def test_parameters_alone(small):
    settings = some(small, 30)
    expected = d2l.train(2, num_epochs=2, init="he", **settings)
    params = d2l.train(1, num_epochs=1, init="he", **settings).params
    for init in (params, tuple(params), d2l.get_params(params, d2l.cpu(1)), [param.astype(float) for param in params]):
        close(d2l.train(2, num_epochs=1, init=init, **settings), expected)


def test_a_checkpoint_is_a_beginning_too(small, tmp_path):
    settings = some(small, 30)
    d2l.train(num_epochs=1, init="he", checkpoint=tmp_path / "run", network=TINY, **settings)
    result = d2l.train(num_epochs=1, init=tmp_path / "run", **settings)
    close(result, d2l.train(num_epochs=2, init="he", network=TINY, **settings))
    assert networks.described(result.network) == networks.described(TINY) and result.history.network == "custom"


def test_another_head(small, capsys):
    settings = some(small, 40)
    X, y, X_test, y_test = settings.pop("data")
    model = d2l.train(num_epochs=1, init="he", data=(X, y, X_test, y_test), **settings).model
    head = model.with_classes(["a", "b", "c"], seed=5)
    assert head.network.classes == 3 and head.classes == ["a", "b", "c"] and model.network.classes == 10
    assert [param.shape for param in head.params[-2:]] == [(128, 3), (3,)] and head.params[-2].std() > 0.005
    for one, other in zip(head.params[:-2], model.params[:-2], strict=True):
        np.testing.assert_array_equal(one, other)
        assert not np.shares_memory(one, other)
    np.testing.assert_array_equal(model.with_classes(10).params[-2], model.params[-2])
    data = X, y % 3, X_test, y_test % 3, ["a", "b", "c"]
    ways = {"num_epochs": 1, "seed": 5, "data": data}
    expected = d2l.train(init=head, **settings | ways)
    assert capsys.readouterr().out == ""
    result = d2l.train(init=model, **settings | ways | {"progress": True})
    assert "init: the model has 10 classes and the data 3: its last layer begins anew" in capsys.readouterr().out
    assert result.history.final_parameters_sha256 == expected.history.final_parameters_sha256
    assert result.history.network == "lenet" and result.model.classes == ["a", "b", "c"]


@pytest.mark.parametrize(
    "init, message",
    [
        ("hee", "did you mean he"),
        ("no.model", "none of this name"),
        (3, "init is 3; choose from normal, he, or give parameters as from init_params, a Model, a Result"),
        (None, "init is None"),
        ([], "should be a list of 8 arrays"),
        (d2l.init_params(network=TINY), "<4 arrays>; there should be a list of 8 arrays"),
        ([*d2l.init_params()[:-1], np.zeros(9)], r"number 7 is an array of float64 \(9,\)"),
    ],
)
def test_what_is_no_beginning(small, init, message):
    with pytest.raises(ValueError, match=message):
        quick([d2l.cpu(0)], small, init=init)


def test_heads_that_cannot_be():
    model = d2l.Model(TINY, d2l.init_params(network=TINY))
    for classes, message in ((1, "at least 2"), ("ab", "a list of names"), (2.5, "a whole number")):
        with pytest.raises(ValueError, match=message):
            model.with_classes(classes)
    ends = networks.sequential((1, 4, 4), Flatten(), Dense(3), ReLU())
    with pytest.raises(ValueError, match=r"the last layer is ReLU\(\); only a Dense layer can be replaced"):
        d2l.Model(ends, d2l.init_params(network=ends)).with_classes(2)


def test_settings_with_a_beginning_are_values():
    params = d2l.init_params()
    settings = d2l.Settings(init=params)
    assert settings == settings and settings != d2l.Settings(init=params) and "init=<8 arrays>" in repr(settings)


def test_the_option(small, tmp_path, capsys):
    file = tmp_path / "a.model"
    d2l.Model(TINY, d2l.init_params(3, init="he", network=TINY)).save(file)
    words = ["train", "--limit", "300", "--epochs", "1", "--environment", "cpu", "--init"]
    assert cli.main([*words, str(file), "--json", str(tmp_path / "a.json")]) == 0
    assert '"init": "given"' in (tmp_path / "a.json").read_text()
    for more, message in (
        ([str(file), "--checkpoint", str(file)], "a.model exists; resume from it"),
        (["hee"], "did you mean he"),
    ):
        assert cli.main([*words, *more]) == 2
        assert message in capsys.readouterr().err


# Devices:


def test_devices_as_people_say_them(small):
    for devices in (2, ["cpu:0", "cpu:1"], [0, 1], "cpu:0,cpu:1", ["cpu(0)", "cpu(1)"], (d2l.cpu(0), d2l.cpu(1))):
        history, _ = quick(devices, small, num_epochs=1)
        assert (history.devices, history.environment) == (["cpu(0)", "cpu(1)"], "cpu")
    X, y = small[0][:5], small[1][:5]
    assert d2l.evaluate(d2l.init_params(), X, y, d2l.cpu(1)) == d2l.evaluate(d2l.init_params(), X, y, ["cpu:1"])
    one = quick(num_gpus=1, data=small, devices=None, num_epochs=1).history
    assert one.devices == quick(num_gpus=0, data=small, devices=None, num_epochs=1).history.devices == ["cpu(0)"]


def test_devices_that_are_not_given(small):
    params, X, y = d2l.init_params(3, init="he"), small[2], small[3]
    assert d2l.evaluate(params, X, y) == d2l.evaluate(params, X, y, [d2l.try_gpu(0)])
    np.testing.assert_array_equal(d2l.predict(params, X[:5]), d2l.predict(params, X[:5], [d2l.try_gpu(0)]))


def test_all_devices_are_waited_for():
    done = []
    for i in range(3):
        d2l.cpu(i).run(lambda i=i: time.sleep(0.05 * i) or done.append(i))
    d2l.synchronize()
    assert sorted(done) == [0, 1, 2]
    d2l.cpu(2).run(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        d2l.synchronize()
    d2l.synchronize()


def test_environments_choose(small, monkeypatch):
    assert (d2l.num_gpus(), d2l.can_use_gpu()) == (0, False)
    standin_cupy.install(monkeypatch, cards=2)
    assert (d2l.num_gpus(), d2l.can_use_gpu()) == (2, True)
    data = tuple(part[:6] for part in small)
    how = {"data": data, "num_epochs": 1, "network": TINY, "progress": False, "graphs": False}
    for given, devices, environment in (
        ({"environment": "multi-gpu"}, ["gpu(0)", "gpu(1)"], "multi-gpu"),
        ({"environment": "auto"}, ["gpu(0)"], "gpu"),
        ({"environment": "cpu", "devices": 2}, ["cpu(0)", "cpu(1)"], "cpu"),
        ({"num_gpus": 2}, ["gpu(0)", "gpu(1)"], "gpu"),
        ({"num_gpus": 0}, ["cpu(0)"], "cpu"),
        ({"devices": [d2l.gpu(1)], "environment": "multi-gpu"}, ["gpu(1)"], "multi-gpu"),
        ({"devices": ["gpu:0", "cpu:0"], "environment": "auto"}, ["gpu(0)", "cpu(0)"], "gpu+cpu"),
    ):
        history, _ = d2l.train(**given, **how)
        assert (history.devices, history.environment) == (devices, environment), given


@pytest.mark.parametrize(
    "given, error, message",
    [
        ({"environment": "nonsense"}, ValueError, "choose from auto, cpu, gpu, multi-gpu"),
        ({"environment": "multi-gpu"}, DeviceError, "'multi-gpu' needs a GPU"),
        ({"environment": "parallel"}, DeviceError, r"train on d2l.cluster\(\)"),
        (
            {"environment": "gpu", "devices": [d2l.cpu(0)]},
            ValueError,
            r"but devices are given: \[cpu\(0\)\]; leave one",
        ),
        ({"environment": np.zeros(2)}, ValueError, "environment an array"),
        ({"num_gpus": 2, "devices": 2}, ValueError, "give one of them"),
        ({"num_gpus": -1}, ValueError, "at least 0"),
        ({"num_gpus": True}, ValueError, "whole number"),
        ({"devices": 0}, ValueError, "at least 1"),
        ({"devices": ["cuda:0"]}, ValueError, "a name such as cpu:0"),
        ({"devices": [d2l.cpu(0), "cpu:1"]}, ValueError, "'cpu:1' is not a device"),
        ({"epochs": 1}, TypeError, "there is no argument 'epochs'; did you mean num_epochs"),
    ],
)
def test_what_does_not_fit_together(given, error, message):
    with pytest.raises(error, match=message):
        d2l.train(**given)
