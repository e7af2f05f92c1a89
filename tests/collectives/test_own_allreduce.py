"""An allreduce of one's own: a function that makes a schedule, which is proved before it runs."""

import numpy as np
import pytest

import d2lmgpu as d2l
from d2lmgpu.collectives import ScheduleError, Transfer


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


@pytest.mark.parametrize("k, settings", [(3, {}), (2, {"overlap": True})])
def test_training(small, k, settings):
    own, ring = (train(k, small, algorithm, **settings) for algorithm in (star, "ring"))
    assert own.history.allreduce == "star"
    assert own.history.train_loss == pytest.approx(ring.history.train_loss, rel=2e-3)  # batch norm magnifies roundings
    assert all(np.isfinite(param).all() for param in own.params)


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
