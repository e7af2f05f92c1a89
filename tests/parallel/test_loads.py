"""Loads that are measured: what noise does to them, and what is said of them."""

import time

import numpy as np
import pytest
from conftest import long
from training_runs import cpus, quick, some

from d2lmgpu.devices import current_device
from d2lmgpu.networks import Dense, Flatten, Layer, Network, init_params, sequential
from d2lmgpu.parallel import measure_loads
from d2lmgpu.parallel.shards import shard_bounds


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
    devices = cpus(3)
    loads = np.array(measure_loads(*small[:2], init_params(network=network), devices, 256, network))
    ideal = (1 / np.array(seconds)) / (1 / np.array(seconds)).sum()
    longest = (loads * seconds).max() / (ideal * seconds).max()  # of a step, against the ideal's
    assert loads.sum() == pytest.approx(1) and longest < 1.1
    history, _ = quick(devices, small, network=network, loads="auto", num_epochs=1)
    assert len(history.loads) == 3 and sum(history.loads) == pytest.approx(1)


@pytest.mark.parametrize("k", [2, 5])
def test_noise_is_no_finding(small, rng, monkeypatch, k):
    """Devices are equal, but each time another is up to 30% slower. Where one is twice as fast, this is still found."""
    devices = cpus(k)
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
        history, _ = quick(cpus(2), some(small, 40, 9), loads="auto", num_epochs=1, progress=True)
        assert capsys.readouterr().out.startswith(told) and history.loads == found
    quick(cpus(20), some(small, 40, 9), loads=[1] * 2 + [0] * 18, num_epochs=1, progress=True)
    assert capsys.readouterr().out.startswith("cpu(2), cpu(3), ..., cpu(19) have load 0 and stay idle\nepoch 1/1")


def test_loads_of_few_examples(make_devices, small):
    """No device is left without an example for good: it could not be measured again."""
    network = sequential((1, 28, 28), Flatten(), Dense(10))
    loads = measure_loads(small[0][:2], small[1][:2], init_params(network=network), make_devices(3), 256, network)
    assert sum(loads) == pytest.approx(1) and min(loads) > 0
