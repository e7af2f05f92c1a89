"""GPUs in tests: machines of the stand-in for CuPy, networks small enough for the CPU to run their kernels, and runs.

That the kernels work is tried by the library before it uses them. Here it tries them on the small network, which has
kernels of its own to compile anyway; test_checkup.py has the one that it tries elsewhere.
"""

import itertools

import numpy as np
import pytest
import standin_cupy
from conftest import REAL_GPU, assert_close, forget_gpus

import d2lmgpu as d2l
from d2lmgpu import layers
from d2lmgpu.networks import AvgPool2d, BatchNorm, Dense, Flatten, Layer, ReLU, sequential
from d2lmgpu.networks.known import cnn_network, lenet_network
from d2lmgpu.training.graph_step import GraphStep


def oblong(outputs, height, width):
    """A recipe for a convolution whose kernel is no square."""

    def make(shape):
        return Layer(layers.conv2d, layers.conv2d_grad, ((outputs, shape[0], height, width), (outputs,)))

    return make


TINY_NETWORK = sequential((1, 9, 8), oblong(3, 2, 3), ReLU(), AvgPool2d(), Flatten(), Dense(5), ReLU(), Dense(4))

TINY_WITH_NORM = (
    sequential(  # no bias right before batch norm: its gradient is rounding alone, of which Adam makes steps
        *((1, 9, 8), BatchNorm(), oblong(3, 2, 3), ReLU(), BatchNorm(), ReLU(), AvgPool2d()),
        *(Flatten(), Dense(5), ReLU(), Dense(4)),
    )
)

GRAPH_NETWORKS = {
    "lenet": lenet_network(0.4, input_shape=(1, 17, 16), classes=6),
    "lenet-bn": lenet_network(0.4, batch_norm=True, input_shape=(1, 17, 16), classes=6),
    "cnn": cnn_network(input_shape=(1, 9, 10), classes=7),
}
"""Networks by name, as small as they can be."""

BEFORE_NORM = {"lenet-bn": {1, 5}}
"""Biases that batch norm takes away again: their gradient is 0 but for rounding, so they are nobody's to compare."""


@pytest.fixture
def machine(monkeypatch):
    """A function that makes a machine of the stand-in, see `standin_driver.Machine`."""

    def make(cards=2, **properties):
        forget_gpus()
        return standin_cupy.install(monkeypatch, cards, **properties)

    monkeypatch.setattr("d2lmgpu.networks.compute.TRIED", TINY_NETWORK)
    yield make
    forget_gpus()


@pytest.fixture(params=["standin", REAL_GPU])
def make_gpus(request, monkeypatch):
    """A function: k GPU devices, on which the CUDA kernels are in use."""
    if request.param == "standin":
        request.getfixturevalue("standin")
        monkeypatch.setattr("d2lmgpu.networks.compute.TRIED", TINY_NETWORK)
    return gpus


def gpus(k=2):
    return [d2l.gpu(i) for i in range(k)]


def small_data(rng, n=11, network=TINY_NETWORK):
    """n training and three test images of a network's shape."""
    X = rng.integers(0, 256, (n + 3, *network.input_shape)).astype(np.uint8)
    y = rng.integers(0, network.classes, n + 3).astype(np.uint8)
    return X[:n], y[:n], X[n:], y[n:]


def train(devices, data, **settings):
    """A run of two epochs, in minibatches of 4."""
    given = {"batch_size": 4, "lr": 0.05, "num_epochs": 2, "init": "he", "network": TINY_NETWORK, "progress": False}
    return d2l.train(devices, data=data, **(given | settings))


@pytest.fixture
def alone(rng):
    """Data, and the run of one virtual device with it."""
    data = small_data(rng)
    return data, train([d2l.cpu(0)], data)


def assert_as(run, expected, tolerance=2e-5):
    """Two runs learned the same, up to rounding."""
    assert run.history.train_loss == pytest.approx(expected.history.train_loss, rel=tolerance)
    assert len(run.statistics) == len(expected.statistics)
    for array, other in zip([*run.params, *run.statistics], [*expected.params, *expected.statistics], strict=True):
        assert_close(array, d2l.to_host(other), 10 * tolerance)


def assert_near(found, expected, tolerance):
    """In the mean: here and there rounding turns a ReLU on, or takes another pixel for the largest."""
    error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    assert error <= tolerance, f"off by {error:.2g} of its size"


def learned(run):
    """What must be the same to the bit in runs that do the same."""
    history = run.history
    told = history.train_loss, history.train_accuracy, history.test_accuracy, history.final_parameters_sha256
    return *told, [d2l.to_host(array).tobytes() for array in [*run.params, *run.statistics]]


def interrupted_at_step(number, runner=GraphStep):
    """A function in place of ``runner.launch``, which is interrupted before the step of this number, from 1."""
    launch, count = runner.launch, itertools.count(1)

    def counted(self, most):
        if next(count) == number:
            raise KeyboardInterrupt
        return launch(self, most)

    return counted
