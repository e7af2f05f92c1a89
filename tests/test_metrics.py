"""Metrics of one's own: sums over images on whatever devices, in histories, lines, plots and checkpoints."""

import json

import numpy as np
import pytest
from test_own_losses import NETWORK, StopAfter, cpus, numbers, outputs, train  # noqa: F401
from test_training import quick

import d2lmgpu as d2l
from d2lmgpu.devices import array_module
from d2lmgpu.training.checkpoints import CheckpointError


def top_3(logits, labels):
    best = logits.argsort(axis=1)[:, -3:]
    return (best == labels[:, None]).sum()


def confidence(logits, labels):
    """A number that is no count."""
    return array_module(logits).abs(logits).max(axis=1).sum()


OWN = {"top 3": top_3, "confidence": confidence}


@pytest.fixture
def classes(rng):
    X = rng.random((640, 1, 4, 5)).astype(np.float32)
    return X[:40], np.arange(40) % 3, X[40:], rng.integers(0, 3, 600)


@pytest.mark.parametrize("n", [2, 13, 600])  # fewer than devices, ragged, and more than a device takes at a time
def test_k_devices_equal_one_and_a_loop(classes, n):
    X, y = classes[2][:n], classes[3][:n]
    params = d2l.init_params(3, init="he", network=NETWORK)
    scores = outputs(params, X)
    places = [sorted(row, reverse=True).index(row[label]) for row, label in zip(scores, y, strict=True)]
    second = {"top 2": lambda logits, labels: (logits.argsort(axis=1)[:, -2:] == labels[:, None]).sum()}
    for k in (1, 2, 3, 5, 8):
        found = d2l.evaluate(params, X, y, cpus(k), NETWORK, metrics=second | OWN)
        assert list(found) == ["accuracy", "top 2", "top 3", "confidence"]
        assert found["accuracy"] == d2l.evaluate(params, X, y, cpus(k), NETWORK) == sum(p == 0 for p in places) / n
        assert found["top 2"] == sum(p < 2 for p in places) / n and found["top 3"] == 1
        assert found["confidence"] == pytest.approx(sum(abs(row).max() for row in scores) / n, rel=1e-5)


def test_of_numbers_and_soft_labels(numbers):  # noqa: F811
    """Metrics get the targets as they are, whatever they are."""

    def squares(out, targets):
        assert targets.dtype == out.dtype == np.float32
        return ((out - targets) ** 2).mean(axis=1).sum()

    history, params = train(3, numbers, metrics={"squares": squares})
    np.testing.assert_allclose(history.metrics["squares"], history.test_loss, rtol=1e-6)
    X, soft = numbers[2], np.abs(numbers[3]) / np.abs(numbers[3]).sum(axis=1, keepdims=True)
    found = d2l.evaluate(params, X, soft, cpus(2), NETWORK, metrics={"squares": squares})
    expected = outputs(params, X)
    assert found["accuracy"] == (expected.argmax(axis=1) == soft.argmax(axis=1)).mean()
    assert found["squares"] == pytest.approx(((expected - soft) ** 2).mean(), rel=1e-5)


def test_with_batch_norm_and_on_a_model(small):
    run = quick(cpus(2), small, network="lenet-bn", batch_statistics="aggregated", num_epochs=1, metrics=OWN)
    found = run.model.evaluate(*small[2:], cpus(3), metrics=OWN)
    assert found["accuracy"] == run.history.test_accuracy[0] and found["top 3"] == run.history.metrics["top 3"][0]
    assert found["confidence"] == pytest.approx(run.history.metrics["confidence"][0], rel=1e-5)


def test_on_gpus(standin, classes, monkeypatch):
    monkeypatch.setattr("d2lmgpu.networks.compute.USE_CUDA_KERNELS", False)
    params = d2l.init_params(3, init="he", network=NETWORK)
    X, y = classes[2][:7], classes[3][:7]
    found = d2l.evaluate(params, X, y, [d2l.gpu(0), d2l.gpu(1)], NETWORK, metrics=OWN)
    for name, value in d2l.evaluate(params, X, y, cpus(1), NETWORK, metrics=OWN).items():
        assert found[name] == pytest.approx(value, rel=1e-6)
    targets = np.eye(3)[y]
    losses = [d2l.evaluate(params, X, targets, on, NETWORK, loss="squared_error") for on in (cpus(1), [d2l.gpu(0)])]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_where_they_are_told(classes, tmp_path, capsys):
    settings = {"loss": "cross_entropy", "metrics": OWN, "num_epochs": 2}
    run = train(2, classes, callbacks=[d2l.TensorBoard(tmp_path)], progress=True, **settings)
    history = run.history
    assert [len(values) for values in history.metrics.values()] == [2, 2]
    line = f"test acc {history.test_accuracy[1]:.3f}, top 3 1.000, confidence {history.metrics['confidence'][1]:.3f}, "
    assert line in capsys.readouterr().out
    told = json.loads(json.dumps(history.as_dict()))
    assert told["metrics"] == history.metrics and d2l.History.from_dict(told) == history
    _, *own, _ = d2l.plot_history(history).axes
    assert [axes.get_ylabel() for axes in own] == ["top 3, test set", "confidence, test set"]
    np.testing.assert_array_equal(own[1].lines[0].get_ydata(), history.metrics["confidence"])
    assert any(b"metrics/top_3" in file.read_bytes() for file in tmp_path.iterdir() if file.is_file())


def test_resumed(classes, tmp_path):
    file, settings = tmp_path / "run", {"loss": "cross_entropy", "metrics": OWN}
    whole = train(2, classes, **settings)
    stopped = train(2, classes, checkpoint=file, callbacks=[StopAfter(6)], **settings)  # of 4 an epoch
    assert set(stopped.history.interrupted["metrics"]) == set(OWN)
    assert len(stopped.history.metrics["top 3"]) == 1
    with pytest.raises(CheckpointError, match="metrics are none here and top 3, confidence in the checkpoint"):
        train(2, classes, resume=file, loss="cross_entropy")
    resumed = train(2, classes, resume=file, **settings)
    assert resumed.history.metrics == whole.history.metrics and resumed.history.train_loss == whole.history.train_loss


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ([top_3], "metrics are .*; give functions by their names"),
        ({"top 3": 3}, "metric top 3 is 3; it should be a function"),
        ({3: top_3}, "3 cannot be a metric's name; give a word or two"),
        ({"": top_3}, "'' cannot be a metric's name"),
        ({"a\nb": top_3}, "cannot be a metric's name"),
        ({"accuracy": top_3}, "'accuracy' cannot be a metric's name; give a word or two, not accuracy or loss"),
        ({"a": lambda logits, labels: None}, "metric a returned None; it should be a number: the sum over images"),
        (
            {"a": lambda logits, labels: logits},
            r"metric a returned an array of float32 \(7, 3\); it should be a number",
        ),
        ({"a": lambda logits, labels: labels == 1}, "metric a returned an array of bool"),
        ({"a": lambda logits, labels: True}, "metric a returned True; it should be a number"),
        ({"a": lambda logits, labels: np.nan}, "metric a returned nan; it should be finite"),
        ({"a": lambda logits, labels: (logits.argmax(axis=1) + 1).mean()}, "metric a gives .*, not a mean"),
        ({"a": lambda logits, labels: 1 / 0}, "metric a failed: .*division by zero"),
        ({"a": lambda logits: 1.0}, "metric a is .*; it should be a function of outputs, labels"),
    ],
)
def test_metrics_that_are_none(classes, metrics, message):
    """They are tried before anything is trained."""
    with pytest.raises(ValueError, match=message):
        train(1, classes, loss="cross_entropy", metrics=metrics)
    with pytest.raises(ValueError, match=message):
        d2l.evaluate(d2l.init_params(network=NETWORK), *classes[2:], cpus(2), NETWORK, metrics=metrics)


def test_a_metric_that_fails_later(classes):
    """Of outputs that are learned: the error has its name."""
    calls = []

    def fickle(logits, labels):
        calls.append(len(labels))
        return 0 if len(calls) < 10 else "many"

    with pytest.raises(ValueError, match="metric fickle returned 'many'; it should be a number"):
        train(1, classes, loss="cross_entropy", metrics={"fickle": fickle})
