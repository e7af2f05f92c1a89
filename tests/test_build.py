"""Composing networks, and the named ones."""

import numpy as np
import pytest

import d2lmgpu as d2l
from d2lmgpu.networks import (
    CNN,
    DEEP,
    LENET,
    LENET_BN,
    AvgPool2d,
    BatchNorm,
    Conv2d,
    Dense,
    Flatten,
    Layer,
    MaxPool2d,
    ReLU,
    init_params,
    init_statistics,
    known_network,
    lenet_network,
    logits,
    sequential,
)
from d2lmgpu.plans import PLANS


def sizes(network):
    return [shape for layer in network for shape in layer.shapes]


def test_named_networks():
    lenet = [(20, 1, 3, 3), (20,), (50, 20, 5, 5), (50,), (800, 128), (128,), (128, 10), (10,)]
    assert sizes(LENET) == lenet
    assert sizes(LENET_BN) == [*lenet[:2], (20,), (20,), *lenet[2:4], (50,), (50,), *lenet[4:]]
    assert sizes(CNN) == [(32, 1, 3, 3), (32,), (5408, 64), (64,), (64, 10), (10,)]
    assert sum(param.size for param in init_params(network=CNN)) == 320 + 346_176 + 650
    assert sizes(lenet_network(2.5))[2] == (125, 50, 5, 5)
    assert sizes(DEEP)[::2] == [
        *((16, 1, 3, 3), (16, 16, 3, 3), (32, 16, 3, 3), (32, 32, 3, 3), (64, 32, 3, 3), (64, 64, 3, 3)),
        *((576, 128), (128, 10)),
    ]
    assert [shape[0] for shape in sizes(known_network("deep", width=0.5))[1::2]] == [8, 8, 16, 16, 32, 32, 64, 10]
    assert [shape[0] for shape in sizes(known_network("cnn", 3, width=2))[1::2]] == [64, 128, 3]
    assert LENET.input_shape == (1, 28, 28) and LENET.classes == 10
    with pytest.raises(ValueError, match="at least 0.05"):
        known_network("lenet", width=0.01)


def test_a_network_of_ones_own_in_ten_lines(rng):
    network = sequential(
        (3, 12, 10), *(Conv2d(6, 3), BatchNorm(), ReLU(), MaxPool2d(2)), *(Flatten(), Dense(9), BatchNorm(), Dense(4))
    )
    assert sizes(network) == [(6, 3, 3, 3), (6,), (6,), (6,), (120, 9), (9,), (9,), (9,), (9, 4), (4,)]
    assert network.classes == 4
    X, y = rng.integers(0, 256, (90, 3, 12, 10)).astype(np.uint8), rng.integers(0, 4, 90)
    y[:] = X[:, 0].mean((1, 2)) > 127  # something to learn
    X[:, 0] = np.where(y[:, None, None], X[:, 0] // 2 + 128, X[:, 0] // 2)
    data = X, y, X, y
    history, params = result = d2l.train(
        [d2l.cpu(i) for i in range(3)], 16, 0.1, 8, init="he", data=data, network=network, progress=False
    )
    assert history.test_accuracy[-1] > 0.9 and history.network == "custom"
    assert d2l.evaluate(params, X, y, [d2l.cpu(0)], network, result.statistics) == history.test_accuracy[-1]


def test_initial_values():
    params = init_params(network=LENET_BN, init="he")
    assert (params[2] == 1).all() and not params[3].any() and not params[1].any() and params[0].std() > 0
    mean, variance, *_ = init_statistics(LENET_BN)
    assert not mean.any() and (variance == 1).all() and mean.dtype == np.float32


def test_logits_with_fixed_statistics_take_each_image_by_itself(rng):
    X, params = rng.random((5, 1, 28, 28)), init_params(1, init="he", network=LENET_BN, dtype=np.float64)
    statistics = [array + rng.random(array.shape) for array in init_statistics(LENET_BN, np.float64)]
    one_by_one = [logits(X[i : i + 1], params, LENET_BN, statistics) for i in range(5)]
    np.testing.assert_allclose(logits(X, params, LENET_BN, statistics), np.concatenate(one_by_one), rtol=1e-12)
    assert not np.allclose(logits(X, params, LENET_BN), np.concatenate(one_by_one))


@pytest.mark.parametrize(
    "recipes, message",
    [
        ([Conv2d(4, 9, padding=1)], r"layer 1 does not take images of shape \(2, 6, 6\): they are smaller than 9 × 9"),
        ([Conv2d(4, 3), Dense(3)], r"layer 2 does not take images of shape \(4, 4, 4\): Dense takes rows of numbers"),
        ([Flatten(), AvgPool2d()], r"layer 2 does not take images of shape \(72,\)"),
        ([Conv2d(4, 3)], r"the last layer has outputs \(4, 4, 4\)"),
    ],
)
def test_layers_that_do_not_fit(recipes, message):
    with pytest.raises(ValueError, match=message):
        sequential((2, 6, 6), *recipes)


class Linear:
    """A layer as other libraries have them."""

    def __call__(self, x):
        return x

    def __repr__(self):
        return "Linear(4, 3)"


def bare(x, weight):
    return x @ weight, (x, weight)


def bare_grad(dy, cache, input_grad=True):
    x, weight = cache
    return dy @ weight.T, x.T @ dy


@pytest.mark.parametrize(
    "wrong, message",
    [
        (Flatten, r"layer 2 is Flatten, .*; write Flatten\(\)"),
        (Linear(), r"layer 2 is Linear\(4, 3\), of type Linear: .* give recipes, one by one, such as Dense\(10\)"),
        (lambda x: x, r"layer 2 is <lambda>, of type function: .* it makes \(1, 6, 6\), not a Layer"),
        (lambda shape: Layer(lambda x: 1 / 0, bare_grad), "layer 2 is <lambda>, .* division by zero"),
        (lambda shape: Layer(bare, bare_grad, shapes=6), "layer 2 is <lambda>, of type function"),
        ([ReLU(), Flatten()], "layer 2 is .*, of type list: .* one by one"),
        (sequential((1, 6, 6), Flatten(), Dense(3)), "layer 2 is <Network: .*, of type Network: .* one by one"),
    ],
)
def test_what_is_not_a_layer_is_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        sequential((1, 6, 6), ReLU(), wrong, Flatten(), Dense(3))


def test_a_layer_without_its_arguments():
    for make, message in (
        (lambda: Dense(), r"Dense: missing a required argument: 'outputs'; write Dense\(outputs\)"),
        (lambda: Dense(6, 3), r"Dense: too many positional arguments; write Dense\(outputs\)"),
        (lambda: Flatten(1), r"Flatten: .*; write Flatten\(\)"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


def test_a_network_that_cannot_be_trained():
    X, y, two = np.zeros((4, 1, 2, 2), np.float32), np.arange(4), [d2l.cpu(0), d2l.cpu(1)]
    network = sequential((1, 2, 2), Flatten(), ReLU())
    assert d2l.evaluate([], X, y, two, network) == 0.25
    for use in (
        lambda: d2l.Settings(network=network),
        lambda: d2l.train(two, data=(X, y, X, y), network=network),
        lambda: d2l.train(two, data=(X, y, X, y), network=network, split="layers"),
        lambda: d2l.sweep(d2l.grid(network=network), data=(X, y, X, y)),
        lambda: d2l.train_batch(X, y, [[], []], two, 0.1, network=network),
        lambda: d2l.loss_and_grads(X, y, [], network),
        *(lambda make=make: make(2, 1, network=network) for make in PLANS.values()),
    ):
        with pytest.raises(ValueError, match="the network has no parameters, so there is nothing to train"):
            use()
    network = sequential((1, 2, 2), Flatten(), lambda shape: Layer(bare, None, ((4, 4),)))
    with pytest.raises(ValueError, match="layer 2 cannot be trained: its backward function is None"):
        d2l.train(two, data=(X, y, X, y), network=network)


@pytest.mark.parametrize(
    "wrong", [lambda right: [1], lambda right: [right[:1]], lambda right: [], lambda right: [right, 1]]
)
def test_gradients_of_ones_own_layer_are_not_broadcast(wrong):
    def grad(dy, cache, input_grad=True):
        dx, dweight = bare_grad(dy, cache)
        return dx, *wrong(dweight)

    X, network = (
        np.zeros((2, 1, 2, 2), np.float32),
        sequential((1, 2, 2), Flatten(), lambda s: Layer(bare, grad, ((4, 3),))),
    )
    with pytest.raises(ValueError, match=r"backward function returned gradients of shapes .* be \[\(4, 3\)\]"):
        d2l.loss_and_grads(X, np.arange(2), init_params(network=network), network)


@pytest.mark.parametrize(
    "network", [None, "lenet", Linear(), [], [Flatten(), Dense(10)], [*LENET], d2l.networks.Network]
)
def test_what_is_not_a_network(network):
    for use in (
        lambda: d2l.Model(network, []),
        *(lambda make=make: make(2, 1, network=network) for make in PLANS.values()),
    ):
        with pytest.raises(ValueError, match="it should be what networks.sequential makes"):
            use()


class Foreign:
    """A loss, an optimiser, a schedule, … as other libraries have them."""

    def __init__(self, lr=0.1):
        pass


@pytest.mark.parametrize("given", [Foreign, Foreign(), None, 3, lambda: None])
def test_settings_of_other_libraries(given):
    for name in ("optimizer", "loss", "schedule", "preprocess", "algorithm", "init", "split", "network"):
        if given is not None or name not in ("preprocess", "split"):
            with pytest.raises(ValueError, match=f"^({'allreduce' if name == 'algorithm' else name}|devices)[ :]"):
                d2l.Settings(**{name: given})
    with pytest.raises(ValueError, match="^(loss|the gradient of loss) "):
        d2l.Settings(loss=(d2l.softmax_cross_entropy, given))
