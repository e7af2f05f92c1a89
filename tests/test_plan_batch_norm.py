"""Plans of a network with batch norm, whose statistics are of a micro-batch."""

import numpy as np
import pytest
from conftest import TOLERANCE, assert_close, few
from test_plan_execution import GRADIENTS, batch, start

import d2lmgpu as d2l
from d2lmgpu.collectives import chunk_bounds
from d2lmgpu.networks import LENET_BN, BatchNorm, Dense, Flatten, sequential
from d2lmgpu.plans import PLANS, Execution, execute

WHOLE = ["layers", "gpipe", "1f1b", "zero-bubble", "channels"]
"""Plans of which each device sees all images, if there is one micro-batch."""
BIASES = [1, 5]
"""Parameters whose gradient is 0, since batch norm takes away what they add: what is computed is rounding."""


@pytest.mark.parametrize("dtype", few([np.float32, np.float64], np.float64))
@pytest.mark.parametrize("k, n", few([(k, n) for k in (1, 2, 3, 4) for n in (13, 24, 2)], (1, 13), (2, 2), (3, 13)))
@pytest.mark.parametrize("name", WHOLE)
def test_gradients_are_those_of_one_device(name, k, n, dtype, make_devices):
    X, y = batch(n, dtype, LENET_BN)
    params, plan = start(dtype, LENET_BN), PLANS[name](k, 1, network=LENET_BN)
    loss, grads = execute(plan, X, y, params, make_devices(k), 0.1, GRADIENTS)
    expected_loss, expected = d2l.loss_and_grads(X, y, params, network=LENET_BN)
    # sums in another order, divided by small deviations: one device's own float32 is as far from its float64
    tolerance = 3 * TOLERANCE[np.dtype(dtype)]
    assert loss == pytest.approx(float(expected_loss), rel=tolerance)
    for i, (grad, alone) in enumerate(zip(grads, expected, strict=True)):
        if i in BIASES:
            assert np.abs(grad).max() < tolerance * np.abs(expected[i - 1]).max()
        else:
            assert_close(grad, alone, tolerance)


@pytest.mark.parametrize("k, micro_batches", [(1, 3), (3, 1), (2, 2)])
def test_statistics_of_ones_own_images(k, micro_batches, rng):
    """Gradients are those of each micro-batch by itself; running statistics follow a device's own."""
    network = sequential((2, 3, 3), BatchNorm(), Flatten(), Dense(3))
    plan = PLANS["data"](k, micro_batches, network=network)
    params, (X, y) = start(np.float64, network), batch(13, np.float64, network)
    loss, grads = execute(plan, X, y, params, [d2l.cpu(i) for i in range(k)], 0.1, GRADIENTS)
    parts = [slice(*bounds) for bounds in chunk_bounds(13, k * micro_batches)]
    each = [d2l.loss_and_grads(X[part], y[part], params, network=network) for part in parts]
    assert loss == pytest.approx(sum(float(own) for own, _ in each))
    for i, grad in enumerate(grads):
        assert_close(grad, sum(own[i] for _, own in each), 1e-12)
    execution = Execution(plan, params, [d2l.cpu(i) for i in range(k)])
    execution.step(X, y, 0.1)
    for i, own in enumerate(execution.statistics()):
        mine = parts[i * micro_batches : (i + 1) * micro_batches]
        images = np.concatenate([X[part] for part in mine])
        mean, variance = images.mean(axis=(0, 2, 3)), images.var(axis=(0, 2, 3), ddof=1)
        assert_close(own[0], 0.1 * mean, 1e-12)
        assert_close(own[1], 0.9 + 0.1 * variance, 1e-12)
