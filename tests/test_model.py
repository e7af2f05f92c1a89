"""A model: what a run makes and a checkpoint holds, restored without code."""

import copy
import json

import numpy as np
import pytest
from test_training import quick

import d2lmgpu as d2l
from d2lmgpu import networks
from d2lmgpu.layers import relu, relu_grad
from d2lmgpu.networks import AvgPool2d, BatchNorm, Conv2d, Dense, Flatten, Layer, MaxPool2d, ReLU, described, restored
from d2lmgpu.training.checkpoints import Checkpoint, CheckpointError, load_checkpoint, save_checkpoint

OWN = networks.sequential(
    (1, 28, 28), *(Conv2d(3, 5), BatchNorm(), ReLU(), MaxPool2d(3)), *(Conv2d(4, 2), AvgPool2d(), Flatten(), Dense(10))
)


def test_a_network_of_ones_own_from_its_checkpoint(small, tmp_path):
    X, y, X_test, y_test = small
    settings = {"network": OWN, "num_epochs": 2, "batch_statistics": "aggregated", "invert": True}
    data = X, y, X_test, y_test, list("abcdefghij")
    result = quick([d2l.cpu(0), d2l.cpu(1)], data, checkpoint=tmp_path / "run", **settings)
    result.model.save(tmp_path / "model")
    for file in ("run", "model"):
        model = d2l.load_model(tmp_path / file)
        assert described(model.network) == described(OWN) and model.network is not OWN
        assert model.classes == list("abcdefghij") and model.invert
        for one, other in zip(model.params + model.statistics, result.params + result.statistics, strict=True):
            np.testing.assert_array_equal(one, other)
        for k in (1, 3):
            devices = [d2l.cpu(i) for i in range(k)]
            assert model.evaluate(X_test, y_test, devices) == result.history.test_accuracy[-1]
        probabilities = model.predict(X_test[:7])
        assert probabilities.shape == (7, 10)
        np.testing.assert_allclose(probabilities, result.model.predict(X_test)[:7], rtol=1e-5)


@pytest.mark.parametrize("network", [*networks.NETWORKS.values(), OWN])
def test_a_network_is_data(network):
    again = restored(json.loads(json.dumps(described(network))))
    assert (again.input_shape, again.classes) == (network.input_shape, network.classes)
    assert [layer.shapes for layer in again] == [layer.shapes for layer in network]
    X, y = np.random.default_rng(3).random((5, 1, 28, 28)), np.arange(5)
    params = networks.init_params(1, init="he", network=network, dtype=np.float64)
    for one, other in zip(*(networks.loss_and_grads(X, y, params, each)[1] for each in (network, again)), strict=True):
        np.testing.assert_array_equal(one, other)


def broken(change):
    description = copy.deepcopy(described(OWN))
    change(description)
    return description


@pytest.mark.parametrize(
    "description, message",
    [
        (None, "not a description of a network"),
        ({"input_shape": [1, 28, 28]}, "not a description of a network: .*layers"),
        (broken(lambda d: d["layers"].append(["sequential", {}])), "not a description of a network: .*sequential"),
        (
            broken(lambda d: d["layers"].append(["Dense", {"size": 10}])),
            "Dense: missing a required argument: 'outputs'",
        ),
        (broken(lambda d: d["layers"].append(["Dense", 10])), "not a description of a network: .*mapping"),
        (broken(lambda d: d["layers"].append(["Dense", {"outputs": "10"}])), "Dense: outputs is '10'"),
        (broken(lambda d: d["layers"].insert(0, ["Flatten", {}])), "does not take"),
        (broken(lambda d: d.update(input_shape=[1, 28])), "input_shape"),
        (broken(lambda d: d.update(input_shape=[1, 28, -28])), "input_shape"),
    ],
)
def test_descriptions_that_make_no_sense(description, message):
    with pytest.raises(ValueError, match=message):
        restored(description)


def own_layer(shape):
    return Layer(relu, relu_grad)


def test_layers_of_ones_own_are_asked_for(small, tmp_path):
    network = networks.sequential((1, 28, 28), Flatten(), Dense(20), own_layer, Dense(10))
    result = quick([d2l.cpu(0)], small, num_epochs=1, network=network, checkpoint=tmp_path / "file")
    with pytest.raises(CheckpointError, match=r"functions of your own: call load_model\(FILE, network=...\)"):
        d2l.load_model(tmp_path / "file")
    model = d2l.load_model(tmp_path / "file", network=network)
    assert model.evaluate(*small[2:]) == result.history.test_accuracy[-1]
    with pytest.raises(CheckpointError, match="params: .*; there should be a list of 8 arrays"):
        d2l.load_model(tmp_path / "file", network=networks.LENET)


def test_an_argument_that_is_wrong_is_not_the_files_fault(small, tmp_path):
    quick([d2l.cpu(0)], small, num_epochs=1).model.save(tmp_path / "file")
    for wrong, message in ({"loss": "nonsense"}, "loss 'nonsense' is unknown"), ({"network": 5}, "network is 5"):
        with pytest.raises(ValueError, match=f"^{message}") as caught:
            d2l.load_model(tmp_path / "file", **wrong)
        assert not isinstance(caught.value, CheckpointError)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"classes": ["a", "b"]}, "classes: 2 given"),
        ({"classes": "abc"}, "classes is a str"),
        ({"loss": 5}, "loss is a int"),
        ({"classes": [1] * 10}, "element of classes is a int"),
        ({"invert": 1}, "invert"),
        ({"invert": None}, "invert"),
        ({"network": 5}, "network"),
        ({"network": described(OWN)}, "params"),
        ({"network": None}, "call load_model"),
    ],
)
def test_models_that_make_no_sense(small, tmp_path, change, message):
    quick([d2l.cpu(0)], small, num_epochs=1).model.save(tmp_path / "file")
    state, arrays = load_checkpoint(tmp_path / "file")
    state["model"] |= change
    save_checkpoint(tmp_path / "file", Checkpoint(state, arrays))
    with pytest.raises(CheckpointError, match=message):
        d2l.load_model(tmp_path / "file")


def test_the_summary(monkeypatch):
    with monkeypatch.context() as patched:  # to draw a thousand million numbers would take a minute
        patched.setattr(np.random, "default_rng", lambda *_: pytest.fail("a table needs no parameters"))
        rows = networks.layer_rows(networks.LENET)
    assert [row[:3] for row in rows if row[2]] == [
        ("Conv2d(outputs=20, kernel_size=3)", (20, 26, 26), 200),
        ("Conv2d(outputs=50, kernel_size=5)", (50, 9, 9), 25050),
        ("Dense(outputs=128)", (128,), 102528),
        ("Dense(outputs=10)", (10,), 1290),
    ]
    assert [row[3] for row in rows if row[3]] == [20 * 9 * 26 * 26, 50 * 20 * 25 * 9 * 9, 800 * 128, 128 * 10]
    table = networks.layer_table(networks.LENET).splitlines()
    assert table[-1].split() == ["129,068", "2,250,360"] and len(table) == len(networks.LENET) + 4
