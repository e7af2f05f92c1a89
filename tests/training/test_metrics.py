"""Metrics of one's own: sums over images on whatever devices, in histories, lines, plots and checkpoints."""

import json

import numpy as np
import pytest
from runs import DATA, PLAIN, TINY, brief, cpus

import d2lmgpu as d2l
from d2lmgpu import networks
from d2lmgpu.devices import array_module
from d2lmgpu.networks import logits_as_written
from d2lmgpu.training.checkpoints import CheckpointError

X, Y = DATA[2:]
EYE = np.eye(4, dtype=np.float32)
PARAMS = d2l.init_params(3, init="he", network=PLAIN)


def top_2(logits, labels):
    best = logits.argsort(axis=1)[:, -2:]
    return (best == labels[:, None]).sum()


def confidence(logits, labels):
    """A number that is no count."""
    return array_module(logits).abs(logits).max(axis=1).sum()


def squares(out, targets):
    assert targets.dtype == out.dtype == np.float32
    return ((out - targets) ** 2).mean(axis=1).sum()


OWN = {"top 2": top_2, "confidence": confidence}


@pytest.mark.parametrize("n", [2, 13, 20])  # fewer than devices, ragged, and more than a device takes at a time
def test_k_devices_equal_one_and_a_loop(monkeypatch, n):
    monkeypatch.setattr("d2lmgpu.training.evaluation.EVALUATION_BATCH", 4)
    scores = logits_as_written(d2l.to_float(X[:n]), PARAMS, PLAIN)
    places = [sorted(row, reverse=True).index(row[label]) for row, label in zip(scores, Y[:n], strict=True)]
    for k in (1, 2, 3, 5, 8):
        found = d2l.evaluate(PARAMS, X[:n], Y[:n], cpus(k), PLAIN, metrics=OWN)
        assert list(found) == ["accuracy", "top 2", "confidence"]
        assert found["accuracy"] == sum(place == 0 for place in places) / n
        assert found["top 2"] == sum(place < 2 for place in places) / n
        assert found["confidence"] == pytest.approx(sum(abs(row).max() for row in scores) / n, rel=1e-5)


def test_of_numbers_and_soft_labels():
    """Metrics get the targets as they are, whatever they are."""
    data = DATA[0], EYE[DATA[1]], X, EYE[Y]
    history, params = brief(3, data, network=PLAIN, loss="squared_error", metrics={"squares": squares})
    np.testing.assert_allclose(history.metrics["squares"], history.test_loss, rtol=1e-6)
    soft = 0.7 * EYE[Y] + 0.1 * EYE[(Y + 1) % 4] + 0.05
    found = d2l.evaluate(params, X, soft, cpus(2), PLAIN, metrics={"squares": squares})
    expected = logits_as_written(d2l.to_float(X), params, PLAIN)
    assert found["accuracy"] == (expected.argmax(axis=1) == Y).mean()
    assert found["squares"] == pytest.approx(((expected - soft) ** 2).mean(), rel=1e-5)


def test_where_they_are_told(tmp_path, capsys):
    history = brief(2, metrics=OWN, callbacks=[d2l.TensorBoard(tmp_path)], progress=True).history
    first, second = zip(*history.metrics.values(), strict=True)
    line = f"test acc {history.test_accuracy[1]:.3f}, top 2 {second[0]:.3f}, confidence {second[1]:.3f}, "
    assert line in capsys.readouterr().out
    told = json.loads(json.dumps(history.as_dict()))
    assert told["metrics"] == history.metrics and d2l.History.from_dict(told) == history
    _, *own, _ = d2l.plot_history(history).axes
    assert [axes.get_ylabel() for axes in own] == ["top 2, test set", "confidence, test set"]
    np.testing.assert_array_equal(own[1].lines[0].get_ydata(), [first[1], second[1]])
    assert any(b"metrics/top_2" in file.read_bytes() for file in tmp_path.iterdir() if file.is_file())


class Enough(d2l.Callback):
    def on_step(self, epoch, step, loss):
        return (epoch, step) == (1, 3)


def test_resumed(tmp_path):
    file = tmp_path / "run"
    whole = brief(2, metrics=OWN).history
    stopped = brief(2, checkpoint=file, callbacks=[Enough()], metrics=OWN).history
    assert set(stopped.interrupted["metrics"]) == set(OWN) and len(stopped.metrics["top 2"]) == 1
    with pytest.raises(CheckpointError, match="metrics are none here and top 2, confidence in the checkpoint"):
        brief(2, resume=file)
    resumed = brief(2, resume=file, metrics=OWN).history
    assert resumed.metrics == whole.metrics and resumed.train_loss == whole.train_loss


@pytest.mark.parametrize(
    "metric, message",
    [
        (lambda logits, labels: None, "metric a returned None; it should be a number: the sum over images"),
        (lambda logits, labels: logits, r"metric a returned an array of float32 \(7, 4\); it should be a number"),
        (lambda logits, labels: np.nan, "metric a returned nan; it should be finite"),
        (lambda logits, labels: (logits.argmax(axis=1) + 1).mean(), "metric a gives .*, not a mean"),
        (lambda logits, labels: 1 / 0, "metric a failed: .*division by zero"),
    ],
)
def test_metrics_are_tried_before_anything_is_trained(metric, message):
    class Never(d2l.Callback):
        def on_start(self, history, steps):
            pytest.fail("training begins")

    with pytest.raises(ValueError, match=message):
        brief(1, metrics={"a": metric}, network=TINY, callbacks=[Never()])
    with pytest.raises(ValueError, match=message):
        d2l.evaluate(PARAMS, X, Y, cpus(2), PLAIN, metrics={"a": metric})


def fails(values, *labels):
    """As a metric, and as a layer, which are tried with other numbers of images."""
    assert len(values) != len(X) // 2
    return 0.0 if labels else (values, None)


FAILING = networks.Network([*PLAIN, networks.Layer(fails, None)], PLAIN.input_shape, PLAIN.classes)


@pytest.mark.parametrize(
    "evaluate, error",
    [
        (lambda: d2l.evaluate(PARAMS, X, Y, cpus(2), PLAIN, metrics={"a": fails}), ValueError),
        (lambda: d2l.predict(PARAMS, X, cpus(2), FAILING), AssertionError),
    ],
)
def test_an_error_on_all_devices_is_raised_once(evaluate, error):
    with pytest.raises(error):
        evaluate()
    d2l.synchronize(cpus(2))  # which would raise an error that nobody has taken
