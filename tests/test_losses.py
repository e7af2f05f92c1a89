"""Losses: soft labels, squared error, and pairs of functions of one's own, on any number of devices."""

import numpy as np
import plan_steps
import pytest
from conftest import TOLERANCE, assert_close, few, long
from plan_steps import execution_of
from test_cuda_program import make_gpus  # noqa: F401

import d2lmgpu as d2l
from d2lmgpu.layers import check_targets
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
SMALL = sequential((1, 4, 4), Flatten(), Dense(6), ReLU(), Dense(K))


def huber(outputs, y):
    """For targets (n, K), twice over: of any shape."""
    from d2lmgpu.devices import array_module

    xp = array_module(outputs)
    difference = outputs - y.sum(axis=2)
    small = xp.abs(difference) < 1
    return xp.where(small, difference**2 / 2, xp.abs(difference) - 0.5).sum(), (difference, small, xp)


def huber_grad(cache):
    difference, small, xp = cache
    return xp.where(small, difference, xp.sign(difference))


HUBER = huber, huber_grad


def loss_by_hand(kind, outputs, y):
    """Loss and gradient in loops of floats."""
    total, grad = 0.0, np.zeros(outputs.shape)
    for n, row in enumerate(outputs):
        if kind == "cross_entropy":
            target = y[n] if y.ndim == 2 else np.eye(K)[y[n]]
            probabilities = np.array([np.exp(x) / np.exp(row).sum() for x in row])
            total -= sum(t * np.log(p) for t, p in zip(target, probabilities, strict=True))
            grad[n] = probabilities * sum(target) - target
        elif kind == "squared_error":
            target = y[n] if y.ndim == 2 else np.eye(K)[y[n]]
            total += sum((x - t) ** 2 for x, t in zip(row, target, strict=True)) / K
            grad[n] = [2 / K * (x - t) for x, t in zip(row, target, strict=True)]
        else:
            for k, (x, t) in enumerate(zip(row, y[n].sum(axis=1), strict=True)):
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


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("n", [0, 1, 5])
def test_against_loops_and_numeric_derivatives(rng, case, n):
    loss, make = CASES[case]
    y, outputs = make(rng, n), rng.normal(0, 2, (n, K))
    expected, grad = loss_by_hand(loss, outputs, y)
    value, found = find_loss(loss).with_grad(outputs, y)
    assert float(value) == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert_close(found, grad, 1e-12)
    for place in np.ndindex(outputs.shape):
        step = np.zeros_like(outputs)
        step[place] = 1e-6
        above, below = (find_loss(loss).forward(outputs + sign * step, y)[0] for sign in (1, -1))
        assert (above - below) / 2e-6 == pytest.approx(found[place], rel=1e-5, abs=1e-7)


def test_on_a_device_and_of_large_logits():
    logits, y = (
        d2l.put(np.array([[1e4, 0.0], [0.0, 0.0]]), d2l.cpu(1)),
        d2l.put(np.array([[0, 1], [0.5, 0.5]]), d2l.cpu(1)),
    )
    loss, cache = d2l.softmax_cross_entropy(logits, y)
    assert loss.device is d2l.cpu(1) and float(d2l.to_host(loss)) == pytest.approx(1e4 + np.log(2))
    np.testing.assert_allclose(d2l.to_host(d2l.softmax_cross_entropy_grad(cache)), [[1, -1], [0, 0]])
    _, cache = d2l.squared_error(logits, y)
    np.testing.assert_allclose(d2l.to_host(d2l.squared_error_grad(cache)), [[1e4, -1], [-0.5, -0.5]])


def problem(rng, network, case, n, dtype=np.float64):
    loss, make = CASES[case]
    X, y = rng.normal(size=(n, *network.input_shape)), make(rng, n)
    params = [param + rng.normal(0, 0.1, param.shape) for param in init_params(1, init="he", network=network)]
    y = y.astype(dtype) if y.dtype.kind == "f" else y
    return X.astype(dtype), y, [param.astype(dtype) for param in params], find_loss(loss)


def flat(arrays):
    return np.concatenate([array.ravel() for array in arrays])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", [0, 1, 7, 70, 133])  # of which a core takes 64 at a time, at most
@pytest.mark.parametrize("case", CASES)
def test_kernels_equal_the_layers_as_written(rng, case, n, dtype):
    for network in (NETWORK, NORMED)[: 1 if n == 1 else 2]:  # one image has no variance
        X, y, params, loss = problem(rng, network, case, n, dtype)
        value, grads = d2l.loss_and_grads(X, y, params, network, scale=4.0, loss=loss)
        exact = [array.astype(np.float64) if array.dtype.kind == "f" else array for array in (X, y, *params)]
        expected, wanted = loss_and_grads_as_written(*exact[:2], exact[2:], network, loss)
        tolerance = 20 * TOLERANCE[np.dtype(dtype)]
        assert float(value) == pytest.approx(float(expected), rel=tolerance)
        assert {grad.dtype for grad in grads} == {np.dtype(dtype)}
        assert_close(flat(grads), 4 * flat(wanted), 10 * tolerance)  # a bias before batch norm has gradient 0


@pytest.mark.parametrize("n", [5, *long(0)])
@pytest.mark.parametrize("case", few(OTHERS, "own"))
def test_cuda_kernels_equal_the_layers_as_written(rng, make_gpus, case, n):  # noqa: F811
    (gpu,) = make_gpus(1)  # the first one compiles the kernels on which a GPU is tried, which takes seconds
    X, y, params, loss = problem(rng, SMALL, case, n, np.float32)
    on_gpu = [d2l.put(array, gpu) for array in (X, y)], [d2l.put(param, gpu) for param in params]
    value, grads = d2l.loss_and_grads(*on_gpu[0], on_gpu[1], SMALL, scale=2.0, loss=loss)
    exact = [array.astype(np.float64) if array.dtype.kind == "f" else array for array in (X, y, *params)]
    expected, wanted = loss_and_grads_as_written(*exact[:2], exact[2:], SMALL, loss)
    assert float(d2l.to_host(value)) == pytest.approx(float(expected), rel=1e-4)
    for grad, other in zip(grads, wanted, strict=True):
        assert_close(grad, 2 * other, 1e-4)


def step(devices, network, X, y, params, loss, precision="float32", **settings):
    """The loss of a step and the parameters after it, on each device."""
    execution = execution_of(params, devices, network, "momentum", loss, precision, **settings)
    value = plan_steps.step(execution, X, y, 0.1)
    return value, [arrays[: len(params)] for arrays in plan_steps.copies(execution)]


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("n", [3, 13])  # fewer than devices: empty shards
@pytest.mark.parametrize("case", CASES)
def test_k_devices_equal_one(rng, case, n, k):
    devices = [d2l.cpu(i) for i in range(k)]
    X, y, params, loss = problem(rng, NETWORK, case, n)
    expected, grads = loss_and_grads_as_written(X, y, params, NETWORK, loss)
    value, after = step(devices, NETWORK, X, y, params, loss)
    assert value == pytest.approx(float(expected), rel=1e-11)
    for each in after:
        assert_close(flat(each) - flat(params), -0.1 / n * flat(grads), 1e-9)


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("case", OTHERS)
def test_mixed_precision(rng, case, k):
    """The scaled loss gives the same step on any number of devices, and nearly that of float32."""
    X, y, params, loss = problem(rng, NETWORK, case, 13, np.float32)
    one, many, full = (
        step([d2l.cpu(i) for i in range(number)], NETWORK, X, y, params, loss, precision)
        for number, precision in ((1, "mixed"), (k, "mixed"), (1, "float32"))
    )
    assert many[0] == pytest.approx(one[0], rel=1e-5) and one[0] == pytest.approx(full[0], rel=1e-2)
    for first, other, exact, before in zip(one[1][0], many[1][-1], full[1][0], params, strict=True):
        assert_close(other - before, first - before, 1e-3)
        assert_close(first - before, exact - before, 3e-2)


GOOD = np.linspace(-1, 1, 30).reshape(10, 3)


def mean(outputs, y):
    return ((outputs - y) ** 2).mean(), outputs - y


def squares(outputs, y):
    return ((outputs - y) ** 2).sum(), outputs - y


def in_place(outputs, y):
    outputs -= y
    return (outputs**2).sum(), outputs


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ((lambda outputs, y: 1.0, huber_grad), "forward returned 1.0; it should return the loss and a cache for grad"),
        ((lambda outputs, y: (np.nan, y), huber_grad), "forward returned nan; it should be finite"),
        ((lambda outputs, y: (1 / 0, y), huber_grad), "forward failed: .*division by zero"),
        ((mean, lambda d: 2 * d), "the loss should be summed over examples"),
        ((in_place, lambda d: 2 * d), "forward changed its outputs in place; it should work on a copy"),
        ((squares, lambda d: d), "grad gives .* for output [012] of example [012], but the numerical derivative"),
        ((squares, lambda d: 2 * d[0]), r"grad returned an array .*; it should be an array of floats \(3, 3\)"),
        ((squares, lambda d: d * np.inf), "grad returned numbers that are not finite"),
    ],
)
def test_losses_that_are_none(pair, message):
    """They are tried before anything is trained."""
    X = np.zeros((10, 1, 2, 2), np.float32)
    network = sequential((1, 2, 2), Flatten(), Dense(3))
    with pytest.raises(ValueError, match=message), np.errstate(invalid="ignore"):
        d2l.train([d2l.cpu(0)], loss=pair, data=(X, GOOD, X, GOOD), network=network, progress=False)


@pytest.mark.parametrize("loss", ["mse", 3, None, (huber,), (huber, 3), (huber, huber_grad, huber)])
def test_losses_that_nobody_knows(loss):
    with pytest.raises(
        ValueError, match="loss .* is unknown; choose from cross_entropy, squared_error, or give a pair"
    ):
        d2l.Settings(loss=loss)


@pytest.mark.parametrize(
    ("loss", "y", "message"),
    [
        (
            "cross_entropy",
            np.full((10, 3), 0.5),
            "sums from 1.5 to 1.5; for cross_entropy they should be probabilities",
        ),
        ("cross_entropy", np.eye(10, 3) * 3 - 1, "the least is -1, with sums"),
        ("cross_entropy", np.concatenate([np.eye(3)[[0] * 9], [[0, 0, 1.002]]]), "sums from 1 to 1; for cross_entropy"),
        ("cross_entropy", np.full((10, 4), 0.25), r"targets of shape \(10, 4\); .* or floats of shape \(10, 3\)"),
        ("squared_error", np.full((10, 3), np.nan), "not all finite"),
        ("squared_error", np.zeros((9, 3)), "10 images and 9 targets"),
        ("squared_error", np.full(10, 3), "labels from 3 to 3; they should be whole numbers from 0 to 2"),
    ],
)
def test_targets_that_are_none(loss, y, message):
    X = np.zeros((10, 1, 2, 2), np.float32)
    network = sequential((1, 2, 2), Flatten(), Dense(3))
    with pytest.raises(ValueError, match=message):
        d2l.train([d2l.cpu(0)], loss=loss, data=(X, y, X[:1], np.zeros(1, int)), network=network, progress=False)


def test_one_number_for_each_image():
    with pytest.raises(ValueError, match=r"they should be floats of shape \(5, 1\): give y\[:, None\]"):
        check_targets(np.zeros(5), 5, 1)
    check_targets(np.zeros((5, 1)), 5, 1)
