"""Uneven loads: k devices with shares of their own equal one device, for every network and optimiser."""

import time

import numpy as np
import pytest
from conftest import assert_close, few, long
from plan_steps import copies, execution_of, step
from test_training import quick

import d2lmgpu as d2l
from d2lmgpu.devices import current_device
from d2lmgpu.networks import NETWORKS, Dense, Flatten, Layer, Network, channels, init_params, sequential
from d2lmgpu.parallel import measure_loads
from d2lmgpu.parallel.shards import check_loads, shard_bounds
from d2lmgpu.training.graph_step import examples_of_epoch

LOADS = {2: [1, 0.4], 3: [1, 1, 0.5], 5: [1, 0, 2, 0.3, 1]}
RATES = {"sgd": 0.05, "momentum": 0.02, "adam": 0.01}
BATCHES = [96, 32, 7, 1, 3]  # ragged, some with fewer examples than devices
TOLERANCE = {"sgd": 1e-12, "momentum": 1e-12, "adam": 1e-9}
"""In float64. Adam divides by the gradient's own size: where that is rounding alone, it becomes a full step."""

TOLERANCE_32 = {"lenet": 1e-5, "cnn": 2e-2, "deep": 2e-2}
"""In float32, for SGD and momentum. Rounding, which differs from machine to machine, may turn a ReLU on or off whose
input is nearly 0: of few examples the gradient is then another one. So float32 gets the two large minibatches only."""

WITHOUT_NORM = [name for name, network in NETWORKS.items() if not channels(network)]
"""Batch norm takes each device's own statistics, so its result depends on the number of devices."""


def five_steps(devices, network, optimizer, loads, dtype):
    """Two of them in float32."""
    params = init_params(2, init="he", network=network, dtype=dtype)
    execution = execution_of(params, devices, network, optimizer)
    rng = np.random.default_rng(5)
    losses = []
    for n in BATCHES if dtype == np.float64 else BATCHES[:2]:
        X, y = rng.random((n, 1, 28, 28)).astype(dtype), rng.integers(0, 10, n)
        losses.append(step(execution, X, y, RATES[optimizer], loads))
    return losses, copies(execution)


_alone = {}


def one_device(name, optimizer, dtype):
    if (name, optimizer, dtype) not in _alone:
        losses, (arrays,) = five_steps([d2l.cpu(0)], NETWORKS[name], optimizer, None, dtype)
        _alone[name, optimizer, dtype] = losses, arrays
    return _alone[name, optimizer, dtype]


@pytest.mark.parametrize("k", few(LOADS, 3))
@pytest.mark.parametrize(  # Adam magnifies float32's rounding to full steps wherever a gradient is nearly 0
    "optimizer, dtype",
    [(name, np.float64) for name in RATES] + long(*((name, np.float32) for name in RATES if name != "adam")),
)
@pytest.mark.parametrize("name", WITHOUT_NORM)
def test_k_devices_equal_one(name, optimizer, k, dtype):
    losses, replicas = five_steps([d2l.cpu(i) for i in range(k)], NETWORKS[name], optimizer, LOADS[k], dtype)
    expected_losses, expected = one_device(name, optimizer, dtype)
    tolerance = TOLERANCE[optimizer] if dtype == np.float64 else TOLERANCE_32[name]
    if (name, optimizer) == ("deep", "adam"):  # small gradients, and more of them
        tolerance *= 100
    assert losses == pytest.approx(expected_losses, rel=tolerance)
    for arrays in replicas:
        for array, first, alone in zip(arrays, replicas[0], expected, strict=True):
            assert array.tobytes() == first.tobytes()
            assert_close(array, alone, tolerance)


@pytest.mark.parametrize("name", few(WITHOUT_NORM, "lenet", "cnn"))
def test_on_gpus(standin, monkeypatch, name):
    """The same work by the layers on two cards; the stand-in finds waits that are missing."""
    monkeypatch.setattr("d2lmgpu.networks.compute.USE_CUDA_KERNELS", False)
    monkeypatch.setattr("test_loads.BATCHES", [5, 3, 1])
    losses, replicas = five_steps([d2l.gpu(i) for i in range(3)], NETWORKS[name], "momentum", LOADS[3], np.float64)
    expected_losses, (expected,) = five_steps([d2l.cpu(0)], NETWORKS[name], "momentum", None, np.float64)
    assert losses == pytest.approx(expected_losses, rel=1e-12)
    for array, alone in zip(replicas[2], expected, strict=True):
        assert_close(array, alone, 1e-11)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 64, 100, 256])
def test_each_example_is_in_one_shard_and_none_is_where_the_load_is_0(n, rng):
    for _ in range(50):
        k = int(rng.integers(1, 9))
        loads = rng.integers(0, 4, k) * rng.random(k) + (np.arange(k) == rng.integers(k))
        for m in range(1, n + 1):
            sizes = [stop - start for start, stop in shard_bounds(m, k, loads)]
            assert sum(sizes) == m
            assert all(load or not size for load, size in zip(loads, sizes, strict=True))


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("loaded", [False, True])
def test_an_epochs_shards_are_those_of_its_minibatches(rng, k, loaded):
    loads = rng.integers(0, 4, k) + np.eye(k)[-1] if loaded else None
    for M, batch_size in ((23, 5), (24, 8), (3, 7), (3, 1), (40, 40)):
        order = rng.permutation(M)
        minibatches = [order[start : start + batch_size] for start in range(0, M, batch_size)]
        bounds = [shard_bounds(len(chosen), k, loads) for chosen in minibatches]
        sizes = np.array([[stop - start for start, stop in each] for each in bounds])
        for i in range(k):
            indices, starts = examples_of_epoch(order, sizes, i)
            shards = [chosen[slice(*each[i])] for chosen, each in zip(minibatches, bounds, strict=True)]
            edges = np.cumsum([0, *map(len, shards)]).tolist()
            assert starts.tolist() == [*edges, edges[-1]]
            assert indices.tolist() == np.concatenate(shards).tolist()
            assert indices.dtype == starts.dtype == np.int32


@pytest.mark.parametrize(
    "bad", [[1], [1, -1], [0, 0], [1, np.nan], [[1, 2]], [1, np.inf], [1e308, 1e308], ["a", 1], [1, [2]], "ab"]
)
def test_loads_that_make_no_sense(bad):
    with pytest.raises(ValueError, match="give 2 numbers, one for each device"):
        check_loads(bad, 2)


@pytest.mark.parametrize(
    ("loads", "sizes"), [([1e308, 2e307], [10, 2]), ([5e-324, 5e-324], [6, 6]), ([1e308, 1], [12, 0])]
)
def test_no_example_is_lost_to_large_or_small_loads(loads, sizes):
    devices = [d2l.cpu(0), d2l.cpu(1)]
    X_shards, y_shards = d2l.split_batch(np.zeros((12, 1, 2, 2)), np.arange(12), devices, loads)
    assert [len(shard) for shard in X_shards] == [len(shard) for shard in y_shards] == sizes
    with pytest.raises(ValueError, match="with a finite sum"):
        d2l.split_batch(np.zeros((12, 1, 2, 2)), np.arange(12), devices, [1e308, 1e308])


def slow_layer(seconds):
    """A layer that takes so many seconds an image on each device, and otherwise does nothing."""

    def wait(x):
        device = current_device()
        time.sleep(len(x) * seconds[device.index] if device else 0)
        return x, None

    return Layer(wait, lambda dy, cache: dy)


@pytest.mark.parametrize("seconds", long([8e-4, 8e-4, 4e-4], [4e-4, 2e-3, 8e-4]))
@pytest.mark.timing
def test_loads_by_measurement(seconds, small):
    """Devices slowed down by waiting. The ideal shares make all of them wait equally long."""
    layers = sequential((1, 28, 28), Flatten(), Dense(10))
    network = Network([slow_layer(seconds), *layers], (1, 28, 28), 10)
    devices = [d2l.cpu(i) for i in range(3)]
    loads = np.array(measure_loads(*small[:2], init_params(network=network), devices, 256, network))
    ideal = (1 / np.array(seconds)) / (1 / np.array(seconds)).sum()
    longest = (loads * seconds).max() / (ideal * seconds).max()  # of a step, against the ideal's
    assert loads.sum() == pytest.approx(1) and longest < 1.1
    history, _ = quick(devices, small, network=network, loads="auto", num_epochs=1)
    assert len(history.loads) == 3 and sum(history.loads) == pytest.approx(1)


@pytest.mark.parametrize("k", [2, 5])
def test_noise_is_no_finding(small, rng, monkeypatch, k):
    """Devices are equal, but each time another is up to 30% slower. Where one is twice as fast, this is still found."""
    devices = [d2l.cpu(i) for i in range(k)]
    given = *small[:2], init_params(), devices, 256
    speed = np.ones(k)

    def seconds(X, y, copies, devices, network, loss, loads):
        sizes = np.diff([0, *(stop for _, stop in shard_bounds(len(y), k, loads))])
        return ((sizes + 3) / speed * (1 + 0.3 * rng.random(k))).tolist()

    monkeypatch.setattr("d2lmgpu.parallel.loads._seconds", seconds)
    found = [measure_loads(*given) for _ in range(40)]
    assert found.count([1 / k] * k) >= 38
    speed[1] = 2
    for loads in (measure_loads(*given) for _ in range(40)):
        assert sum(loads) == pytest.approx(1) and loads[1] > 1.3 * max(loads[:1] + loads[2:])


def test_equal_loads_are_told_as_such(small, capsys, monkeypatch):
    for found, told in (([0.5, 0.5], "loads: equal parts; "), ([0.25, 0.75], "loads: cpu(0) 0.25, cpu(1) 0.75\n")):
        monkeypatch.setattr("d2lmgpu.training.make_runner.measure_loads", lambda *given, found=found: found)
        history, _ = quick([d2l.cpu(0), d2l.cpu(1)], small, loads="auto", num_epochs=1, progress=True)
        assert capsys.readouterr().out.startswith(told) and history.loads == found
    quick([d2l.cpu(i) for i in range(20)], small, loads=[1] * 2 + [0] * 18, num_epochs=1, progress=True)
    assert capsys.readouterr().out.startswith("cpu(2), cpu(3), ..., cpu(19) have load 0 and stay idle\nepoch 1/1")


def test_loads_of_few_examples(make_devices, small):
    """No device is left without an example for good: it could not be measured again."""
    devices = make_devices(3)
    loads = measure_loads(small[0][:2], small[1][:2], init_params(), devices, 256)
    assert sum(loads) == pytest.approx(1) and min(loads) > 0
