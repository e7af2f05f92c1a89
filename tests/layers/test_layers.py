"""Each layer against loops in float64, on every kind of device, and its gradient against finite differences."""

import numpy as np
import pytest
import references
from conftest import TOLERANCE, assert_close

import d2lmgpu as d2l

LAYERS = {  # forward, backward, and what they should compute
    "conv2d": (d2l.conv2d, d2l.conv2d_grad, references.conv2d, references.conv2d_grad),
    "avg_pool2d": (d2l.avg_pool2d, d2l.avg_pool2d_grad, references.avg_pool2d, references.avg_pool2d_grad),
    "max_pool2d": (d2l.max_pool2d, d2l.max_pool2d_grad, references.max_pool2d, references.max_pool2d_grad),
    "dense": (d2l.dense, d2l.dense_grad, references.dense, references.dense_grad),
    "relu": (d2l.relu, d2l.relu_grad, lambda x: np.where(x > 0, x, 0), lambda dy, x: np.where(x > 0, dy, 0)),
    "flatten": (d2l.flatten, d2l.flatten_grad, lambda x: x.reshape(len(x), -1), lambda dy, x: dy.reshape(x.shape)),
    "batch_norm": (d2l.layers.batch_norm, d2l.layers.batch_norm_grad, references.batch_norm, None),
}


def conv(N, C, H, W, O, kh, kw, **options):
    return "conv2d", [(N, C, H, W), (O, C, kh, kw), (O,)], options


POOLED = [((2, 3, 9, 9), 2), ((1, 2, 4, 6), 2), ((3, 1, 7, 8), 3), ((0, 2, 4, 4), 2)]
CASES = [
    conv(2, 3, 7, 6, 4, 3, 2),
    conv(1, 1, 5, 5, 1, 5, 5),
    conv(3, 2, 4, 9, 5, 1, 3),
    conv(0, 2, 5, 5, 3, 3, 3),
    conv(9, 1, 28, 28, 2, 3, 3),
    conv(2, 2, 7, 6, 3, 3, 3, stride=1, padding=1),
    conv(2, 2, 7, 6, 3, 3, 3, stride=2, padding=0),
    conv(2, 2, 8, 5, 3, 3, 2, stride=2, padding=1),
    conv(2, 2, 9, 9, 3, 1, 1, stride=3, padding=0),
    conv(2, 2, 5, 4, 3, 5, 4, stride=2, padding=2),
    conv(2, 2, 2, 2, 3, 3, 3, stride=1, padding=1),
    conv(2, 2, 6, 11, 3, 2, 4, stride=3, padding=3),
    *((name, [shape], {"size": size}) for name in ("avg_pool2d", "max_pool2d") for shape, size in POOLED),
    ("dense", [(5, 7), (7, 3), (3,)], {}),
    ("dense", [(0, 7), (7, 3), (3,)], {}),
    ("relu", [(3, 4)], {}),
    ("flatten", [(2, 3, 4, 5)], {}),
]


@pytest.mark.parametrize("name, shapes, options", CASES)
def test_a_layer_and_its_gradient(make_devices, rng, name, shapes, options):
    """Of values and gradients at random, and of small whole numbers, many of which are equal, or zero."""
    (device,) = make_devices(1)
    forward, backward, expected_forward, expected_backward = LAYERS[name]
    for dtype, is_whole in [(np.float32, False), (np.float64, False), (np.float32, True)]:

        def draw(shape, dtype=dtype, is_whole=is_whole):
            return (rng.integers(-2, 3, shape) if is_whole else rng.normal(size=shape)).astype(dtype)

        arrays = [draw(shape) for shape in shapes]
        tolerance = 0 if name in ("max_pool2d", "relu", "flatten") else TOLERANCE[np.dtype(dtype)]
        y, cache = forward(*(d2l.put(array, device) for array in arrays), **options)
        assert y.dtype == dtype
        assert_close(y, expected_forward(*arrays, **options), tolerance)
        dy = draw(y.shape)
        grads = backward(d2l.put(dy, device), cache)
        expected = expected_backward(dy.astype(float), *arrays, **options)
        if len(arrays) == 1:
            grads, expected = [grads], [expected]
        for grad, wanted in zip(grads, expected, strict=True):
            assert grad.dtype == dtype
            assert_close(grad, wanted, tolerance)
        if name == "conv2d":
            assert d2l.conv2d_grad(d2l.put(dy, device), cache, input_grad=False)[0] is None


@pytest.mark.parametrize(
    "name, shapes, options",
    [
        *(conv(1, 2, 5, 4, 2, 3, 2, stride=2, padding=1), *{case[0]: case for case in CASES[::-1]}.values()),
        *(("batch_norm", [shape, shape[1:2], shape[1:2]], {}) for shape in ((4, 3, 5, 6), (7, 2, 1, 1), (9, 4))),
    ],
)
def test_gradients_are_derivatives(rng, name, shapes, options):
    forward, backward, *_ = LAYERS[name]
    arrays = [rng.normal(size=shape) for shape in shapes]
    y, cache = forward(*arrays, **options)
    dy = rng.normal(size=y.shape)
    grads = backward(dy, cache)
    for i, grad in enumerate(grads if len(arrays) > 1 else [grads]):

        def summed(x, i=i):
            given = [*arrays[:i], x, *arrays[i + 1 :]]
            return (forward(*given, **options)[0] * dy).sum()

        assert_close(grad, references.central_differences(summed, arrays[i]), 1e-6)


def test_flatten_keeps_channel_order(make_devices, rng):
    """Also of images whose channels come last in memory, as convolutions leave them."""
    (device,) = make_devices(1)
    x = rng.normal(size=(2, 3, 4, 5))
    channels_last = x.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2)
    y, cache = d2l.flatten(d2l.put(channels_last, device))
    np.testing.assert_array_equal(d2l.to_host(y), x.reshape(2, 60))
    np.testing.assert_array_equal(d2l.to_host(d2l.flatten_grad(y, cache)), x)
