"""`train_batch` with any network, optimiser and loss, with batch norm's statistics, and on clusters."""

import functools

import numpy as np
import pytest
from clusters_in_threads import in_each
from conftest import LONG_ON_STANDIN, TOLERANCE, assert_close, few
from plan_steps import copies, execution_of, step

import d2lmgpu as d2l
from d2lmgpu.collectives import hierarchical
from d2lmgpu.layers import Draws
from d2lmgpu.networks import (
    LENET,
    LENET_BN,
    BatchNorm,
    Conv2d,
    Dense,
    Dropout,
    Flatten,
    MaxPool2d,
    ReLU,
    init_params,
    init_statistics,
    sequential,
)
from d2lmgpu.networks.optimizers import OPTIMIZERS, decaying
from d2lmgpu.parallel.step import Replica

SIZES = (13, 7, 1, 3)
"""Ragged minibatches, of which some have fewer examples than there are devices."""

OWN = sequential((3, 9, 8), Conv2d(4, 3), ReLU(), MaxPool2d(), Flatten(), Dense(6), Dropout(0.3), Dense(5))
SMALL_BN = sequential((2, 6, 7), Conv2d(3, 3), BatchNorm(), ReLU(), Flatten(), Dense(8), BatchNorm(), Dense(4))
RATES = {"sgd": 0.1, "momentum": 0.05, "adam": 0.01}


def minibatches(network, dtype, sizes=SIZES):
    rng = np.random.default_rng(5)
    return [
        (rng.normal(0.5, 1, (n, *network.input_shape)).astype(dtype), rng.integers(0, network.classes, n))
        for n in sizes
    ]


class Loop:
    """A loop of one's own on ``devices``, a list or a `Cluster`."""

    def __init__(self, network, devices, optimizer="sgd", dtype=np.float32, weight_decay=0.0, **more):
        mine = getattr(devices, "mine", devices)
        start, running = init_params(2, init="he", network=network, dtype=dtype), init_statistics(network, dtype)
        self.device_params = [d2l.get_params(start, device) for device in mine]
        self.statistics = [d2l.get_params(running, device) if running else [] for device in mine]
        self.lr = RATES[optimizer]
        if optimizer != "sgd" or weight_decay:
            optimizer = d2l.init_optimizer(optimizer, self.device_params, weight_decay)
        self.more = {"devices": devices, "network": network, "optimizer": optimizer, "statistics": self.statistics}
        self.more |= more

    def step(self, X, y, **more):
        return d2l.train_batch(X, y, self.device_params, lr=self.lr, **self.more | more)

    def arrays(self):
        """Of each device NumPy arrays: the parameters, and batch norm's statistics."""
        each = zip(self.device_params, self.statistics, strict=True)
        return [[d2l.to_host(array) for array in [*params, *own]] for params, own in each]

    def bits(self):
        return [[array.tobytes() for array in arrays] for arrays in self.arrays()]


def cpus(k):
    return [d2l.cpu(i) for i in range(k)]


def by_hand(network, optimizer, dtype, weight_decay):
    """The steps of one device, by the functions that a person would call, one after the other."""
    params, losses = init_params(2, init="he", network=network, dtype=dtype), []
    chosen = decaying(OPTIMIZERS[optimizer], weight_decay)
    state = [[np.zeros_like(param) for param in params] for _ in range(chosen.states)]
    for number, (X, y) in enumerate(minibatches(network, dtype)):
        loss, grads = d2l.loss_and_grads(X, y, params, network, draws=Draws(7, 0, number))
        losses.append(float(loss))
        chosen.update(params, grads, *state, number + 1, RATES[optimizer], len(y))
    return losses, params


CASES = [(name, optimizer, k) for name in ("lenet", "own") for optimizer in OPTIMIZERS for k in (1, 2, 3, 5)]


@LONG_ON_STANDIN
@pytest.mark.parametrize("name, optimizer, k", few(CASES, *CASES[1::5], ("own", "adam", 5)))
def test_k_devices_equal_one(make_devices, name, optimizer, k):
    """Dropout, too, leaves out the same on any number of devices."""
    network, dtype, decay = {"lenet": LENET, "own": OWN}[name], np.float64, 0.1 * (k == 3)
    loop = Loop(network, make_devices(k), optimizer, dtype, decay, algorithm="ring", flat=k == 2)
    losses = [loop.step(X, y, draws=Draws(7, 0, number)) for number, (X, y) in enumerate(minibatches(network, dtype))]
    expected_losses, expected = by_hand(network, optimizer, dtype, decay)
    assert losses == pytest.approx(expected_losses, rel=1e-10) and all(type(loss) is float for loss in losses)
    for arrays in loop.arrays():
        for array, other in zip(arrays, expected, strict=True):
            assert_close(array, other, 1e-9 if optimizer == "adam" else TOLERANCE[array.dtype])


CASES = [(name, *rest) for name in ("lenet-bn", "bn", "lenet") for rest in (("sgd", 3), ("momentum", 2), ("adam", 5))]


@pytest.mark.parametrize("name, optimizer, k", few(CASES, ("lenet-bn", "momentum", 2), ("bn", "adam", 5)))
def test_the_plan_data_does_the_same_bit_for_bit(name, optimizer, k):
    """Parameters, and the running statistics, which are each device's own; empty shards leave them."""
    network = {"lenet-bn": LENET_BN, "bn": SMALL_BN, "lenet": LENET}[name]
    for flat, algorithm in (True, "ring"), (False, "naive"):
        start = init_params(2, init="he", network=network)
        chosen = decaying(OPTIMIZERS[optimizer], 0.1 * flat)
        execution = execution_of(start, cpus(k), network, chosen, algorithm=algorithm, flat=flat)
        loop = Loop(network, cpus(k), optimizer, weight_decay=0.1 * flat, algorithm=algorithm, flat=flat)
        for X, y in minibatches(network, np.float32):
            assert loop.step(X, y) == step(execution, X, y, RATES[optimizer])
        assert loop.bits() == [[array.tobytes() for array in arrays] for arrays in copies(execution)]
        if name != "lenet":
            first, *others = ([array.tobytes() for array in own[len(start) :]] for own in loop.arrays())
            assert first not in others


def test_train_does_the_same_bit_for_bit(small):
    X, y, X_test, y_test = small
    how = {"network": LENET_BN, "optimizer": "momentum", "algorithm": "naive", "flat": False, "weight_decay": 0.01}
    result = d2l.train(cpus(2), 60, 0.05, 1, seed=2, init="he", data=small, progress=False, graphs=False, **how)
    loop = Loop(LENET_BN, cpus(2), "momentum", weight_decay=0.01)
    losses = [loop.step(*part) for part in d2l.minibatches(X, y, 60, 2, 0)]
    assert loop.bits()[0] == [array.tobytes() for array in [*result.params, *result.statistics]]
    assert sum(losses) / len(y) == result.history.train_loss[0]
    tested = d2l.evaluate(loop.device_params, X_test, y_test, cpus(2), LENET_BN, loop.statistics)
    assert tested == result.history.test_accuracy[0]  # each device's images with its own statistics


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_running_statistics_from_their_definition(make_devices, rng, dtype):
    """Of a network that begins with batch norm, whose images they are of; and of none."""
    network = sequential((2, 3, 5), BatchNorm(), Flatten(), Dense(4))
    X, y = rng.normal([[[1]], [[-7]]], [[[2]], [[3]]], (11, 2, 3, 5)).astype(dtype), rng.integers(0, 4, 11)
    devices = make_devices(3)
    loop = Loop(network, devices, dtype=dtype)
    for images in X[:4], X[:2]:  # the third has no image in the second step
        loop.step(images, y[: len(images)])
    for device, own in enumerate([[X[:2], X[:1]], [X[2:3], X[1:2]], [X[3:4]]]):
        mean, variance = np.zeros(2), np.ones(2)
        for images in own:
            mean += 0.1 * (images.mean((0, 2, 3), dtype=float) - mean)
            variance += 0.1 * (images.var((0, 2, 3), dtype=float, ddof=1) - variance)
        for found, expected in zip(loop.arrays()[device][-2:], (mean, variance), strict=True):
            assert_close(found, expected, TOLERANCE[np.dtype(dtype)])


def test_losses_of_ones_own(make_devices):
    """With targets that are floats; the squared error from its definition."""
    network = sequential((1, 2, 3), Flatten(), Dense(2))
    (X, _), targets = minibatches(network, np.float64, [7])[0], np.random.default_rng(3).normal(size=(7, 2))
    loop = Loop(network, make_devices(3), dtype=np.float64, loss="squared_error")
    weight, bias = d2l.to_host(loop.device_params[0][0]), np.zeros(2)
    outputs = X.reshape(7, 6) @ weight + bias
    assert loop.step(X, targets) == pytest.approx(((outputs - targets) ** 2).mean(axis=1).sum())
    moved = weight - 0.1 / 7 * X.reshape(7, 6).T @ (outputs - targets)
    for arrays in loop.arrays():
        assert_close(arrays[0], moved, TOLERANCE[np.dtype(np.float64)])


@LONG_ON_STANDIN
@pytest.mark.parametrize("failing", [0, 1])
@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_an_error_on_a_device_changes_nothing(make_devices, monkeypatch, optimizer, failing):
    """Neither parameters, nor statistics, nor what the optimiser remembers."""
    devices, compute = make_devices(2), Replica.loss_and_grads
    loop, undisturbed = Loop(SMALL_BN, devices, optimizer), Loop(SMALL_BN, devices, optimizer)

    def fail(self, *args):
        if self.device is devices[failing]:
            raise ArithmeticError("no more")
        return compute(self, *args)

    for number, (X, y) in enumerate(minibatches(SMALL_BN, np.float32, [5, 6, 4])):
        if number:
            before = loop.bits()
            with monkeypatch.context() as patch, pytest.raises(ArithmeticError):
                patch.setattr(Replica, "loss_and_grads", fail)
                loop.step(X, y)
            d2l.synchronize(devices)
            assert loop.bits() == before
        assert loop.step(X, y) == undisturbed.step(X, y)
    assert loop.bits() == undisturbed.bits()


WAYS = {
    "naive": (LENET_BN, "momentum", {}),
    "flat": (SMALL_BN, "adam", {"flat": True, "algorithm": "ring"}),
    "dropout": (OWN, "sgd", {"algorithm": "hierarchical", "draws": Draws(3)}),
}
CASES = [(way, split) for way in WAYS for split in ((1, 1), (1, 2), (2, 1, 3))]


@pytest.mark.threads
@pytest.mark.parametrize("way, split", few(CASES, *CASES[1::3]))
def test_processes_do_what_one_does_bit_for_bit(way, split):
    network, optimizer, how = WAYS[way]
    batches = minibatches(network, np.float32)

    def steps(devices, **how):
        loop = Loop(network, devices, optimizer, **how)
        return [loop.step(X, y) for X, y in batches], loop.bits()

    alone = dict(how)
    if how.get("algorithm") == "hierarchical":  # the devices of a process are a group
        ends = np.cumsum(split).tolist()
        groups = [list(range(end - n, end)) for n, end in zip(split, ends, strict=True)]
        alone["algorithm"] = functools.partial(hierarchical, groups=groups)
    losses, expected = steps(cpus(sum(split)), **alone)
    found = in_each(split, lambda cluster: steps(cluster, **how))
    assert [own for own, _ in found] == [losses] * len(split)
    assert sum((bits for _, bits in found), []) == expected


@pytest.mark.threads
def test_an_allreduce_across_may_be_given():
    (X, y), *_ = minibatches(OWN, np.float32)

    def steps(cluster):
        loops = [Loop(OWN, cluster, algorithm=way, draws=Draws(1)) for way in ("ring", cluster.across("ring"))]
        return [(loop.step(X, y), loop.bits()) for loop in loops]

    for named, given in in_each((1, 2), steps):
        assert named == given


def test_wrong_arguments():
    (X, y), *_ = minibatches(SMALL_BN, np.float32)
    loop = Loop(SMALL_BN, cpus(2))
    running, adam = loop.statistics, d2l.init_optimizer("adam", loop.device_params)
    others = d2l.init_optimizer("momentum", [d2l.get_params(d2l.init_params(), device) for device in cpus(2)])
    far = [d2l.get_params(init_statistics(SMALL_BN), d2l.cpu(5))] * 2
    before = loop.bits()
    for wrong, message in [
        ({"network": "cnn"}, "network is 'cnn'; it should be what networks.sequential makes"),
        ({"network": LENET_BN}, r"the parameters on cpu\(0\): .* there should be a list of 12 arrays"),
        ({"optimizer": "adm"}, "optimizer 'adm' is unknown; choose from sgd, momentum, adam; did you mean adam"),
        ({"optimizer": "adam"}, r"has a state .* optimizer = d2l.init_optimizer\('adam', device_params\), and"),
        ({"optimizer": adam[:1]}, "optimizer: 1 given; it should be a list of 2, of what init_optimizer makes"),
        ({"optimizer": adam[::-1]}, r"train_batch: one array is on cpu\(0\) and another on cpu\(1\)"),
        ({"optimizer": others}, r"the optimizer's state on cpu\(0\): .* there should be a list of 10 arrays"),
        ({"optimizer": [7, 8]}, "optimizer holds 7; give 'sgd', or what init_optimizer returns"),
        ({"statistics": running[:1]}, "the statistics: 1 given; it should be a list of 2"),
        ({"statistics": [[], []]}, r"the statistics on cpu\(0\): \[\]; there should be .* 4 arrays, as from init_stat"),
        ({"statistics": far}, r"train_batch: one array is on cpu\(0\) and another on cpu\(5\)"),
        ({"statistics": [init_statistics(SMALL_BN)] * 2}, r"one array is on cpu\(0\) and another on the host"),
        ({"loss": "absolute"}, "loss 'absolute' is unknown"),
        ({"draws": 7}, r"draws is 7; it should be Draws\(seed, epoch, step\)"),
    ]:
        with pytest.raises((ValueError, d2l.DeviceMismatchError), match=message) as error:
            loop.step(X, y, **wrong)
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="float64 and the parameters are float32"):
        loop.step(X.astype(float), y)
    with pytest.raises(ValueError, match="the network has dropout"):
        Loop(OWN, cpus(2)).step(*minibatches(OWN, np.float32)[0])
    with pytest.raises(ValueError, match="drift apart"):
        in_each((1, 1), lambda cluster: Loop(SMALL_BN, cluster).step(X, y, algorithm="none"))
    assert loop.bits() == before
    with pytest.raises(ValueError, match="weight_decay is -1; it should be a finite number, at least 0"):
        d2l.init_optimizer("sgd", loop.device_params, -1)
    with pytest.raises(ValueError, match="an array of float32 .* is not on a device; get_params copies arrays to one"):
        d2l.init_optimizer("adam", [init_params(network=SMALL_BN)])
