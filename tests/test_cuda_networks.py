"""Networks by name as CUDA graphs equal the layers as they are written, in float64, in every precision.

In mixed precision the layers are those of `in_half`. So only sums differ, which the kernels make in float32. Images are
small, since the CPU runs the kernels, which g++ compiles first: that is what takes seconds.
"""

import numpy as np
import pytest
from conftest import few
from test_cuda_program import make_gpus  # noqa: F401

import d2lmgpu as d2l
from d2lmgpu.data.minibatches import epoch_order
from d2lmgpu.kernels.cuda import PRECISIONS
from d2lmgpu.layers import track_statistics, zero_moments
from d2lmgpu.networks import channels, half_weights, in_half, init_params, init_statistics, mixed as loss_scale
from d2lmgpu.networks.known import cnn_network, lenet_network
from d2lmgpu.networks.losses import CROSS_ENTROPY
from d2lmgpu.networks.optimizers import OPTIMIZERS
from d2lmgpu.networks.plain import sums_as_written
from d2lmgpu.parallel.shards import shard_bounds

pytestmark = pytest.mark.threads

NETWORKS = {
    "lenet": lenet_network(0.4, input_shape=(1, 17, 16), classes=6),
    "lenet-bn": lenet_network(0.4, batch_norm=True, input_shape=(1, 17, 16), classes=6),
    "cnn": cnn_network(input_shape=(1, 9, 10), classes=7),
}
OPTIMIZER_RATES = [("sgd", 0.02), ("momentum", 0.01), ("adam", 0.002)]
LOADS = [(1, 1), (1,), (2, 0, 1)]
M, BATCH_SIZE, EPOCHS = 9, 4, 2  # the last minibatch has one image, and the second of two devices then has none

BEFORE_NORM = {"lenet-bn": {1, 5}}
"""Biases that batch norm takes away again: their gradient is 0 but for rounding, so they are nobody's to compare."""

PAIRS = [  # each network, precision, optimiser and way to share out images with each of the others (an L9 array)
    (
        network,
        precision,
        OPTIMIZER_RATES[(i + j) % 3],
        LOADS[(i + 2 * j) % 3],
    )
    for i, network in enumerate(NETWORKS)
    for j, precision in enumerate(PRECISIONS)
]


class AsWritten:
    """What training by the layers comes to: ``params``, the first device's ``statistics``, each epoch's ``sums``:
    of losses and of right answers."""

    def __init__(self, network, precision, optimizer, loads):
        self.network = {"float32": network, "mixed": in_half(network)}[precision]
        self.working = half_weights if precision == "mixed" else list
        self.scale = loss_scale.FIRST_SCALE if precision == "mixed" else 1.0
        self.loads = loads
        self.params = [param.astype(float) for param in init_params(0, init="he", network=network)]
        self.optimizer, self.steps, self.sums = OPTIMIZERS[optimizer], 0, []
        self.state = [[np.zeros_like(param) for param in self.params] for _ in range(self.optimizer.states)]
        self.statistics = init_statistics(network, float)

    def epoch(self, X, y, order, lr):
        sums = np.zeros(2)
        for start in range(0, len(X), BATCH_SIZE):
            chosen = order[start : start + BATCH_SIZE]
            bounds = shard_bounds(len(chosen), len(self.loads), self.loads)
            shards = [self.shard(X[chosen[begin:stop]] / 255, y[chosen[begin:stop]]) for begin, stop in bounds]
            sums += sum(shard_sums for shard_sums, _, _ in shards)
            grads = [sum(grads) for grads in zip(*(grads for _, grads, _ in shards), strict=True)]
            self.steps += 1
            self.optimizer.update(self.params, grads, *self.state, self.steps, lr, self.scale * len(chosen))
            for i, moments in enumerate(zip(*(moments for _, _, moments in shards), strict=True)):
                track_statistics(*self.statistics[2 * i : 2 * i + 2], moments[0])
        self.sums.append(sums)

    def shard(self, X, y):
        """The loss with the number of right answers, the gradients, the moments of each batch norm layer."""
        grads = [np.zeros_like(param) for param in self.params]
        moments, params = zero_moments(channels(self.network)), self.working(self.params)
        found = sums_as_written(X, y, params, self.network, grads, CROSS_ENTROPY, self.scale, moments=moments)
        return found, grads, moments


def assert_near(found, expected, tolerance):
    """In the mean: here and there rounding turns a ReLU on, or takes another pixel for the largest."""
    error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    assert error <= tolerance, f"off by {error:.2g} of its size"


@pytest.mark.parametrize(
    "network, precision, optimizer_rate, loads",
    few(PAIRS, PAIRS[0], parts=3),
)
def test_as_the_layers(make_gpus, rng, network, precision, optimizer_rate, loads):  # noqa: F811
    """What was learned, not where it began. A sum of float32 may be rounded to the next factor, 2^-11 away."""
    made, (optimizer, lr) = NETWORKS[network], optimizer_rate
    X, y = rng.integers(1, 256, (M, *made.input_shape)).astype(np.uint8), rng.integers(0, made.classes, M)
    data = X, y.astype(np.uint8), X[:3], y[:3].astype(np.uint8)
    choices = {"precision": precision, "optimizer": optimizer, "loads": loads}
    settings = {"batch_size": BATCH_SIZE, "lr": lr, "num_epochs": EPOCHS, "init": "he", "data": data, "network": made}
    run = d2l.train(make_gpus(len(loads)), progress=False, **settings, **choices)
    assert run.history.phases["step"] > 0 and len(run.history.train_loss) == EPOCHS
    expected = AsWritten(made, precision, optimizer, loads)
    for epoch in range(EPOCHS):
        expected.epoch(X, y, epoch_order(M, 0, epoch), lr)

    tolerance = {"float32": 1e-4, "mixed": 2e-3}[precision]
    losses, right = np.transpose(expected.sums) / M
    assert run.history.train_loss == pytest.approx(losses, rel=tolerance / 10)
    # where two logits are nearly equal rounding decides
    assert run.history.train_accuracy == pytest.approx(right, abs=(precision != "float32") / M + 1e-9)
    before = init_params(0, init="he", network=made)
    for i, (param, other, start) in enumerate(zip(run.params, expected.params, before, strict=True)):
        if i not in BEFORE_NORM.get(network, ()):
            assert_near(d2l.to_host(param) - start, other - start, tolerance)
    for i, (one, other) in enumerate(zip(run.statistics, expected.statistics, strict=True)):
        follows_bias = optimizer == "adam" and i % 2 == 0  # a bias before batch norm, whose gradient is but rounding
        assert_near(d2l.to_host(one), other, 2e-2 if follows_bias else tolerance)
