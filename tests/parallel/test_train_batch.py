"""`train_batch`: k devices do what one does, with any network, optimiser and loss, and on clusters.

What `train` shares with it, tests/training/test_equals_one_device.py compares in more ways.
"""

import functools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from clusters_in_threads import in_each
from conftest import LONG_ON_STANDIN, TOLERANCE, assert_close, long
from one_device import (
    DROPPING,
    LOSSES,
    NORMED,
    PLAIN,
    SMOOTH,
    draws_of,
    examples,
    first_params,
    learned_alone,
    without_gradient,
)
from training_runs import cpus

import d2lmgpu as d2l
from d2lmgpu.collectives import hierarchical
from d2lmgpu.layers import Draws
from d2lmgpu.networks import BatchNorm, Dense, Flatten, init_statistics, sequential
from d2lmgpu.parallel.step import Replica

SIZES = (13, 7, 1, 3)
"""Ragged minibatches, of which some have fewer examples than there are devices."""
RATES = {"sgd": 0.05, "momentum": 0.02, "adam": 0.01}


def minibatches(network, dtype=np.float64, loss="labels", sizes=SIZES):
    return [examples(network, n, dtype, loss, seed) for seed, n in enumerate(sizes)]


class Loop:
    """A loop of one's own on ``devices``, a list or a `Cluster`."""

    def __init__(self, network, devices, optimizer="sgd", dtype=np.float64, weight_decay=0.0, start=None, **more):
        mine = getattr(devices, "mine", devices)
        start, running = start or first_params(network, dtype), init_statistics(network, dtype)
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


CASES = [  # network, optimiser, dtype, k, loss, settings
    (PLAIN, "momentum", np.float64, 3, "labels", {"algorithm": "ring", "weight_decay": 0.1}),
    (SMOOTH, "sgd", np.float32, 8, "own loss", {"flat": True}),
    (DROPPING, "adam", np.float64, 5, "labels", {"algorithm": "hierarchical"}),
    (NORMED, "adam", np.float64, 1, "labels", {"weight_decay": 0.1}),
]


@LONG_ON_STANDIN
@pytest.mark.parametrize("network, optimizer, dtype, k, loss, more", CASES)
def test_k_devices_equal_one(make_devices, network, optimizer, dtype, k, loss, more):
    batches = minibatches(network, dtype, loss)
    draws = draws_of(7) if network is DROPPING else None
    expected = learned_alone(
        network, batches, optimizer, RATES[optimizer], more.get("weight_decay", 0), loss, draws=draws
    )
    loop = Loop(network, make_devices(k), optimizer, dtype, loss=LOSSES[loss], **more)
    losses = [loop.step(X, y, draws=draws and draws(number)) for number, (X, y) in enumerate(batches)]
    assert all(type(loss) is float for loss in losses)
    tolerance = TOLERANCE[np.dtype(dtype)] * (1000 if optimizer == "adam" else 1)
    assert losses == pytest.approx(expected.losses, rel=tolerance)
    for arrays in loop.arrays():
        for i, (array, first) in enumerate(zip(arrays, loop.arrays()[0], strict=True)):
            assert array.tobytes() == first.tobytes()
            if i not in without_gradient(network):
                assert_close(array, [*expected.params, *sum(expected.statistics, [])][i], tolerance)


def test_replicas_that_start_apart_stay_apart():
    """The comparison above must be able to fail: without the common start, it does."""
    loop = Loop(PLAIN, cpus(2))
    loop.device_params[1][0] += 1e-3
    for X, y in minibatches(PLAIN):
        loop.step(X, y)
    one, other = loop.arrays()
    assert not np.array_equal(one[0], other[0])


def test_a_step_by_hand(make_devices):
    """One step of SGD on LeNet from the definition: param - lr / N · Σ gradients, with the full batch's N."""
    rng, devices = np.random.default_rng(5), make_devices(3)
    X, y = rng.random((7, 1, 28, 28)), rng.integers(0, 10, 7)
    params = d2l.init_params(seed=2, init="he", dtype=np.float64)
    loss, grads = d2l.loss_and_grads(X, y, params)
    device_params = [d2l.get_params(params, device) for device in devices]
    assert d2l.train_batch(X, y, device_params, devices, 0.5) == pytest.approx(float(loss))
    for actual, param, grad in zip(device_params[2], params, grads, strict=True):
        assert_close(actual, param - 0.5 / 7 * grad, 1e-12)


def test_a_flat_step_sends_one_message(make_devices):
    devices, (X, y) = make_devices(2), examples(PLAIN, 4)
    counts, size = {}, sum(param.nbytes for param in first_params(PLAIN))
    for flat in (False, True):
        loop = Loop(PLAIN, devices)
        with d2l.record_transfers() as transfers:
            loop.step(X, y, flat=flat)
        between = [t for t in transfers if "host" not in (t.source, t.destination)]
        counts[flat] = len(between)
        assert sum(t.nbytes for t in between) == 2 * size
    assert counts == {False: 16, True: 2}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_running_statistics_from_their_definition(make_devices, rng, dtype):
    """Of a network that begins with batch norm, whose images they are of; and of none."""
    network = sequential((2, 3, 5), BatchNorm(), Flatten(), Dense(4))
    X, y = rng.normal([[[1]], [[-7]]], [[[2]], [[3]]], (11, 2, 3, 5)).astype(dtype), rng.integers(0, 4, 11)
    loop = Loop(network, make_devices(3), dtype=dtype)
    for images in X[:4], X[:2]:  # the third has no image in the second step
        loop.step(images, y[: len(images)])
    for device, own in enumerate([[X[:2], X[:1]], [X[2:3], X[1:2]], [X[3:4]]]):
        mean, variance = np.zeros(2), np.ones(2)
        for images in own:
            mean += 0.1 * (images.mean((0, 2, 3), dtype=float) - mean)
            variance += 0.1 * (images.var((0, 2, 3), dtype=float, ddof=1) - variance)
        for found, expected in zip(loop.arrays()[device][-2:], (mean, variance), strict=True):
            assert_close(found, expected, TOLERANCE[np.dtype(dtype)])


@LONG_ON_STANDIN
@pytest.mark.parametrize("network", [NORMED, DROPPING])
@pytest.mark.parametrize("options", [{"flat": False, "algorithm": "naive"}, {"flat": True, "algorithm": "ring"}])
def test_train_does_the_same_bit_for_bit(make_devices, network, options):
    """Its history, too, and its test set: each device's images with its own statistics."""
    X, y = examples(network, 37, np.float32)
    tested = examples(network, 10, np.float32, seed=6)
    start, devices, optimizer = first_params(network, np.float32), make_devices(3), "momentum"
    given = {"network": network, "init": start, "optimizer": optimizer, "weight_decay": 0.01, "data": (X, y, *tested)}
    result = d2l.train(devices, 8, RATES[optimizer], 2, seed=7, progress=False, graphs=False, **given, **options)
    loop, losses = Loop(network, devices, optimizer, np.float32, 0.01, start, **options), []
    for epoch in range(2):
        for number, part in enumerate(d2l.minibatches(X, y, 8, 7, epoch)):
            losses.append(loop.step(*part, draws=Draws(7, epoch, number) if network is DROPPING else None))
    assert loop.bits()[0] == [array.tobytes() for array in [*result.params, *result.statistics]]
    assert [sum(losses[:5]) / 37, sum(losses[5:]) / 37] == result.history.train_loss
    accuracy = d2l.evaluate(loop.device_params, *tested, devices, network, loop.statistics)
    assert accuracy == result.history.test_accuracy[1]


@LONG_ON_STANDIN
@pytest.mark.parametrize("failing", [0, 1])
@pytest.mark.parametrize("optimizer, flat", [("momentum", False), ("adam", True)])
def test_an_error_on_a_device_changes_nothing(make_devices, monkeypatch, optimizer, flat, failing):
    """Neither parameters, nor statistics, nor what the optimiser remembers."""
    devices, compute = make_devices(2), Replica.loss_and_grads
    loop, undisturbed = (Loop(NORMED, devices, optimizer, np.float32, flat=flat) for _ in range(2))

    def fail(self, *args):
        if self.device is devices[failing]:
            raise ArithmeticError("no more")
        return compute(self, *args)

    for number, (X, y) in enumerate(minibatches(NORMED, np.float32, sizes=(5, 6, 4))):
        if number:
            before = loop.bits()
            with monkeypatch.context() as patch, pytest.raises(ArithmeticError):
                patch.setattr(Replica, "loss_and_grads", fail)
                loop.step(X, y)
            d2l.synchronize(devices)
            assert loop.bits() == before
        assert loop.step(X, y) == undisturbed.step(X, y)
    assert loop.bits() == undisturbed.bits()


ACROSS = {
    "naive": (NORMED, "momentum", {}),
    "flat": (NORMED, "adam", {"flat": True, "algorithm": "ring"}),
    "dropout": (DROPPING, "sgd", {"algorithm": "hierarchical", "draws": Draws(3)}),
}


@pytest.mark.threads
@pytest.mark.parametrize("options", ACROSS)
@pytest.mark.parametrize("split", [(1, 2), *long(((1, 1),), ((2, 1, 3),))])
def test_processes_do_what_one_does_bit_for_bit(options, split):
    network, optimizer, options = ACROSS[options]
    batches = minibatches(network, np.float32)

    def steps(devices, **options):
        loop = Loop(network, devices, optimizer, np.float32, **options)
        return [loop.step(X, y) for X, y in batches], loop.bits()

    alone = dict(options)
    if options.get("algorithm") == "hierarchical":  # the devices of a process are a group
        ends = np.cumsum(split).tolist()
        groups = [list(range(end - n, end)) for n, end in zip(split, ends, strict=True)]
        alone["algorithm"] = functools.partial(hierarchical, groups=groups)
    losses, expected = steps(cpus(sum(split)), **alone)
    found = in_each(split, lambda cluster: steps(cluster, **options))
    assert [own for own, _ in found] == [losses] * len(split)
    assert sum((bits for _, bits in found), []) == expected


@pytest.mark.threads
def test_an_allreduce_across_may_be_given():
    X, y = examples(DROPPING, 13, np.float32)

    def steps(cluster):
        loops = [
            Loop(DROPPING, cluster, dtype=np.float32, algorithm=name, draws=Draws(1))
            for name in ("ring", cluster.across("ring"))
        ]
        return [(loop.step(X, y), loop.bits()) for loop in loops]

    for named, given in in_each((1, 2), steps):
        assert named == given


@pytest.mark.threads
@pytest.mark.parametrize("flat", [False, True])
def test_from_several_host_threads(flat):
    """Each on its own parameters, on the same devices: as if alone, bit for bit. One does not learn at all."""
    batches, rates = minibatches(PLAIN, sizes=(11, 11, 11)), [0.0, 0.05, 0.2]

    def steps(number):
        loop = Loop(PLAIN, cpus(3), algorithm="ring", flat=flat)
        loop.lr = rates[number]
        for _ in range(12):
            loop.step(*batches[number])
        return loop.bits()

    alone = [steps(number) for number in range(3)]
    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(steps, range(3))) == alone
    assert alone[0] == [[param.tobytes() for param in first_params(PLAIN)]] * 3
