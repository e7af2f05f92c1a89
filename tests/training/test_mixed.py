"""Mixed precision: products of float16, against loops that round where it says; and the scale of the loss.

That k devices do what one does, test_equals_one_device.py says.
"""

import numpy as np
import pytest
import references
from conftest import assert_close, long
from one_device import NETWORKS, NORMED, PLAIN, examples, first_params, without_gradient
from plan_steps import execution_of
from training_runs import StopAfter, cpus, quick, random_data

import d2lmgpu as d2l
from d2lmgpu.devices import array_module
from d2lmgpu.layers import Draws, half, half_grad
from d2lmgpu.networks import (
    LENET,
    Dense,
    Flatten,
    half_weights,
    in_half,
    init_params,
    loss_and_grads,
    loss_and_grads_as_written,
    mixed as loss_scale,
    sequential,
)
from d2lmgpu.plans.execution import compute
from d2lmgpu.plans.execution.lower import Action
from d2lmgpu.plans.execution.step import Minibatch
from d2lmgpu.training.checkpoints import load_checkpoint

DTYPES = [np.float32, np.float64]
LARGEST = 65504


def rounded(x):
    """To 11 significant bits, or to multiples of 2^-24 where the number is small; computed, not cast."""
    _, exponent = np.frexp(x)
    unit = np.ldexp(1.0, np.maximum(exponent - 11, -24))
    return np.round(x / unit) * unit  # half to even, as IEEE 754 says


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_layer_rounds_both_ways(make_devices, rng, dtype):
    (device,) = make_devices(1)
    x = np.concatenate([rng.normal(0, 10.0**e, 200) for e in (-9, -7, -5, -2, 0, 3)]).astype(dtype)
    for y in (half(d2l.put(x, device))[0], half_grad(d2l.put(x, device))):
        assert y.dtype == dtype
        np.testing.assert_array_equal(d2l.to_host(y), rounded(x.astype(float)))
    y, _ = half(d2l.put(np.array([LARGEST, -65519, 65520, -1e6, np.nan, 0], dtype), device))
    np.testing.assert_array_equal(d2l.to_host(y), [LARGEST, -LARGEST, np.inf, -np.inf, np.nan, 0])


@pytest.mark.parametrize("scale", [2.0**12, *long(1.0)])
def test_lenet_against_loops(rng, scale):
    X, y = rng.random((1, 1, 28, 28)), rng.integers(0, 10, 1)
    params = half_weights(init_params(3, init="he", dtype=np.float64))
    _, loss, grads = references.lenet(X, y, params, rounded, scale)
    for _ in range(2):  # the second time with arrays that are in use already
        actual_loss, actual = loss_and_grads(X, y, params, in_half(LENET), scale=scale)
        assert float(actual_loss) == pytest.approx(loss, rel=1e-9)
        for one, other in zip(actual, grads, strict=True):
            assert_close(one, other, 1e-9)
    _, _, exact = references.lenet(X, y, params, scale=scale)
    assert any(np.abs(one - other).max() > 1e-4 * np.abs(other).max() for one, other in zip(grads, exact, strict=True))


@pytest.mark.parametrize("name", ["lenet", *NETWORKS])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_fast_bodies_against_the_layers(rng, name, dtype):
    network = {"lenet": LENET, **NETWORKS}[name]
    X, y = examples(network, 7, dtype)
    params, draws = half_weights(first_params(network, dtype)), Draws(1)
    loss, grads = loss_and_grads(X, y, params, in_half(network), draws=draws)
    expected_loss, expected = loss_and_grads_as_written(X, y, params, in_half(network), draws=draws)
    tolerance = 1e-9 if dtype == np.float64 else 5e-3  # in float32 sums differ, and some round the other way
    assert float(loss) == pytest.approx(float(expected_loss), rel=tolerance)
    for i, (one, other) in enumerate(zip(grads, expected, strict=True)):
        if i not in without_gradient(network):
            assert_close(one, other, tolerance)


def test_only_weights_are_rounded(rng):
    params = [p + rng.normal(0, 0.1, p.shape) for p in init_params(0, network=NORMED)]
    for param, copy in zip(params, half_weights(params), strict=True):
        np.testing.assert_array_equal(copy, rounded(param) if param.ndim > 1 else param)


def update(store, grads, lr, batch_size):
    """A step in which these NumPy arrays are the gradients, all in one stage, summed over devices."""

    def do():
        compute.begin_step(store, Minibatch([1], None))
        for grad, value in zip(store.views(store.flat_of(("grads", 0)), 0), grads, strict=True):
            grad[...] = array_module(grad).asarray(value)
        row = np.array(compute.finite(store))
        compute.agree(store, d2l.put(row.view(np.uint8), d2l.cpu(0)))
        compute.update(store, Action("update", 0), lr, batch_size)
        compute.end_step(store)

    store.device.submit(do).result()


def test_masters_keep_what_is_too_small_for_half_weights():
    """A hundred steps of a tenth of a float16's last digit each."""
    network = sequential((1, 1, 3), Flatten(), Dense(4))
    params = [np.ones(param.shape, np.float32) for param in init_params(network=network)]
    (store,) = execution_of(params, [d2l.cpu(0)], network, precision="mixed").stores
    before = store.params(0)[0].copy()
    for _ in range(100):
        update(store, [np.full(param.shape, -store.precision.scale, np.float32) for param in params], 2.0**-11 / 10, 1)
    master = store.copy()[0][0]
    assert_close(master, np.full(master.shape, 1 + 10 * 2.0**-11, np.float32), 1e-5)
    np.testing.assert_array_equal(store.params(0)[0], rounded(d2l.to_host(master)))
    assert (before == 1).all()


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_a_step_that_overflows_is_left_out(make_devices, rng, monkeypatch, optimizer, bad):
    monkeypatch.setattr(loss_scale, "INTERVAL", 3)
    (device,) = make_devices(1)
    network = sequential((1, 1, 3), Flatten(), Dense(5))
    params = [rng.normal(0, 1, param.shape).astype(np.float32) for param in init_params(network=network)]
    (store,) = execution_of(params, [device], network, optimizer, precision="mixed").stores
    arrays = [*store.copy()[0], *(d2l.DeviceArray(array, device) for array in sum(store.state.values(), []))]

    def updated(grads):
        update(store, grads, 0.1, 2)
        return [d2l.to_host(array) for array in arrays], store.precision.scale / loss_scale.FIRST_SCALE

    good = [rng.normal(0, 1, param.shape).astype(np.float32) for param in params]
    broken = [good[0], good[1].copy()]
    broken[1][2] = bad
    first, scale = updated(good)
    assert scale == 1 and not np.array_equal(first[0], params[0])
    for expected_scale in (0.5, 0.25):
        after, scale = updated(broken)
        assert scale == expected_scale and store.steps == 1
        for one, other in zip(after, first, strict=True):
            np.testing.assert_array_equal(one, other)
    assert [updated(good)[1] for _ in range(4)] == [0.25, 0.25, 0.5, 0.5]
    for _ in range(20):
        updated(broken)
    assert store.precision.scale == 1


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, monkeypatch):
    """The scale has just come down when the run breaks off."""
    monkeypatch.setattr(loss_scale, "FIRST_SCALE", 2.0**24)
    file, data = tmp_path / "file", random_data(PLAIN, 60, 11)
    settings = {"network": PLAIN, "precision": "mixed", "optimizer": "adam", "lr": 0.001, "batch_size": 10}
    whole = quick(cpus(2), data, **settings)
    quick(cpus(2), data, checkpoint=file, callbacks=[StopAfter(7)], **settings)
    assert load_checkpoint(file).arrays["scaling"][0] < 2.0**24
    resumed = quick(cpus(2), data, resume=file, **settings)
    assert resumed.history.final_parameters_sha256 == whole.history.final_parameters_sha256
    assert resumed.history.train_loss == whole.history.train_loss
