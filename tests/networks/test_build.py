"""Composing networks, and the named ones; what is told of recipes that do not fit is in tests/base/test_errors.py."""

import numpy as np
import pytest

import d2lmgpu as d2l
from d2lmgpu import networks
from d2lmgpu.networks import LENET, LENET_BN, BatchNorm, Conv2d, Dense, Flatten, Layer, MaxPool2d, sequential


def sizes(network):
    return [shape for layer in network for shape in layer.shapes]


def test_named_networks():
    lenet = [(20, 1, 3, 3), (20,), (50, 20, 5, 5), (50,), (800, 128), (128,), (128, 10), (10,)]
    assert sizes(LENET) == lenet
    assert sizes(LENET_BN) == [*lenet[:2], (20,), (20,), *lenet[2:4], (50,), (50,), *lenet[4:]]
    assert sizes(networks.CNN) == [(32, 1, 3, 3), (32,), (5408, 64), (64,), (64, 10), (10,)]
    assert sizes(networks.DEEP)[::2] == [
        *((16, 1, 3, 3), (16, 16, 3, 3), (32, 16, 3, 3), (32, 32, 3, 3), (64, 32, 3, 3), (64, 64, 3, 3)),
        *((576, 128), (128, 10)),
    ]
    assert sizes(networks.lenet_network(2.5))[2] == (125, 50, 5, 5)
    narrow = sizes(networks.known_network("deep", width=0.5))
    assert [shape[0] for shape in narrow[1::2]] == [8, 8, 16, 16, 32, 32, 64, 10]
    assert [shape[0] for shape in sizes(networks.known_network("cnn", 3, width=2))[1::2]] == [64, 128, 3]
    assert LENET.input_shape == (1, 28, 28) and LENET.classes == 10


def test_shapes_follow_from_the_images():
    network = sequential(
        (3, 12, 10), Conv2d(6, 3), BatchNorm(), MaxPool2d(2), Flatten(), Dense(9), BatchNorm(), Dense(4)
    )
    assert sizes(network) == [(6, 3, 3, 3), (6,), (6,), (6,), (120, 9), (9,), (9,), (9,), (9, 4), (4,)]
    assert network.classes == 4


def test_initial_values_of_batch_norm():
    params = d2l.init_params(network=LENET_BN, init="he")
    assert (params[2] == 1).all() and not params[3].any() and not params[1].any() and params[0].std() > 0
    mean, variance, *_ = networks.init_statistics(LENET_BN)
    assert not mean.any() and (variance == 1).all() and mean.dtype == np.float32


def test_logits_with_fixed_statistics_take_each_image_by_itself(rng):
    X, params = rng.random((5, 1, 28, 28)), d2l.init_params(1, init="he", network=LENET_BN, dtype=np.float64)
    statistics = [array + rng.random(array.shape) for array in networks.init_statistics(LENET_BN, np.float64)]
    one_by_one = [networks.logits(X[i : i + 1], params, LENET_BN, statistics)[0] for i in range(5)]
    np.testing.assert_allclose(networks.logits(X, params, LENET_BN, statistics), one_by_one, rtol=1e-12)
    assert not np.allclose(networks.logits(X, params, LENET_BN), one_by_one)


def test_gradients_of_ones_own_layer_are_not_broadcast():
    def forward(x, weight):
        return x @ weight, (x, weight)

    X = np.zeros((2, 1, 2, 2), np.float32)
    for wrong in (lambda right: [1], lambda right: [right[:1]], lambda right: [], lambda right: [right, 1]):

        def grad(dy, cache, input_grad=True, wrong=wrong):
            x, weight = cache
            return dy @ weight.T, *wrong(x.T @ dy)

        network = sequential((1, 2, 2), Flatten(), lambda s, grad=grad: Layer(forward, grad, ((4, 3),)))
        with pytest.raises(ValueError, match=r"backward function returned gradients of shapes .* be \[\(4, 3\)\]"):
            d2l.loss_and_grads(X, np.arange(2), d2l.init_params(network=network), network)
