"""Mixed precision: products of float16, against loops that round where it says; and the scale of the loss."""

import numpy as np
import pytest
import references
from conftest import assert_close, few, long
from plan_steps import copies, execution_of, step
from test_checkpoints import run_until
from test_cuda_networks import BEFORE_NORM, NETWORKS as GRAPH_NETWORKS, assert_near
from test_cuda_program import TINY_NETWORK
from test_loads import BATCHES
from test_training import quick

import d2lmgpu as d2l
from d2lmgpu.devices import array_module
from d2lmgpu.layers import half, half_grad
from d2lmgpu.networks import (
    LENET,
    NETWORKS,
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
from d2lmgpu.plans.execution.store import Minibatch
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


@pytest.mark.parametrize("scale", [*long(1.0), 2.0**12])
def test_lenet_against_loops(rng, scale):
    X, y = rng.random((3, 1, 28, 28)), rng.integers(0, 10, 3)
    params = half_weights(init_params(3, init="he", dtype=np.float64))
    _, loss, grads = references.lenet(X, y, params, rounded, scale)
    for _ in range(2):  # the second time with arrays that are in use already
        actual_loss, actual = loss_and_grads(X, y, params, in_half(LENET), scale=scale)
        assert float(actual_loss) == pytest.approx(loss, rel=1e-9)
        for one, other in zip(actual, grads, strict=True):
            assert_close(one, other, 1e-9)
    _, _, exact = references.lenet(X, y, params, scale=scale)
    assert any(np.abs(one - other).max() > 1e-4 * np.abs(other).max() for one, other in zip(grads, exact, strict=True))


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_fast_bodies_against_the_layers(rng, name, dtype):
    network = in_half(NETWORKS[name])
    X, y = rng.random((7, 1, 28, 28)).astype(dtype), rng.integers(0, 10, 7)
    params = half_weights(init_params(3, init="he", network=network, dtype=dtype))
    loss, grads = loss_and_grads(X, y, params, network)
    expected_loss, expected = loss_and_grads_as_written(X, y, params, network)
    tolerance = 1e-9 if dtype == np.float64 else 5e-3  # in float32 sums differ, and some round the other way
    assert float(loss) == pytest.approx(float(expected_loss), rel=tolerance)
    for i, (one, other) in enumerate(zip(grads, expected, strict=True)):
        if i not in BEFORE_NORM.get(name, ()):
            assert_close(one, other, tolerance)


def test_only_weights_are_rounded(rng):
    params = [p + rng.normal(0, 0.1, p.shape) for p in init_params(0, network=NETWORKS["lenet-bn"])]
    for param, copy in zip(params, half_weights(params), strict=True):
        np.testing.assert_array_equal(copy, rounded(param) if param.ndim > 1 else param)


def test_small_gradients_are_lost_without_a_scale(rng):
    """Where the right answer is nearly certain, all gradients are below the smallest float16."""
    params = half_weights(init_params(1, init="he"))
    X, y = rng.random((4, 1, 28, 28)).astype(np.float32), np.full(4, 3)
    params[-1][3] = 20
    _, exact = loss_and_grads(X, y, params)
    for scale, lost in ((1.0, True), (2.0**12, False)):
        _, grads = loss_and_grads(X, y, params, in_half(LENET), scale=scale)
        assert any(not grad.any() and other.any() for grad, other in zip(grads, exact, strict=True)) == lost
    for grad, other in zip(grads, exact, strict=True):
        assert_close(grad / 2.0**12, other, 2e-2)


def five_steps(devices, name, optimizer, loads=None):
    """In float64, where sums in another order round to the same float16."""
    params = init_params(2, init="he", network=NETWORKS[name], dtype=np.float64)
    network = NETWORKS[name]
    execution = execution_of(params, devices, network, optimizer, precision="mixed")
    rng = np.random.default_rng(5)
    losses = []
    for n in BATCHES:
        losses.append(step(execution, rng.random((n, 1, 28, 28)), rng.integers(0, 10, n), 0.02, loads))
    return losses, [arrays[: len(params)] for arrays in copies(execution)]


@pytest.mark.parametrize("name", few([name for name in NETWORKS if name != "lenet-bn"], "lenet", "cnn"))
@pytest.mark.parametrize("optimizer, k", [("sgd", 2), ("momentum", 3), ("adam", 5)])
def test_k_devices_equal_one(name, optimizer, k):
    losses, copies = five_steps([d2l.cpu(i) for i in range(k)], name, optimizer, [2, 1, 0, 1, 1][:k])
    expected_losses, (expected,) = five_steps([d2l.cpu(0)], name, optimizer)
    assert losses == pytest.approx(expected_losses, rel=1e-8)
    for copy in copies:
        for i, (param, first, alone) in enumerate(zip(copy, copies[0], expected, strict=True)):
            assert param.tobytes() == first.tobytes()
            if i not in BEFORE_NORM.get(name, ()):
                assert_close(param, alone, 1e-5 if (name, optimizer) == ("deep", "adam") else 1e-8)


def update(store, grads, lr, batch_size):
    """A step in which these NumPy arrays are the gradients, all in one stage, summed over devices."""

    def do():
        compute.begin(store, Minibatch([1], None))
        for grad, value in zip(store.views(store.flat_of(("grads", 0)), 0), grads, strict=True):
            grad[...] = array_module(grad).asarray(value)
        row = np.array(compute.finite(store))
        compute.agree(store, d2l.put(row.view(np.uint8), d2l.cpu(0)))
        compute.update(store, Action("update", 0), lr, batch_size)
        compute.end(store)

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
    arrays = [*store.copy()[0], *(d2l.DeviceArray(array, device) for array in store.flat_state)]

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


def test_infinite_gradients_of_different_sign_add_up_in_silence(make_devices):
    arrays = [
        d2l.put(np.float32([value, 1]), device)
        for value, device in zip((np.inf, -np.inf), make_devices(2), strict=True)
    ]
    d2l.allreduce(arrays, "ring")
    for array in arrays:
        np.testing.assert_array_equal(d2l.to_host(array), [np.nan, 2])


@pytest.mark.long
@pytest.mark.parametrize("network, overlap", [("lenet", True), ("lenet", False), ("lenet-bn", False)])
def test_a_run_finds_its_scale(small, monkeypatch, network, overlap):
    """Begun with a scale at which all overflows, it comes down and trains, on all devices alike, without a warning."""
    monkeypatch.setattr(loss_scale, "FIRST_SCALE", 2.0**28)
    settings = {"network": network, "overlap": overlap, "num_epochs": 5}
    result = quick([d2l.cpu(i) for i in range(3)], small, precision="mixed", **settings)
    usual = quick([d2l.cpu(i) for i in range(3)], small, **settings)
    assert result.history.precision == "mixed" and not result.history.diverged
    assert result.history.train_loss[1] > 1.05 * usual.history.train_loss[1]  # some steps were left out
    assert result.history.train_loss[-1] < 0.8 * usual.history.train_loss[0]


@pytest.mark.parametrize("network", ["lenet", *long("lenet-bn")])
def test_training_is_nearly_as_in_float32(small, network):
    settings = {"network": network, "lr": 0.05, "optimizer": "momentum"}
    devices = [d2l.cpu(0), d2l.cpu(1)]
    mixed, exact = (quick(devices, small, precision=precision, **settings) for precision in ("mixed", "float32"))
    assert mixed.history.train_loss != exact.history.train_loss
    assert mixed.history.train_loss == pytest.approx(exact.history.train_loss, rel=5e-2)


def test_a_resumed_run_equals_an_uninterrupted_one(small, tmp_path, monkeypatch):
    """The scale has just come down when the run breaks off."""
    monkeypatch.setattr(loss_scale, "FIRST_SCALE", 2.0**24)
    devices, file = [d2l.cpu(0), d2l.cpu(1)], tmp_path / "file"
    settings = {"precision": "mixed", "optimizer": "adam", "lr": 0.001, "batch_size": 100}
    whole = quick(devices, small, **settings)
    run_until(monkeypatch, 7, devices, small, checkpoint=file, checkpoint_steps=2, **settings)
    assert load_checkpoint(file).arrays["scaling"][0] < 2.0**24
    resumed = quick(devices, small, resume=file, **settings)
    assert resumed.history.final_parameters_sha256 == whole.history.final_parameters_sha256
    assert resumed.history.train_loss == whole.history.train_loss


@pytest.mark.parametrize("name", long("tiny", *GRAPH_NETWORKS))
def test_graphs_compute_the_same(standin, rng, name):
    """As layer by layer, on GPUs and on CPUs. Sums in float32 differ, and some round the other way."""
    network = {"tiny": TINY_NETWORK, **GRAPH_NETWORKS}[name]
    X = rng.integers(0, 256, (14, *network.input_shape)).astype(np.uint8)
    y = rng.integers(0, network.classes, 14).astype(np.uint8)
    settings = {"batch_size": 4, "lr": 0.05, "num_epochs": 2, "init": "he", "data": (X[:11], y[:11], X[11:], y[11:])}
    settings |= {"network": network, "precision": "mixed", "progress": False}
    runs = [d2l.train([d2l.gpu(0), d2l.gpu(1)], graphs=graphs, **settings) for graphs in (True, False)]
    expected = d2l.train([d2l.cpu(0), d2l.cpu(1)], **settings)
    assert runs[0].history.phases["step"] > 0 == runs[1].history.phases["step"]
    starts = init_params(0, init="he", network=network)
    for run in runs:
        assert run.history.train_loss == pytest.approx(expected.history.train_loss, rel=1e-3)
        for i, (param, other, start) in enumerate(zip(run.params, expected.params, starts, strict=True)):
            if i not in BEFORE_NORM.get(name, ()):
                assert_near(d2l.to_host(param) - start, d2l.to_host(other) - start, 2e-3)
