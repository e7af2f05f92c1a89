"""Labels that are none: one check, where they enter, before anything is learned from them."""

import numpy as np
import pytest
from plan_steps import execution_of

import d2lmgpu as d2l
from d2lmgpu.layers import check_labels
from d2lmgpu.networks import LENET_BN, init_params

N = 12
LABELS = np.arange(N) % 10
X = np.random.default_rng(3).integers(1, 256, (N, 1, 28, 28), np.uint8)


def other(value, dtype=int):
    """The labels, of which one is another."""
    y = LABELS.astype(dtype)
    y[5] = value
    return y


BAD = {
    "a column": (LABELS[:, None], r"labels of shape \(12, 1\); they should be of shape \(12,\)"),
    "too few": (LABELS[:-1], "12 images and 11 labels"),
    "NaN": (other(np.nan, float), "labels of type float64; they should be whole numbers from 0 to 9"),
    "truths": (LABELS > 4, "labels of type bool"),
    "negative": (other(-1), "labels from -1 to 9; they should be whole numbers from 0 to 9$"),
    "200": (other(200, np.uint8), "labels from 0 to 200"),
    "from 1": (LABELS + 1, "labels from 1 to 10; .* if they count from 1, give y - 1"),
}


def train(X, y):
    d2l.train([d2l.cpu(0), d2l.cpu(1)], num_epochs=1, data=(X, y, X, LABELS), progress=False)


def train_with_such_a_test_set(X, y):
    d2l.train([d2l.cpu(0), d2l.cpu(1)], num_epochs=1, data=(X, LABELS, X, y), progress=False)


def train_batch(X, y):
    devices = [d2l.cpu(0), d2l.cpu(1)]
    start = d2l.init_params(1, init="he")
    device_params = [d2l.get_params(start, device) for device in devices]
    try:
        d2l.train_batch(d2l.to_float(X), y, device_params, devices, 0.1)
    finally:
        for param, before in zip(device_params[1], start, strict=True):
            np.testing.assert_array_equal(d2l.to_host(param), before)


def loss_and_grads(X, y):
    d2l.loss_and_grads(d2l.to_float(X), y, d2l.init_params())


def loss_and_grads_on_a_device(X, y):
    X, y = d2l.put(d2l.to_float(X), d2l.cpu(1)), d2l.put(y, d2l.cpu(1))
    d2l.loss_and_grads(X, y, d2l.get_params(d2l.init_params(), d2l.cpu(1)))


def a_step_with_synchronised_batch_norm(X, y):
    params = init_params(network=LENET_BN)
    execution = execution_of(params, [d2l.cpu(0)], LENET_BN)
    execution.step(d2l.to_float(X), y, 0.1)


def the_loss_alone(X, y):
    d2l.softmax_cross_entropy(np.zeros((len(X), 10)), y)


def evaluate(X, y):
    d2l.evaluate(d2l.init_params(), X, y, [d2l.cpu(0), d2l.cpu(1)])


def confusion_matrix(X, y):
    d2l.confusion_matrix(y, LABELS, 10)


def sweep(X, y):
    d2l.sweep(d2l.grid(num_epochs=1), mode="sequential", data=(X, y, X, LABELS), progress=False)


WAYS = [train, train_with_such_a_test_set, train_batch, loss_and_grads, loss_and_grads_on_a_device, the_loss_alone]
WAYS += [a_step_with_synchronised_batch_norm, evaluate, confusion_matrix, sweep]


@pytest.mark.parametrize("case", BAD)
def test_labels_that_are_none(case):
    y, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        check_labels(y, N, 10)


@pytest.mark.parametrize("way", WAYS)
def test_everything_that_takes_labels_checks_them(way):
    """As an index, -1 would be the last class."""
    y, message = BAD["negative"]
    with pytest.raises(ValueError, match=message):
        way(X, y)


def test_a_queue_knows_no_largest_label():
    with pytest.raises(ValueError, match="labels from -1 to 9; they should be whole numbers from 0 on"):
        d2l.MinibatchQueue(X, other(-1), [d2l.cpu(0)], 4)
    d2l.MinibatchQueue(X, LABELS + 1000, [d2l.cpu(0)], 4)


@pytest.mark.parametrize("predicted", [LABELS[:, None], LABELS / 2, LABELS + 1, LABELS[:-1]])
def test_predictions_that_are_none(predicted):
    with pytest.raises(ValueError, match="labels"):
        d2l.confusion_matrix(LABELS, predicted, 10)


def test_labels_of_any_whole_type_or_a_list():
    for y in (LABELS.tolist(), *(LABELS.astype(kind) for kind in "bBhHiIlLqQ")):
        check_labels(y, N, 10)
        assert 0 <= d2l.evaluate(d2l.init_params(), X, y, [d2l.cpu(0)]) <= 1
    check_labels([], 0, 10)


def test_what_lies_on_a_gpu_is_not_read(standin, monkeypatch):
    """Its values would have to be waited for; its shape and type are known."""
    monkeypatch.setattr("d2lmgpu.networks.compute.USE_CUDA_KERNELS", False)
    y = d2l.put(LABELS[:, None], d2l.gpu(0))
    with pytest.raises(ValueError, match=r"labels of shape \(12, 1\)"):
        d2l.loss_and_grads(d2l.put(d2l.to_float(X), d2l.gpu(0)), y, d2l.get_params(d2l.init_params(), d2l.gpu(0)))
    monkeypatch.setattr(type(y.raw), "min", None, raising=False)
    check_labels(d2l.put(LABELS + 5, d2l.gpu(0)), N, 10)
    check_labels(d2l.put(LABELS + 5, d2l.gpu(0)).raw, N, 10)
    with pytest.raises(ValueError, match="labels of type float64"):
        check_labels(d2l.put(LABELS / 2, d2l.gpu(0)).raw, N, 10)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (X.tolist(), r"images is \[\[.*; it should be an array \(N, C, H, W\)"),
        (X.astype(int), "images of type int64; they should be uint8, 0 to 255, or float32, 0 to 1"),
        (X[:, 0], r"images is an array of uint8 .*; it should be an array \(N, C, H, W\)"),
    ],
)
@pytest.mark.parametrize("way", [train, evaluate, lambda X, y: d2l.predict(d2l.init_params(), X, [d2l.cpu(0)])])
def test_images_that_are_none(way, images, message):
    with pytest.raises(ValueError, match=message):
        way(images, LABELS)


def test_labels_in_a_list():
    histories = [
        d2l.train([d2l.cpu(0)], num_epochs=1, data=(X, y, X, y), progress=False).history for y in (LABELS, [*LABELS])
    ]
    assert histories[0].train_loss == histories[1].train_loss


@pytest.mark.parametrize("way", [train, evaluate, sweep])
@pytest.mark.parametrize("dtype", [np.float64, np.float16, ">f4"])
def test_images_of_another_precision_than_the_parameters(way, dtype):
    with pytest.raises(ValueError, match=r"they should be uint8, 0 to 255, or float32, 0 to 1; give X.astype"):
        way((X / 255).astype(dtype), LABELS)
