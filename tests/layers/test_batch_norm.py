"""Batch norm: by itself, and in the two ways of taking statistics."""

import numpy as np
import pytest
import references
from conftest import TOLERANCE, assert_close

import d2lmgpu as d2l
from d2lmgpu.layers.batch_norm import (
    batch_moments,
    batch_norm,
    batch_norm_fixed,
    batch_norm_grad,
    mean_and_variance,
    track_statistics,
)
from d2lmgpu.networks import BatchNorm, Conv2d, Dense, Flatten, init_params, init_statistics, sequential

SHAPES = [(4, 3, 5, 6), (7, 2, 1, 1), (9, 4)]


def example(rng, shape, dtype=np.float64):
    C = shape[1]
    x = rng.normal(3, 2, shape).astype(dtype)
    return x, *(rng.normal(0, 1, size).astype(dtype) for size in (C, C, shape))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_forward(make_devices, rng, shape, dtype):
    x, weight, bias, _ = example(rng, shape, dtype)
    (device,) = make_devices(1)
    y, _ = batch_norm(*(d2l.put(array, device) for array in (x, weight, bias)))
    assert y.dtype == dtype
    assert_close(y, references.batch_norm(*(array.astype(float) for array in (x, weight, bias))), TOLERANCE[y.dtype])


@pytest.mark.parametrize("mean", [1e7 / 3, -1e8 / 3])
def test_no_variance_is_below_zero(make_devices, rng, mean):
    """Sums over devices lose it beside a large mean, and may leave less than nothing, of which there is no root."""
    parts = [mean + rng.normal(0, 1e-6, (n, 64)) for n in (3, 5, 7)]
    moments = sum(batch_moments(part) for part in parts)
    count, sums, squares = moments
    lost = (squares / count - (sums / count) ** 2).min()
    assert lost < -1e-5  # or these would not be such numbers
    variance = mean_and_variance(moments)[1]
    assert (variance >= 0).all()
    (device,) = make_devices(1)
    moments = d2l.put(moments, device)
    x, ones, zeros = (d2l.put(array, device) for array in (parts[0], np.ones(64), np.zeros(64)))
    y, _ = batch_norm(x, ones, zeros, moments)
    assert np.isfinite(d2l.to_host(y)).all()
    device.run(track_statistics, zeros, ones, moments).result()
    running = d2l.to_host(ones)
    assert np.isfinite(running).all() and (running > 0).all()


def test_a_large_mean_leaves_the_variance_its_digits(rng):
    x = (1000 + rng.normal(0, 0.1, (50, 2, 6, 6))).astype(np.float32)
    mean, variance = mean_and_variance(batch_moments(x))
    assert_close(mean, x.astype(float).mean((0, 2, 3)), 1e-6)
    assert_close(variance, x.astype(float).var((0, 2, 3)), 1e-3)  # float32 knows 1000 to 6e-5
    equal = np.full((3, 2), 7, np.float32)
    y, cache = batch_norm(equal, np.ones(2, np.float32), np.zeros(2, np.float32))
    assert not y.any() and all(np.isfinite(grad).all() for grad in batch_norm_grad(equal, cache))


def test_many_values_add_up_to_their_last_digit(make_devices, rng):
    """As of a first convolution's outputs: a sum of float32 in a float32 would lose three digits."""
    (device,) = make_devices(1)
    x = rng.normal(0.5, 1, (64, 3, 26, 26)).astype(np.float32)
    count, sums, squares = d2l.to_host(batch_moments(d2l.put(x, device)))
    exact = x.astype(float)
    np.testing.assert_array_equal(count, 64 * 26 * 26)
    assert_close(sums, exact.sum((0, 2, 3)), 1e-12)
    assert_close(squares, (exact**2).sum((0, 2, 3)), 1e-8)


def test_running_statistics(make_devices, rng):
    """As PyTorch keeps them: momentum 0.1, the variance with n - 1."""
    (device,) = make_devices(1)
    mean, variance = d2l.put(np.zeros(3), device), d2l.put(np.ones(3), device)
    expected_mean, expected_variance = np.zeros(3), np.ones(3)
    for n in (4, 9, 1):
        x = rng.normal(2, 3, (n, 3, 2, 2))
        track_statistics(mean, variance, batch_moments(d2l.put(x, device)))
        expected_mean = 0.9 * expected_mean + 0.1 * x.mean((0, 2, 3))
        expected_variance = 0.9 * expected_variance + 0.1 * x.var((0, 2, 3), ddof=1)
    track_statistics(mean, variance, d2l.put(np.zeros((3, 3)), device))  # of no images
    assert_close(mean, expected_mean, 1e-12)
    assert_close(variance, expected_variance, 1e-12)
    x, weight, bias, _ = example(rng, (5, 3, 2, 2))
    y = batch_norm_fixed(*(d2l.put(array, device) for array in (x, weight, bias)), mean, variance)
    wide = (None, slice(None), None, None)
    scaled = (x - expected_mean[wide]) / np.sqrt(expected_variance[wide] + 1e-5)
    assert_close(y, weight[wide] * scaled + bias[wide], 1e-12)


def test_running_statistics_of_ones_own_step(make_devices, rng):
    """Those of the second layer's inputs, too; without images they stay as they are."""
    network = sequential((3, 5, 4), BatchNorm(), Conv2d(2, 3), BatchNorm(), Flatten(), Dense(4))
    (device,), X, y = make_devices(1), rng.normal(2, 3, (6, 3, 5, 4)), rng.integers(0, 4, 6)
    params = init_params(1, init="he", dtype=np.float64, network=network)
    running = d2l.get_params([array + 0.5 for array in init_statistics(network, np.float64)], device)
    on_device = [d2l.put(X, device), d2l.put(y, device), d2l.get_params(params, device)]
    d2l.loss_and_grads(*on_device, network, statistics=running)
    d2l.loss_and_grads(on_device[0][:0], on_device[1][:0], on_device[2], network, statistics=running)
    between = references.conv2d(references.batch_norm(X, *params[:2]), *params[2:4])
    for x, mean, variance in zip((X, between), running[::2], running[1::2], strict=True):
        assert_close(mean, 0.9 * 0.5 + 0.1 * x.mean((0, 2, 3)), 1e-12)
        assert_close(variance, 0.9 * 1.5 + 0.1 * x.var((0, 2, 3), ddof=1), 1e-12)
