"""Exchanging gradients in buckets while others are computed, and preparing the next minibatch meanwhile."""

import numpy as np
import pytest
from conftest import LONG_ON_STANDIN, TOLERANCE, assert_close, long
from test_data_parallel import batches, one_device

import d2lmgpu as d2l
from d2lmgpu.parallel import Replica, overlap, submit_step, summed_loss


def replicas(device_params, devices):
    return [Replica(params, device) for params, device in zip(device_params, devices, strict=True)]


@pytest.mark.parametrize("flat", [True, *long(False)])
@pytest.mark.parametrize("bucket", [2**18, *long(1, 2**30)])  # a bucket a parameter, two buckets, one
@pytest.mark.parametrize("k", [1, 2, 3, *long(8)])
def test_overlapped_steps_equal_one_device(make_devices, monkeypatch, k, bucket, flat):
    monkeypatch.setattr(overlap, "BUCKET", bucket)
    devices = make_devices(k)
    device_params = [d2l.get_params(d2l.init_params(seed=2, init="he"), device) for device in devices]
    losses = []
    for X, y in batches(np.float32):
        shards = d2l.split_batch(X, y, devices)
        losses.append(summed_loss(submit_step(*shards, replicas(device_params, devices), 0.1, "ring", flat, True)))
    expected_losses, expected = one_device(np.float32)
    assert losses == pytest.approx(expected_losses, rel=1e-5)
    for params in device_params:
        for param, first, alone in zip(params, device_params[0], expected, strict=True):
            assert d2l.to_host(param).tobytes() == d2l.to_host(first).tobytes()
            assert_close(param, alone, TOLERANCE[param.dtype])


@pytest.mark.parametrize(("bucket", "expected"), [(1, 8), (2**18, 2), (2**30, 1)])
def test_buckets_cover_all_parameters_from_the_end(monkeypatch, bucket, expected):
    monkeypatch.setattr(overlap, "BUCKET", bucket)
    params = d2l.init_params()
    slices = overlap.split_in_buckets(params)
    assert len(slices) == expected and slices[0].stop == 8 and slices[-1].start == 0
    assert all(one.start == other.stop for one, other in zip(slices, slices[1:], strict=False))
    for part in slices[:-1]:
        assert sum(p.nbytes for p in params[part]) >= bucket > sum(p.nbytes for p in params[part][1:])


def test_the_last_layers_gradients_are_ready_first(rng):
    """`ready` may only be called when the gradients have their final values."""
    X, y, params = rng.random((70, 1, 28, 28), dtype=np.float32), rng.integers(0, 10, 70), d2l.init_params(0, init="he")
    grads = [np.empty_like(p) for p in params]
    seen = []
    d2l.loss_and_grads(X, y, params, out=grads, ready=lambda first: seen.append((first, [g.copy() for g in grads])))
    assert [first for first, _ in seen][-1] == 0 and {6, 4, 2, 0} <= {first for first, _ in seen}
    for first, snapshot in seen:
        assert all(np.array_equal(a, b) for a, b in zip(snapshot[first:], grads[first:], strict=True))


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_on_a_device_changes_no_parameters(make_devices, overlap, failing):
    """Images too small fail on their device. Nor may another wait for gradients that will never be ready."""
    devices = make_devices(2)
    device_params = [d2l.get_params(d2l.init_params(), device) for device in devices]
    images = [np.zeros((2, 1, 28, 28), np.float32)] * 2
    images[failing] = np.zeros((2, 1, 3, 3), np.float32)
    X_shards = [d2l.put(X, device) for X, device in zip(images, devices, strict=True)]
    y_shards = [d2l.put(np.zeros(2, int), device) for device in devices]
    with pytest.raises(ValueError):
        summed_loss(submit_step(X_shards, y_shards, replicas(device_params, devices), 0.1, "ring", True, overlap))
    d2l.synchronize(devices)
    for params in device_params:
        for param, before in zip(params, d2l.init_params(), strict=True):
            np.testing.assert_array_equal(d2l.to_host(param), before)
    for device in devices:
        device.comm_stream.submit(lambda: None).result(timeout=30)


@LONG_ON_STANDIN
def test_overlap_and_prefetch_change_nothing_that_is_learned(make_devices):
    X_train, y_train, X_test, y_test = d2l.load_fashion_mnist()
    data = X_train[:300], y_train[:300], X_test[:50], y_test[:50]
    runs = [
        d2l.train(make_devices(2), 64, 0.1, 2, init="he", data=data, progress=False, overlap=overlap, prefetch=prefetch)
        for overlap, prefetch in [(False, True), (False, False), (True, True)]
    ]
    assert runs[0].history.train_loss == runs[1].history.train_loss
    assert runs[0].history.train_loss == pytest.approx(
        runs[2].history.train_loss, rel=1e-4
    )  # other chunks, other rounding
    for one, other in zip(runs[0].params, runs[1].params, strict=True):
        assert one.tobytes() == other.tobytes()
