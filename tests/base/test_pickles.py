"""What `pickle` and `copy` make of networks, models, results, devices and arrays: the same again, in its place."""

import copy
import pickle

import numpy as np
import pytest
from runs import DATA, brief, cpus

import d2lmgpu as d2l
from d2lmgpu import networks
from d2lmgpu.layers import relu, relu_grad
from d2lmgpu.networks import Conv2d, Dense, Dropout, Flatten, Layer, MaxPool2d, ReLU, described, sequential


def pickled(value):
    return pickle.loads(pickle.dumps(value))


WAYS = {"pickle": pickled, "copy": copy.copy, "deepcopy": copy.deepcopy}
X, Y = DATA[2:]


def rectifier(shape):
    """A layer of one's own, which pickle finds by its name."""
    return Layer(relu, relu_grad)


@pytest.fixture(scope="module")
def trained():
    """With batch norm, on three devices, with names of classes."""
    return brief(cpus(3), (*DATA, list("abcd")), num_epochs=1)


@pytest.mark.parametrize("way", WAYS)
def test_a_result_again(way, trained):
    again = WAYS[way](trained)
    history, params = again
    assert type(again) is type(trained) and history is again.history and params is again.params is again.model.params
    assert history == trained.history and history.lr == 0.1 and again.network is again.model.network
    assert (again.model.classes, repr(again)) == (list("abcd"), repr(trained))
    np.testing.assert_array_equal(again.model.predict(X), trained.model.predict(X))
    assert again.model.evaluate(X, Y) == trained.model.evaluate(X, Y)
    pairs = zip(again.params + again.statistics, trained.params + trained.statistics, strict=True)
    assert all((one is other) == (way == "copy") for one, other in pairs)


OWN = [Conv2d(3, 3, stride=2, padding=1), rectifier, MaxPool2d(3), Flatten(), Dropout(0.5), Dense(10), ReLU()]
NETWORKS = [*networks.NETWORKS.values(), sequential((1, 28, 28), *OWN)]


@pytest.mark.parametrize("way", WAYS)
def test_a_network_again(way, rng):
    X, y, draws = rng.random((2, 1, 28, 28)), np.arange(2), d2l.layers.Draws(1, 2, 3)
    for network in NETWORKS:
        again = WAYS[way](network)
        assert (type(again), again.input_shape, again.classes) == (networks.Network, (1, 28, 28), 10)
        assert described(again) == described(network) and repr(again.recipes) == repr(network.recipes)
        params = d2l.init_params(1, init="he", dtype=np.float64, network=network)
        one, other = (d2l.loss_and_grads(X, y, params, each, draws=draws) for each in (network, again))
        for a, b in zip([one[0], *one[1]], [other[0], *other[1]], strict=True):
            np.testing.assert_array_equal(a, b)


def of_odd_shapes(device):
    """Arrays of a device: a matrix and a view of it, a number, nothing, others than floats."""
    x = d2l.put(np.arange(35, dtype=np.float32).reshape(5, 7) + device.index, device)
    others = (np.float64(device.index - 0.1), np.zeros((3, 0)), np.array([True, False]), np.array([1 + 2j]))
    return [x, x.T, x[1::2, ::-3], *(d2l.put(other, device) for other in others)]


@pytest.mark.parametrize("way", ["copy", "deepcopy"])
def test_a_copy_is_made_on_the_device(way, make_devices):
    arrays = sum(map(of_odd_shapes, make_devices(3)), [])
    with d2l.record_transfers() as transfers:
        copies = WAYS[way](arrays) if way == "deepcopy" else [copy.copy(x) for x in arrays]
    assert transfers == []
    hosts = [d2l.to_host(x) for x in arrays]
    for x in arrays:
        x.fill(-1)
    for x, copied, host in zip(arrays, copies, hosts, strict=True):
        assert copied.device is x.device and copied.dtype == x.dtype and copied.shape == x.shape
        np.testing.assert_array_equal(d2l.to_host(copied), host)


def test_a_pickle_of_device_arrays_is_a_transfer_each_way(make_devices):
    """And devices are the very same."""
    devices = make_devices(3)
    assert all(WAYS[way]({"mine": devices})["mine"] == devices for way in WAYS)
    arrays = sum(map(of_odd_shapes, devices[:2]), [])
    places = [(str(x.device), "host", x.nbytes) for x in arrays]
    with d2l.record_transfers() as transfers:
        again = pickled(arrays)
    back = [(destination, source, nbytes) for source, destination, nbytes in places]
    assert [(t.source, t.destination, t.nbytes) for t in transfers] == places + back
    for x, copied in zip(arrays, again, strict=True):
        assert copied.device is x.device and copied.dtype == x.dtype
        np.testing.assert_array_equal(d2l.to_host(copied), d2l.to_host(x))
