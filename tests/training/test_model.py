"""A model: what a run makes and a checkpoint holds, restored without code."""

import json

import numpy as np
import pytest
from runs import DATA, brief, cpus

import d2lmgpu as d2l
from d2lmgpu import networks
from d2lmgpu.layers import relu, relu_grad
from d2lmgpu.networks import AvgPool2d, BatchNorm, Conv2d, Dense, Flatten, Layer, MaxPool2d, ReLU, described, restored
from d2lmgpu.training.checkpoints import CheckpointError

OWN = networks.sequential(
    (1, 8, 8), *(Conv2d(3, 2), BatchNorm(), ReLU(), MaxPool2d(2)), *(Conv2d(4, 2), AvgPool2d(), Flatten(), Dense(4))
)


def test_a_network_of_ones_own_from_its_checkpoint(tmp_path):
    data, file = (*DATA, list("abcd")), tmp_path / "run"
    result = brief(cpus(2), data, network=OWN, checkpoint=file, batch_statistics="aggregated", invert=True)
    result.model.save(tmp_path / "model")
    for name in ("run", "model"):
        model = d2l.load_model(tmp_path / name)
        assert described(model.network) == described(OWN) and model.network is not OWN
        assert model.classes == list("abcd") and model.invert
        for one, other in zip(model.params + model.statistics, result.params + result.statistics, strict=True):
            np.testing.assert_array_equal(one, other)
        for k in (1, 3):
            assert model.evaluate(*DATA[2:], cpus(k)) == result.history.test_accuracy[-1]
        np.testing.assert_allclose(model.predict(DATA[2][:7]), result.model.predict(DATA[2])[:7], rtol=1e-5)


@pytest.mark.parametrize("network", [*networks.NETWORKS.values(), OWN])
def test_a_network_is_data(network, rng):
    again = restored(json.loads(json.dumps(described(network))))
    assert (again.input_shape, again.classes) == (network.input_shape, network.classes)
    assert [layer.shapes for layer in again] == [layer.shapes for layer in network]
    X, y = rng.random((3, *network.input_shape)), np.arange(3)
    params = networks.init_params(1, init="he", network=network, dtype=np.float64)
    for one, other in zip(*(networks.loss_and_grads(X, y, params, each)[1] for each in (network, again)), strict=True):
        np.testing.assert_array_equal(one, other)


def own_layer(shape):
    return Layer(relu, relu_grad)


def test_layers_of_ones_own_are_asked_for(tmp_path):
    network, file = networks.sequential((1, 8, 8), Flatten(), Dense(20), own_layer, Dense(4)), tmp_path / "file"
    result = brief(cpus(1), num_epochs=1, network=network, checkpoint=file)
    with pytest.raises(CheckpointError, match=r"functions of your own: call load_model\(FILE, network=...\)"):
        d2l.load_model(file)
    model = d2l.load_model(file, network=network)
    assert model.evaluate(*DATA[2:]) == result.history.test_accuracy[-1]
    with pytest.raises(CheckpointError, match="params: .*; there should be a list of 8 arrays"):
        d2l.load_model(file, network=networks.LENET)
    with pytest.raises(ValueError, match="^network is 5") as caught:  # which is not the file's fault
        d2l.load_model(file, network=5)
    assert not isinstance(caught.value, CheckpointError)


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
