"""Dropout: the layer, in networks, and with the kernels.

That k devices leave out what one does, tests/training/test_equals_one_device.py says.
"""

import numpy as np
import pytest
import references
from conftest import TOLERANCE, assert_close
from training_runs import cpus

import d2lmgpu as d2l
from d2lmgpu import networks
from d2lmgpu.layers import Draws, dropout, dropout_grad
from d2lmgpu.networks import AvgPool2d, BatchNorm, Conv2d, Dense, Dropout, Flatten, ReLU, sequential

PLAIN = sequential(
    (2, 8, 7), Conv2d(4, 3), ReLU(), AvgPool2d(), Dropout(0.25), Flatten(), Dense(9), ReLU(), Dropout(0.5), Dense(3)
)
NORMED = sequential(
    (2, 8, 7), Dropout(0.1), Conv2d(4, 3), BatchNorm(), ReLU(), Dropout(0.25), Flatten(), Dropout(0.5), Dense(3)
)
TWO = {"plain": PLAIN, "normed": NORMED}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(5, 7), (3, 2, 3, 5), (1, 1), (0, 4)])
def test_forward_and_gradient(make_devices, rng, shape, dtype):
    """The gradient against numeric differences: the same draws give the same mask."""
    (device,) = make_devices(1)
    x, dy, draws, p = rng.normal(size=shape).astype(dtype), rng.normal(size=shape).astype(dtype), Draws(3, 1, 2), 0.3
    y, cache = dropout(d2l.put(x, device), p, draws)
    kept = d2l.to_host(y) != 0
    assert y.dtype == dtype
    assert_close(y, np.where(kept, x / (1 - p), 0), TOLERANCE[y.dtype])

    def loss(x):
        return (dropout(x, p, draws)[0] * dy).sum()

    dx = dropout_grad(d2l.put(dy, device), cache)
    assert dx.dtype == dtype
    assert_close(dx, references.central_differences(loss, x.astype(float)), max(TOLERANCE[y.dtype], 1e-9))


def test_the_mask_is_the_same_wherever_and_in_whatever_layout(make_devices):
    (device,) = make_devices(1)
    x, draws = np.ones((6, 3, 4, 5)), Draws(5, 1)
    expected, _ = dropout(x, 0.4, draws)
    channels_last = x.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2)
    for each in (x, channels_last, x.astype(np.float32)):
        np.testing.assert_array_equal(d2l.to_host(dropout(d2l.put(each, device), 0.4, draws)[0]) > 0, expected > 0)
    parts = [dropout(x[start:stop], 0.4, draws.after(start))[0] for start, stop in ((0, 1), (1, 1), (1, 6))]
    np.testing.assert_array_equal(np.concatenate(parts), expected)


@pytest.mark.parametrize("p", [0, 1e-9, 0.1, 0.5, 0.9, 1 - 1e-3, np.float32(0.25), np.nextafter(1, 0)])
def test_as_many_are_left_out_as_should_be(p):
    """Within 6 standard deviations of a binomial distribution, and so is the mean of what is left."""
    y, _ = dropout(np.ones((1000, 100)), p, Draws(1))
    n = y.size
    assert abs((y == 0).mean() - p) <= 6 * (p * (1 - p) / n) ** 0.5
    assert p > 0.99 or abs(y.mean() - 1) <= 6 * (p / (1 - p) / n) ** 0.5 + 1e-12
    assert p or (y == 1).all()


def gradients(network, function=networks.loss_and_grads, N=5, dtype=np.float64, **arguments):
    rng = np.random.default_rng(4)
    X, y = rng.random((N, *network.input_shape)).astype(dtype), rng.integers(0, network.classes, N)
    params = networks.init_params(1, init="he", network=network, dtype=dtype)
    return function(X, y, params, network, **arguments)


@pytest.mark.parametrize("name", TWO)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("N", [1, 5, 150])
def test_kernels_compute_the_same(name, dtype, N):
    """In micro-batches, too, of which each has its examples' draws; and in mixed precision."""
    draws, tolerance = Draws(7, 1, 2, 30), 20 * TOLERANCE[np.dtype(dtype)]
    for network in (TWO[name], networks.in_half(TWO[name])) if dtype == np.float64 else (TWO[name],):
        loss, grads = gradients(network, N=N, dtype=dtype, draws=draws)
        expected_loss, expected = gradients(network, networks.loss_and_grads_as_written, N=N, dtype=dtype, draws=draws)
        assert float(loss) == pytest.approx(float(expected_loss), rel=tolerance)
        for one, other in zip(grads, expected, strict=True):
            if name == "plain" or one is not grads[1]:  # whose gradient is 0 before batch norm
                assert_close(one, other, tolerance)


@pytest.mark.parametrize("function", [networks.loss_and_grads, networks.loss_and_grads_as_written])
def test_each_layer_draws_for_itself(function):
    """Of two layers one after the other both let a quarter through, not the same half; the counts are binomial."""
    network = sequential((1, 30, 40), Flatten(), Dropout(0.5), Dropout(0.5), Dense(2))
    params = networks.init_params(0, network=network, dtype=np.float64)
    _, (weight, _) = function(np.ones((1, 1, 30, 40)), np.zeros(1, int), params, network, draws=Draws(0))
    assert abs((weight[:, 0] != 0).mean() - 0.25) < 6 * (0.25 * 0.75 / 1200) ** 0.5


def test_predictions_are_without(rng):
    """And so are evaluations, after training steps with the same kernels: they are those of the network without."""
    bare = sequential((2, 8, 7), Conv2d(4, 3), ReLU(), AvgPool2d(), Flatten(), Dense(9), ReLU(), Dense(3))
    X, y = rng.random((70, 2, 8, 7), np.float32), rng.integers(0, 3, 70)
    params = networks.init_params(1, init="he", network=PLAIN)
    networks.loss_and_grads(X, y, params, PLAIN, draws=Draws(0))
    devices = cpus(2)
    assert d2l.evaluate(params, X, y, devices, PLAIN) == d2l.evaluate(params, X, y, devices, bare)
    expected = d2l.predict(params, X, devices, bare)
    np.testing.assert_array_equal(d2l.predict(params, X, devices, PLAIN), expected)


def test_the_next_minibatch_draws_anew():
    """Of seed, epoch and number of the minibatch, also where an epoch is gone on with."""
    queue = d2l.MinibatchQueue(np.zeros((9, 1, 1, 1)), np.zeros(9, int), [d2l.cpu(0)], 4, seed=5)
    queue.shuffle(3, done=1)
    assert queue.draws == Draws(5, 3, 1)
    queue.next()
    assert queue.draws == Draws(5, 3, 2)
