"""An allreduce of one's own: a function that makes a schedule, which is proved before it runs."""

import numpy as np
import pytest
from conftest import assert_close, few
from test_cuda_program import TINY_NETWORK
from test_training import quick

import d2lmgpu as d2l
from d2lmgpu.collectives import ScheduleError, Transfer, measure_allreduce


def star(k, n):
    """Everything to the last device at once, and back from it at once."""
    hub = k - 1
    return [[Transfer(i, hub, 0, n, "add") for i in range(hub)], [Transfer(hub, i, 0, n, "copy") for i in range(hub)]]


def forgetful_star(k, n):
    """Does not hand the sum back to device 0."""
    up, down = star(k, n)
    return [up, down[1:]]


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("n", [1, 7, 1000])
def test_sums(make_devices, rng, k, n):
    values = rng.normal(size=(k, n))
    arrays = [d2l.put(value, device) for value, device in zip(values, make_devices(k), strict=True)]
    d2l.allreduce(arrays, star)
    first = d2l.to_host(arrays[0])
    assert_close(first, values.sum(axis=0), 1e-12)
    assert all(d2l.to_host(array).tobytes() == first.tobytes() for array in arrays)


@pytest.mark.parametrize("k", few([2, 3], 3))
@pytest.mark.parametrize("settings", [{}, {"overlap": True}, {"flat": False}, {"network": "lenet-bn"}])
def test_training(small, k, settings):
    devices, settings = [d2l.cpu(i) for i in range(k)], {"num_epochs": 1, "seed": 3, **settings}
    own, ring = (quick(devices, small, algorithm=algorithm, **settings) for algorithm in (star, "ring"))
    assert own.history.allreduce == "star"
    assert own.history.train_loss == pytest.approx(ring.history.train_loss, rel=2e-3)  # batch norm magnifies roundings
    assert all(np.isfinite(param).all() for param in own.params)


@pytest.mark.long
def test_in_a_graph(standin, rng):
    """Kernels are compiled, which takes some seconds."""
    X, y = rng.integers(1, 256, (14, 1, 9, 8)).astype(np.uint8), rng.integers(0, 4, 14).astype(np.uint8)
    settings = {"batch_size": 4, "num_epochs": 2, "init": "he", "data": (X[:11], y[:11], X[11:], y[11:])}
    settings |= {"network": TINY_NETWORK, "progress": False, "algorithm": star}
    graphs, eager = (d2l.train([d2l.gpu(0), d2l.gpu(1)], graphs=graphs, **settings) for graphs in (True, False))
    assert graphs.history.phases["step"] > 0 == eager.history.phases["step"]
    for one, other in zip(graphs.params, eager.params, strict=True):
        assert_close(one, other, 1e-4)


def test_what_is_no_allreduce_is_refused(make_devices, small):
    devices = make_devices(3)
    arrays = [d2l.put(np.full(6, i, np.float32), device) for i, device in enumerate(devices)]
    with pytest.raises(ScheduleError, match="device 0, elements 0 to 6: the shares of devices 1 and 2 are missing"):
        d2l.allreduce(arrays, forgetful_star)
    with pytest.raises(ScheduleError, match="are missing"):
        d2l.allreduce(arrays, d2l.collectives.none)
    for i, array in enumerate(arrays):
        assert (d2l.to_host(array) == i).all()  # nothing has happened
    if devices[0].kind == "cpu":
        with pytest.raises(ScheduleError, match="are missing"):
            quick(devices, small, num_epochs=1, algorithm=forgetful_star)


def test_measured_beside_others():
    rows = list(measure_allreduce([d2l.cpu(0), d2l.cpu(1)], ["ring", star], [4096]))
    assert [(row.algorithm, row.steps, row.correct) for row in rows] == [("ring", 2, True), ("star", 2, True)]
