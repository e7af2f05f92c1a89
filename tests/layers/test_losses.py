"""Losses: soft labels, squared error, and pairs of functions of one's own, on any number of devices."""

import numpy as np
import pytest
from conftest import TOLERANCE, assert_close
from own_loss import HUBER, huber_grad

import d2lmgpu as d2l
from d2lmgpu.networks import (
    AvgPool2d,
    BatchNorm,
    Conv2d,
    Dense,
    Flatten,
    ReLU,
    find_loss,
    init_params,
    loss_and_grads_as_written,
    sequential,
)

K = 4
NETWORK = sequential((2, 9, 8), Conv2d(3, 2), ReLU(), AvgPool2d(), Flatten(), Dense(5), ReLU(), Dense(K))
NORMED = sequential((2, 9, 8), Conv2d(3, 2), BatchNorm(), ReLU(), AvgPool2d(), Flatten(), Dense(K))
FLAT = sequential((1, 2, 2), Flatten(), Dense(3))


def loss_by_hand(kind, outputs, y):
    """Loss and gradient in loops of floats."""
    total, grad = 0.0, np.zeros(outputs.shape)
    for n, row in enumerate(outputs):
        target = y[n] if y.ndim == 2 else np.eye(K)[y[n]] if y.ndim == 1 else y[n].sum(axis=1)
        if kind == "cross_entropy":
            probabilities = np.array([np.exp(x) / np.exp(row).sum() for x in row])
            total -= sum(t * np.log(p) for t, p in zip(target, probabilities, strict=True))
            grad[n] = probabilities * sum(target) - target
        elif kind == "squared_error":
            total += sum((x - t) ** 2 for x, t in zip(row, target, strict=True)) / K
            grad[n] = [2 / K * (x - t) for x, t in zip(row, target, strict=True)]
        else:
            for k, (x, t) in enumerate(zip(row, target, strict=True)):
                total += (x - t) ** 2 / 2 if abs(x - t) < 1 else abs(x - t) - 0.5
                grad[n, k] = x - t if abs(x - t) < 1 else np.sign(x - t)
    return total, grad


def soft(rng, n):
    y = rng.random((n, K))
    return y / y.sum(axis=1, keepdims=True)


CASES = {
    "labels": ("cross_entropy", lambda rng, n: rng.integers(0, K, n)),
    "soft labels": ("cross_entropy", soft),
    "squares": ("squared_error", lambda rng, n: rng.normal(size=(n, K))),
    "squares of labels": ("squared_error", lambda rng, n: rng.integers(0, K, n)),
    "own": (HUBER, lambda rng, n: rng.normal(size=(n, K, 2))),
}
OTHERS = [name for name in CASES if name != "labels"]


def in_dtype(array, dtype):
    return array.astype(dtype) if array.dtype.kind == "f" else array


@pytest.mark.parametrize("case", CASES)
def test_against_loops_and_numeric_derivatives(make_devices, rng, case):
    (device,), (name, make) = make_devices(1), CASES[case]
    loss = find_loss(name)
    for n in (0, 1, 5):
        y, outputs = make(rng, n), rng.normal(0, 2, (n, K))
        if case == "soft labels":
            y *= 1.5  # the formula should not take for granted that the sum is 1
        for dtype in (np.float64, np.float32):
            y, outputs = in_dtype(y, dtype), outputs.astype(dtype)
            expected, grad = loss_by_hand(name, outputs.astype(float), in_dtype(y, float))
            value, found = device.run(loss.with_grad, d2l.put(outputs, device), d2l.put(y, device)).result()
            tolerance = TOLERANCE[np.dtype(dtype)]
            assert float(value) == pytest.approx(expected, rel=tolerance, abs=tolerance)
            assert_close(found, grad, tolerance)
        for place in np.ndindex(outputs.shape):
            change = np.zeros(outputs.shape)
            change[place] = 1e-6
            above, below = (loss.forward(outputs + sign * change, y)[0] for sign in (1, -1))
            assert (above - below) / 2e-6 == pytest.approx(grad[place], rel=1e-5, abs=1e-7)


def test_large_logits():
    """Rows far apart: subtracting anything but each row's own maximum gives inf or nan."""
    logits = np.array([[1e4, 0.0, -1e4], [-1e4, -1e4, -1e4]], np.float32)
    for y in (np.array([1, 2]), np.eye(3)[[1, 2]]):
        loss, cache = d2l.softmax_cross_entropy(logits, y)
        assert loss == pytest.approx(1e4 + np.log(3), rel=1e-6)
        grad = d2l.softmax_cross_entropy_grad(cache)
        np.testing.assert_allclose(grad, [[1, -1, 0], [1 / 3, 1 / 3, -2 / 3]], rtol=1e-6)


def problem(rng, network, case, n, dtype=np.float64):
    loss, make = CASES[case]
    X, y = rng.normal(size=(n, *network.input_shape)), make(rng, n)
    params = [param + rng.normal(0, 0.1, param.shape) for param in init_params(1, init="he", network=network)]
    return X.astype(dtype), in_dtype(y, dtype), [param.astype(dtype) for param in params], find_loss(loss)


def as_written(network, X, y, params, loss):
    """The loss and the gradients of the layers as they are written, in float64."""
    return loss_and_grads_as_written(
        X.astype(float), in_dtype(y, float), [p.astype(float) for p in params], network, loss
    )


def flat(arrays):
    return np.concatenate([d2l.to_host(array).ravel() for array in arrays])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("case", CASES)
def test_kernels_equal_the_layers_as_written(rng, case, dtype):
    for n in (0, 1, 7, 133):  # of which a core takes 64 at a time, at most
        for network in (NETWORK, NORMED)[: 1 if n == 1 else 2]:  # one image has no variance
            X, y, params, loss = problem(rng, network, case, n, dtype)
            value, grads = d2l.loss_and_grads(X, y, params, network, scale=4.0, loss=loss)
            expected, wanted = as_written(network, X, y, params, loss)
            tolerance = 20 * TOLERANCE[np.dtype(dtype)]
            assert float(value) == pytest.approx(float(expected), rel=tolerance)
            assert {grad.dtype for grad in grads} == {np.dtype(dtype)}
            assert_close(flat(grads), 4 * flat(wanted), 10 * tolerance)  # a bias before batch norm has gradient 0


def mean(outputs, y):
    return ((outputs - y) ** 2).mean(), outputs - y


def squares(outputs, y):
    return ((outputs - y) ** 2).sum(), outputs - y


def in_place(outputs, y):
    outputs -= y
    return (outputs**2).sum(), outputs


X_ZERO, GOOD = np.zeros((10, 1, 2, 2), np.float32), np.linspace(-1, 1, 30).reshape(10, 3)


@pytest.mark.parametrize(
    "loss, y, message",
    [
        ((lambda outputs, y: (1 / 0, y), huber_grad), GOOD, "forward failed: .*division by zero"),
        ((mean, lambda d: 2 * d), GOOD, "the loss should be summed over examples"),
        ((in_place, lambda d: 2 * d), GOOD, "forward changed its outputs in place; it should work on a copy"),
        ((squares, lambda d: d), GOOD, "grad gives .* of example [012], but the numerical derivative"),
        ((squares, lambda d: 2 * d[0]), GOOD, r"grad returned an array .*; it should be an array of floats \(3, 3\)"),
        ((squares, lambda d: d * np.inf), GOOD, "grad returned numbers that are not finite"),
        ("cross_entropy", np.full((10, 3), 0.5), "sums from 1.5 to 1.5; .* should be probabilities"),
        ("cross_entropy", np.concatenate([np.eye(3)[[0] * 9], [[0, 0, 1.002]]]), "sums from 1 to 1; for cross_entropy"),
    ],
)
def test_losses_and_targets_that_are_none(loss, y, message):
    """They are tried before anything is trained."""
    data = X_ZERO, y, X_ZERO[:3], GOOD[:3]
    with pytest.raises(ValueError, match=message), np.errstate(invalid="ignore"):
        d2l.train([d2l.cpu(0)], loss=loss, data=data, network=FLAT, progress=False)
