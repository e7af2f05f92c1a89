"""Each layer against loops in float64, on every kind of device, and its gradient against finite differences."""

import numpy as np
import pytest
import references
from conftest import TOLERANCE, assert_close

import d2lmgpu as d2l

DTYPES = [np.float32, np.float64]


def on(device, *arrays):
    return [d2l.put(array, device) for array in arrays]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "N, C, H, W, O, kh, kw",
    [
        (2, 3, 7, 6, 4, 3, 2),
        (1, 1, 5, 5, 1, 5, 5),
        (3, 2, 4, 9, 5, 1, 3),
        (0, 2, 5, 5, 3, 3, 3),
        (9, 1, 28, 28, 2, 3, 3),
    ],
)
def test_conv2d(make_devices, rng, dtype, N, C, H, W, O, kh, kw):
    (device,) = make_devices(1)
    x, weight, bias = (rng.normal(size=s).astype(dtype) for s in [(N, C, H, W), (O, C, kh, kw), (O,)])
    y, cache = d2l.conv2d(*on(device, x, weight, bias))
    assert_close(y, references.conv2d(x, weight, bias), TOLERANCE[y.dtype])
    dy = rng.normal(size=y.shape).astype(dtype)
    grads = d2l.conv2d_grad(d2l.put(dy, device), cache)
    for grad, expected in zip(grads, references.conv2d_grad(dy.astype(float), x, weight), strict=True):
        assert_close(grad, expected, TOLERANCE[y.dtype])
    assert d2l.conv2d_grad(d2l.put(dy, device), cache, input_grad=False)[0] is None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape, size", [((2, 3, 9, 9), 2), ((1, 2, 4, 6), 2), ((3, 1, 7, 8), 3), ((0, 2, 4, 4), 2)])
def test_avg_pool2d_floors(make_devices, rng, dtype, shape, size):
    (device,) = make_devices(1)
    x = rng.normal(size=shape).astype(dtype)
    y, cache = d2l.avg_pool2d(d2l.put(x, device), size)
    assert_close(y, references.avg_pool2d(x, size), TOLERANCE[y.dtype])
    dy = rng.normal(size=y.shape).astype(dtype)
    expected = references.avg_pool2d_grad(dy.astype(float), shape, size)
    assert_close(d2l.avg_pool2d_grad(d2l.put(dy, device), cache), expected, TOLERANCE[y.dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape, size", [((2, 3, 9, 9), 2), ((1, 2, 4, 6), 2), ((3, 1, 7, 8), 3), ((0, 2, 4, 4), 2)])
@pytest.mark.parametrize("values", ["normal", "with equal ones"])
def test_max_pool2d(make_devices, rng, dtype, shape, size, values):
    (device,) = make_devices(1)
    x = (rng.normal(size=shape) if values == "normal" else rng.integers(-1, 2, shape)).astype(dtype)
    y, cache = d2l.max_pool2d(d2l.put(x, device), size)
    np.testing.assert_array_equal(d2l.to_host(y), references.max_pool2d(x, size))
    dy = rng.normal(size=y.shape).astype(dtype)
    dx = d2l.max_pool2d_grad(d2l.put(dy, device), cache)
    np.testing.assert_array_equal(d2l.to_host(dx), references.max_pool2d_grad(dy, x, size))


@pytest.mark.parametrize("dtype", DTYPES)
def test_dense(make_devices, rng, dtype):
    (device,) = make_devices(1)
    x, weight, bias = (rng.normal(size=s).astype(dtype) for s in [(5, 7), (7, 3), (3,)])
    y, cache = d2l.dense(*on(device, x, weight, bias))
    assert_close(y, references.dense(x, weight, bias), TOLERANCE[y.dtype])
    dy = rng.normal(size=y.shape).astype(dtype)
    grads = d2l.dense_grad(d2l.put(dy, device), cache)
    for grad, expected in zip(grads, references.dense_grad(dy.astype(float), x, weight), strict=True):
        assert_close(grad, expected, TOLERANCE[y.dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_relu(make_devices, rng, dtype):
    (device,) = make_devices(1)
    x = rng.normal(size=(3, 4)).astype(dtype)
    x[0, 0] = 0
    y, cache = d2l.relu(d2l.put(x, device))
    np.testing.assert_array_equal(d2l.to_host(y), np.where(x > 0, x, 0))
    dy = rng.normal(size=x.shape).astype(dtype)
    np.testing.assert_array_equal(d2l.to_host(d2l.relu_grad(d2l.put(dy, device), cache)), np.where(x > 0, dy, 0))


def test_flatten_keeps_channel_order(make_devices, rng):
    (device,) = make_devices(1)
    x = rng.normal(size=(2, 3, 4, 5))
    channels_last = x.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2)  # as convolutions leave it in memory
    y, cache = d2l.flatten(d2l.put(channels_last, device))
    np.testing.assert_array_equal(d2l.to_host(y), x.reshape(2, 60))
    np.testing.assert_array_equal(d2l.to_host(d2l.flatten_grad(y, cache)), x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax_cross_entropy(make_devices, rng, dtype):
    (device,) = make_devices(1)
    logits, y = rng.normal(size=(6, 10)).astype(dtype), rng.integers(0, 10, 6)
    loss, cache = d2l.softmax_cross_entropy(*on(device, logits, y))
    expected_loss, expected_grad = references.cross_entropy(logits.astype(float), y)
    assert float(loss) == pytest.approx(expected_loss, rel=TOLERANCE[logits.dtype])
    assert_close(d2l.softmax_cross_entropy_grad(cache), expected_grad, TOLERANCE[logits.dtype])


def test_softmax_cross_entropy_takes_any_logits():
    """Rows far apart: subtracting anything but each row's own maximum gives inf or nan."""
    logits = np.array([[1e4, 0.0, -1e4], [-1e4, -1e4, -1e4]], np.float32)
    loss, cache = d2l.softmax_cross_entropy(logits, np.array([1, 2]))
    assert loss == pytest.approx(1e4 + np.log(3), rel=1e-6)
    np.testing.assert_allclose(d2l.softmax_cross_entropy_grad(cache)[1], [1 / 3, 1 / 3, -2 / 3], rtol=1e-6)


@pytest.mark.parametrize(
    "X, y, message",
    [
        (np.zeros((2, 1, 28, 28), np.uint8), np.zeros(2, int), "uint8 and the parameters are float32; .*to_float"),
        (np.zeros((2, 3, 28, 28), np.float32), np.zeros(2, int), r"the network takes \(1, 28, 28\)"),
        (np.zeros((3, 1, 28, 28), np.float32), np.zeros(2, int), "needs one"),
    ],
)
def test_wrong_shapes_and_dtypes_are_named(X, y, message):
    params, device = d2l.init_params(), d2l.cpu(0)
    with pytest.raises(ValueError, match=message):
        d2l.loss_and_grads(X, y, params)
    with pytest.raises(ValueError, match=message):
        d2l.train_batch(X, y, [d2l.get_params(params, device)], [device], 0.1)
    if len(X) == len(y):
        with pytest.raises(ValueError, match=message):
            d2l.lenet(X, params)
