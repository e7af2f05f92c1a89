"""Training with other losses than the cross-entropy of labels, from data to a model that is loaded again."""

import json

import numpy as np
import pytest
from conftest import assert_close
from training_runs import StopAfter, cpus, quick

import d2lmgpu as d2l
from d2lmgpu.networks import Dense, Flatten, ReLU, sequential
from d2lmgpu.training.checkpoints import CheckpointError

SHAPE, OUTPUTS = (1, 4, 5), 3


def huber(outputs, y):
    """For targets (n, K, 2), which may have any shape: outputs should be their sum."""
    difference = outputs - y.sum(axis=2)
    clipped = np.clip(difference, -1, 1)
    return (clipped * (difference - clipped / 2)).sum(), clipped


def huber_grad(cache):
    return cache


HUBER = huber, huber_grad
NETWORK = sequential(SHAPE, Flatten(), Dense(16), ReLU(), Dense(OUTPUTS))


@pytest.fixture
def numbers(rng):
    """Images, and of each three numbers that follow from it: training and test sets."""
    X = rng.random((130, *SHAPE)).astype(np.float32)
    y = X.reshape(len(X), -1) @ rng.normal(0, 0.5, (20, OUTPUTS))
    return X[:100], y[:100], X[100:], y[100:]


def train(k, data, **settings):
    settings = {"network": NETWORK, "loss": "squared_error", "batch_size": 13, "lr": 0.05, "num_epochs": 3} | settings
    return quick(cpus(k), data, **settings)


def outputs(params, X):
    """Of `NETWORK`, in float64."""
    hidden = X.reshape(len(X), -1).astype(float) @ params[0] + params[1]
    return np.maximum(hidden, 0) @ params[2] + params[3]


def test_numbers_are_learned(numbers):
    """On 1, 3 and 8 devices alike; there is no accuracy, but the loss of the test set."""
    runs = [train(k, numbers, num_epochs=5, lr=0.4) for k in (1, 3, 8)]
    for run in runs:
        history = run.history
        assert history.test_accuracy == [] and len(history.test_loss) == 5 and history.loss == "squared_error"
        assert history.test_loss[-1] < 0.6 * history.test_loss[0]
        expected = ((outputs(run.params, numbers[2]) - numbers[3]) ** 2).mean()
        assert history.test_loss[-1] == pytest.approx(expected, rel=1e-5)
        assert history.summary().startswith(f"test loss: {expected:.3f}, ")
        np.testing.assert_allclose(history.train_loss, runs[0].history.train_loss, rtol=1e-4)
        for one, other in zip(run.params, runs[0].params, strict=True):
            assert_close(one, other, 1e-3)
    assert "test loss" in repr(runs[0]) and json.dumps(history.as_dict())
    assert d2l.History.from_dict(history.as_dict()) == history


def mixup(X, y, rng):
    """Zhang et al. 2018."""
    other, part = rng.permutation(len(X)), np.float32(rng.random())
    return part * X + (1 - part) * X[other], part * y + (1 - part) * y[other]


def test_preprocessing_of_soft_labels(numbers):
    soft = np.eye(3, dtype=np.float32)[np.arange(100) % 3]
    data = numbers[0], soft, numbers[2], np.arange(30) % 3
    one, three = (train(k, data, loss="cross_entropy", preprocess=mixup) for k in (1, 3))
    assert one.history.train_loss == pytest.approx(three.history.train_loss, rel=1e-4)
    assert len(one.history.test_accuracy) == 3

    def broken(X, y, rng):
        return X, y / 0

    with pytest.raises(ValueError, match="floats, all finite"), np.errstate(all="ignore"):
        train(1, data, loss="cross_entropy", preprocess=broken)


def test_a_named_network_has_as_many_outputs(rng):
    X = rng.integers(0, 256, (8, 1, 28, 28), np.uint8)
    run = quick(cpus(2), (X, np.ones((8, 1)), X, np.ones((8, 1))), num_epochs=1, loss="squared_error", lr=0.01)
    assert run.network.classes == 1 and run.model.predict(X, cpus(1)).shape == (8, 1)


@pytest.mark.parametrize("steps", [8, 11])  # of 8 an epoch
def test_a_loss_of_ones_own_resumed_and_loaded(numbers, tmp_path, steps):
    file = tmp_path / "run"
    data = numbers[0], np.stack([numbers[1]] * 2, axis=2) / 2, numbers[2], np.stack([numbers[3]] * 2, axis=2) / 2
    whole = train(2, data, loss=HUBER)
    first = train(2, data, loss=HUBER, checkpoint=file, callbacks=[StopAfter(steps)])
    assert first.history.loss == "huber"
    if steps % 8:
        assert first.history.interrupted["test_loss"] > 0 and "test_accuracy" not in first.history.interrupted

    with pytest.raises(CheckpointError, match="loss is 'squared_error' here and 'huber' in the checkpoint"):
        train(2, numbers, resume=file)
    resumed = train(2, data, loss=HUBER, resume=file)
    assert resumed.history.test_loss == whole.history.test_loss
    assert resumed.history.final_parameters_sha256 == whole.history.final_parameters_sha256

    X, y = data[2:]
    model = d2l.load_model(file)
    np.testing.assert_allclose(model.predict(X, cpus(2)), outputs(model.params, X), rtol=1e-4, atol=1e-4)
    assert 0 <= model.evaluate(X, np.zeros(30, int), cpus(1)) <= 1  # of classes
    with pytest.raises(ValueError, match=r"the loss huber is a function .* call load_model\(FILE, loss=\(huber, "):
        model.evaluate(X, y, cpus(2))
    model.save(tmp_path / "model")
    again = d2l.load_model(tmp_path / "model", loss=HUBER)
    assert again.evaluate(X, y, cpus(2)) == pytest.approx(first.history.last()["test_loss"], rel=1e-6)
    with pytest.raises(CheckpointError, match="it was trained with the loss huber, not squared_error"):
        d2l.load_model(file, loss="squared_error")
