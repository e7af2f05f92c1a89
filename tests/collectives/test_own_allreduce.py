"""An allreduce of one's own: a function that makes a schedule, which is proved before it runs."""

import numpy as np
import pytest
from conftest import assert_close

import d2lmgpu as d2l
from d2lmgpu.collectives import ScheduleError, Transfer
from d2lmgpu.networks import AvgPool2d, Conv2d, Dense, Flatten, ReLU, sequential


def star(k, n):
    """Everything to the last device at once, and back from it at once."""
    hub = k - 1
    return [[Transfer(i, hub, 0, n, "add") for i in range(hub)], [Transfer(hub, i, 0, n, "copy") for i in range(hub)]]


def forgetful_star(k, n):
    """Does not hand the sum back to device 0."""
    up, down = star(k, n)
    return [up, down[1:]]


def train(k, data, algorithm, **settings):
    X, y, X_test, y_test = data
    data = X[:200], y[:200], X_test[:20], y_test[:20]
    devices = [d2l.cpu(i) for i in range(k)]
    return d2l.train(devices, 64, 0.1, 1, algorithm, 3, data=data, init="he", progress=False, **settings)


@pytest.mark.parametrize(
    "k, settings", [(3, {}), (2, {"overlap": True}), (3, {"flat": False}), (3, {"network": "lenet-bn"})]
)
def test_training(small, k, settings):
    own, ring = (train(k, small, algorithm, **settings) for algorithm in (star, "ring"))
    assert own.history.allreduce == "star"
    assert own.history.train_loss == pytest.approx(ring.history.train_loss, rel=2e-3)  # batch norm magnifies roundings
    assert all(np.isfinite(param).all() for param in own.params)


@pytest.mark.long
def test_in_a_graph(standin, rng):
    """Kernels are compiled, which takes some seconds."""
    X, y = rng.integers(1, 256, (14, 1, 9, 8)).astype(np.uint8), rng.integers(0, 4, 14).astype(np.uint8)
    network = sequential((1, 9, 8), Conv2d(3, 2), ReLU(), AvgPool2d(), Flatten(), Dense(4))
    settings = {"batch_size": 4, "num_epochs": 2, "init": "he", "data": (X[:11], y[:11], X[11:], y[11:])}
    settings |= {"network": network, "progress": False, "algorithm": star}
    graphs, eager = (d2l.train([d2l.gpu(0), d2l.gpu(1)], graphs=graphs, **settings) for graphs in (True, False))
    assert graphs.history.phases["step"] > 0 == eager.history.phases["step"]
    for one, other in zip(graphs.params, eager.params, strict=True):
        assert_close(one, other, 1e-4)


def test_what_is_no_allreduce_is_refused(make_devices, small):
    """What is one sums, in place."""
    arrays = [d2l.put(np.full(6, i, np.float32), device) for i, device in enumerate(make_devices(3))]
    for wrong in (forgetful_star, d2l.collectives.none):
        with pytest.raises(ScheduleError, match="device 0, elements 0 to 6: .* devices 1 and 2 are missing"):
            d2l.allreduce(arrays, wrong)
    for i, array in enumerate(arrays):
        assert (d2l.to_host(array) == i).all()  # nothing has happened
    d2l.allreduce(arrays, star)
    assert all((d2l.to_host(array) == 3).all() for array in arrays)
    with pytest.raises(ScheduleError, match="are missing"):
        train(3, small, forgetful_star)
