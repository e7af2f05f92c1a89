"""Labels that are none: one check, where they enter, before anything is learned from them."""

import numpy as np
import pytest
from plan_steps import execution_of
from runs import DATA, TINY, brief, cpus

import d2lmgpu as d2l
from d2lmgpu.layers import check_labels
from d2lmgpu.networks import init_params

LABELS = np.arange(12) % 4
X = DATA[0][:12]
PARAMS = init_params(1, init="he", network=TINY)
STATISTICS = d2l.networks.init_statistics(TINY)


def other(value, dtype=int):
    """The labels, of which one is another."""
    y = LABELS.astype(dtype)
    y[5] = value
    return y


def train_batch(X, y):
    """After which the parameters are what they were."""
    device_params = [d2l.get_params(PARAMS, device) for device in cpus(2)]
    try:
        d2l.train_batch(d2l.to_float(X), y, device_params, cpus(2), 0.1, network=TINY)
    finally:
        for param, before in zip(device_params[1], PARAMS, strict=True):
            np.testing.assert_array_equal(d2l.to_host(param), before)


def on_a_device(X, y):
    X, y = d2l.put(d2l.to_float(X), d2l.cpu(1)), d2l.put(y, d2l.cpu(1))
    d2l.loss_and_grads(X, y, d2l.get_params(PARAMS, d2l.cpu(1)), TINY)


WAYS = {
    "train": lambda X, y: brief(2, (X, y, X, LABELS)),
    "the test set": lambda X, y: brief(2, (X, LABELS, X, y)),
    "train_batch": train_batch,
    "loss_and_grads": lambda X, y: d2l.loss_and_grads(d2l.to_float(X), y, PARAMS, TINY),
    "on a device": on_a_device,
    "the loss alone": lambda X, y: d2l.softmax_cross_entropy(np.zeros((len(X), 4)), y),
    "a plan": lambda X, y: execution_of(PARAMS, cpus(1), TINY).step(d2l.to_float(X), y, 0.1),
    "evaluate": lambda X, y: d2l.evaluate(PARAMS, X, y, cpus(2), TINY, STATISTICS),
    "confusion_matrix": lambda X, y: d2l.confusion_matrix(y, LABELS, 4),
    "sweep": lambda X, y: d2l.sweep(
        d2l.grid(network=[TINY]), mode="sequential", data=(X, y, X, LABELS), progress=False
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_everything_that_takes_labels_checks_them(way):
    """As an index, -1 would be the last class."""
    with pytest.raises(ValueError, match="labels from -1 to 3; they should be whole numbers from 0 to "):
        WAYS[way](X, other(-1))


def test_a_queue_knows_no_largest_label():
    with pytest.raises(ValueError, match="labels from -1 to 3; they should be whole numbers from 0 on"):
        d2l.MinibatchQueue(X, other(-1), cpus(1), 4)
    d2l.MinibatchQueue(X, LABELS + 1000, cpus(1), 4)


def test_labels_of_any_whole_type_or_a_list():
    for y in (LABELS.tolist(), *(LABELS.astype(kind) for kind in "bBhHiIlLqQ")):
        check_labels(y, 12, 4)
        found = d2l.evaluate(PARAMS, X, y, cpus(1), TINY, STATISTICS)
        assert found == d2l.evaluate(PARAMS, X, LABELS, cpus(1), TINY, STATISTICS)
    check_labels([], 0, 10)
    losses = [brief(1, (X, y, X, y)).history.train_loss for y in (LABELS, [*LABELS])]
    assert losses[0] == losses[1]


def test_what_lies_on_a_gpu_is_not_read(standin, monkeypatch):
    """Its values would have to be waited for; its shape and type are known."""
    y = d2l.put(LABELS[:, None], d2l.gpu(0))
    with pytest.raises(ValueError, match=r"labels of shape \(12, 1\)"):
        check_labels(y, 12, 4)
    monkeypatch.setattr(type(y.raw), "min", None, raising=False)
    check_labels(d2l.put(LABELS + 5, d2l.gpu(0)), 12, 4)
    check_labels(d2l.put(LABELS + 5, d2l.gpu(0)).raw, 12, 4)
    with pytest.raises(ValueError, match="labels of type float64"):
        check_labels(d2l.put(LABELS / 2, d2l.gpu(0)).raw, 12, 4)
