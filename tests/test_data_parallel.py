"""k devices do what one device does: the equivalence on which all of data parallelism stands."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest import TOLERANCE, assert_close, few, long

import d2lmgpu as d2l
from d2lmgpu.parallel.shards import shard_bounds
from d2lmgpu.parallel.step import Replica

BATCHES = [40, 24, 7, 1, 3]  # two that all devices share, fewer than 8 devices, one, and one more


def batches(dtype, sizes=BATCHES):
    rng = np.random.default_rng(5)
    return [(rng.random((n, 1, 28, 28)).astype(dtype), rng.integers(0, 10, n)) for n in sizes]


def train_steps(devices, dtype, algorithm, starts=None, flat=False):
    """Five steps; returns the summed losses and each device's parameters, on the host."""
    starts = starts or [d2l.init_params(seed=2, init="he", dtype=dtype)] * len(devices)
    device_params = [d2l.get_params(start, device) for start, device in zip(starts, devices, strict=True)]
    losses = [d2l.train_batch(X, y, device_params, devices, 0.1, algorithm, flat) for X, y in batches(dtype)]
    return losses, [[d2l.to_host(p) for p in params] for params in device_params]


_alone = {}


def one_device(dtype):
    if dtype not in _alone:
        losses, (params,) = train_steps([d2l.cpu(0)], dtype, "naive")
        _alone[dtype] = losses, params
    return _alone[dtype]


ALWAYS = [("ring", 1), ("hierarchical", 2), ("halving_doubling", 3), ("ring", 5), ("naive", 8)]
ALL = itertools.product(["naive", "ring", "halving_doubling", "hierarchical"], [1, 2, 3, 4, 5, 8])


@pytest.mark.parametrize(
    "device_kind, dtype",
    [("cpu", np.float32), ("cpu", np.float64), ("standin", np.float32), *long(("standin", np.float64))]
    + [pytest.param("gpu", dtype, marks=pytest.mark.real_gpu) for dtype in (np.float32, np.float64)],
    indirect=["device_kind"],
)
@pytest.mark.parametrize("algorithm, k", few(ALL, *ALWAYS))
def test_k_devices_equal_one(make_devices, algorithm, k, dtype):
    losses, replicas = train_steps(make_devices(k), dtype, algorithm)
    expected_losses, expected = one_device(dtype)
    assert losses == pytest.approx(expected_losses, rel=TOLERANCE[np.dtype(dtype)])
    for params in replicas:
        for param, first, alone in zip(params, replicas[0], expected, strict=True):
            assert param.tobytes() == first.tobytes()
            assert_close(param, alone, TOLERANCE[param.dtype])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [2, *long(5)])
def test_one_message_or_eight(make_devices, k, dtype):
    """As one flat message the chunks fall elsewhere, so that sums are rounded differently."""
    _, replicas = train_steps(make_devices(k), dtype, "ring", flat=True)
    for params in replicas:
        for param, first, alone in zip(params, replicas[0], one_device(dtype)[1], strict=True):
            assert param.tobytes() == first.tobytes()
            assert_close(param, alone, TOLERANCE[param.dtype])


def test_a_flat_step_sends_one_message(make_devices):
    devices = make_devices(2)
    ((X, y),) = batches(np.float32, [4])
    device_params = [d2l.get_params(d2l.init_params(), device) for device in devices]
    counts = {}
    for flat in (False, True):
        with d2l.record_transfers() as transfers:
            d2l.train_batch(X, y, device_params, devices, 0.1, "naive", flat)
        between = [t for t in transfers if "host" not in (t.source, t.destination)]
        counts[flat] = len(between)
        assert sum(t.nbytes for t in between) == 2 * 4 * 129_068
    assert counts == {False: 16, True: 2}


def test_replicas_that_start_apart_stay_apart():
    """The comparison above must be able to fail: without the common start, it does."""
    starts = [d2l.init_params(seed=seed, init="he") for seed in (2, 3)]
    _, replicas = train_steps([d2l.cpu(0), d2l.cpu(1)], np.float32, "ring", starts)
    assert all(not np.array_equal(a, b) for a, b in zip(*replicas, strict=True) if a.ndim > 1)


def test_a_step_by_hand(make_devices):
    """One step of SGD from the definition: param - lr / N · Σ gradients, with the full batch's N."""
    ((X, y),) = batches(np.float64, [7])
    params = d2l.init_params(seed=2, init="he", dtype=np.float64)
    loss, grads = d2l.loss_and_grads(X, y, params)
    devices = make_devices(3)
    device_params = [d2l.get_params(params, device) for device in devices]
    assert d2l.train_batch(X, y, device_params, devices, 0.5) == pytest.approx(float(loss))
    for actual, param, grad in zip(device_params[2], params, grads, strict=True):
        assert_close(actual, param - 0.5 / 7 * grad, 1e-12)


@pytest.mark.parametrize("n", [0, 1, 2, 7, 38, 256])
@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
def test_split_batch(make_devices, n, k):
    devices = make_devices(k)
    X, y = np.arange(n * 2).reshape(n, 2), np.arange(n)
    X_shards, y_shards = d2l.split_batch(X, y, devices)
    assert [shard.device for shard in X_shards] == devices == [shard.device for shard in y_shards]
    np.testing.assert_array_equal(np.concatenate([d2l.to_host(shard) for shard in X_shards]), X)
    np.testing.assert_array_equal(np.concatenate([d2l.to_host(shard) for shard in y_shards]), y)
    sizes = [len(shard) for shard in y_shards]
    assert sizes == [len(shard) for shard in X_shards] and max(sizes) - min(sizes) <= 1


def test_split_batch_on_the_textbooks_matrix(make_devices):
    data = np.arange(20).reshape(4, 5)
    shards, _ = d2l.split_batch(data, data[:, 0], make_devices(2))
    assert [d2l.to_host(shard).tolist() for shard in shards] == [data[:2].tolist(), data[2:].tolist()]


def test_shards_follow_loads(make_devices):
    devices = make_devices(3)
    y = np.arange(10)
    _, shards = d2l.split_batch(y, y, devices, loads=[1, 1, 0.5])
    assert [len(shard) for shard in shards] == [4, 4, 2]
    _, shards = d2l.split_batch(y, y, devices, loads=[3, 0, 1])
    assert [d2l.to_host(shard).tolist() for shard in shards] == [[0, 1, 2, 3, 4, 5, 6, 7], [], [8, 9]]


def test_loads_lose_no_example(rng):
    for _ in range(300):
        n, loads = int(rng.integers(0, 50)), rng.random(rng.integers(1, 9)) * rng.integers(0, 2)
        loads[rng.integers(len(loads))] += 0.1
        bounds = shard_bounds(n, len(loads), loads)
        assert [start for start, _ in bounds] == [0, *[stop for _, stop in bounds][:-1]] and bounds[-1][1] == n
        for (start, stop), share in zip(bounds, n * loads / loads.sum(), strict=True):
            assert abs(stop - start - share) < 1 and (stop - start == 0 or share > 0)


def test_get_params_are_independent_copies(make_devices):
    one, other = make_devices(2)
    params = d2l.init_params()
    copies = [d2l.get_params(params, one), d2l.get_params(params, other)]
    copies[0][1] += 1
    assert not d2l.to_host(copies[1][1]).any() and not params[1].any()
    assert [p.device for p in copies[1]] == [other] * 8


def test_arguments_that_do_not_fit(make_devices):
    devices = make_devices(2)
    X, y = np.zeros((4, 1, 28, 28), np.float32), np.zeros(4, int)
    device_params = [d2l.get_params(d2l.init_params(), device) for device in devices]
    cases = [
        (lambda: d2l.split_batch(X, y[:3], devices), r"y of shape \(3,\); each example needs a label"),
        (lambda: d2l.split_batch(X, y, []), "empty"),
        (lambda: d2l.split_batch(X, y, [devices[0]] * 2), "twice"),
        (lambda: d2l.split_batch(X, y, ["cpu0"]), "'cpu0' is not a device; make one with"),
        (lambda: d2l.split_batch(X, y, devices, loads=[1]), "2 numbers"),
        (lambda: d2l.split_batch(X, y, devices, loads=[1, -1]), "below 0"),
        (lambda: d2l.split_batch(X, y, devices, loads=[0, 0]), "not all 0"),
        (lambda: d2l.split_batch(X, y, devices, loads=[1, np.nan]), "2 numbers"),
        (lambda: d2l.train_batch(X, y, device_params[:1], devices, 0.1), "1 given; it should be a list of 2"),
        (lambda: d2l.train_batch(X, y, device_params, devices, 0.1, "star"), "unknown"),
        (lambda: d2l.train_batch(X[:0], y[:0], device_params, devices, 0.1), "no examples; .* needs at least one"),
        (lambda: d2l.train_batch(X, y, device_params, devices, 0.1, "none"), "drift apart"),
        (lambda: d2l.train_batch(X, y, device_params[::-1], devices, 0.1), "needs all its arrays in one place"),
    ]
    for call, message in cases:
        with pytest.raises((ValueError, d2l.DeviceMismatchError), match=message):
            call()


@pytest.mark.threads
@pytest.mark.parametrize("flat", [False, True])
def test_train_batch_from_several_host_threads(rng, flat):
    """Each on its own parameters, on the same devices: as if alone, bit for bit. One does not learn at all."""
    k, rates = 3, [0.0, 0.05, 0.2]
    devices = [d2l.cpu(i) for i in range(k)]
    batches = [(rng.random((11, 1, 28, 28), dtype=np.float32), rng.integers(0, 10, 11)) for _ in rates]

    def steps(number):
        device_params = [d2l.get_params(d2l.init_params(number, init="he"), device) for device in devices]
        for _ in range(12):
            d2l.train_batch(*batches[number], device_params, devices, rates[number], "ring", flat)
        return [[d2l.to_host(param).tobytes() for param in params] for params in device_params]

    alone = [steps(number) for number in range(len(rates))]
    with ThreadPoolExecutor(len(rates)) as threads:
        together = list(threads.map(steps, range(len(rates))))
    assert together == alone
    assert together[0] == [[param.tobytes() for param in d2l.init_params(0, init="he")]] * k


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_on_a_device_changes_no_parameters(make_devices, monkeypatch, failing):
    devices, compute = make_devices(2), Replica.loss_and_grads
    device_params = [d2l.get_params(d2l.init_params(), device) for device in devices]

    def fail(self, *args):
        if self.device is devices[failing]:
            raise ArithmeticError("no more")
        return compute(self, *args)

    monkeypatch.setattr(Replica, "loss_and_grads", fail)
    X, y = np.zeros((4, 1, 28, 28), np.float32), np.zeros(4, int)
    with pytest.raises(ArithmeticError):
        d2l.train_batch(X, y, device_params, devices, 0.1, "ring", flat=True)
    d2l.synchronize(devices)
    for params in device_params:
        for param, before in zip(params, d2l.init_params(), strict=True):
            np.testing.assert_array_equal(d2l.to_host(param), before)
