"""Plans of a network with batch norm: right where no minibatch is cut, refused elsewhere."""

import numpy as np
import pytest
from conftest import TOLERANCE, assert_close, few
from test_plan_execution import GRADIENTS, assert_memory, batch, one_device, start, trained

import d2lmgpu as d2l
from d2lmgpu.networks import LENET_BN, init_params
from d2lmgpu.plans import PLANS, Execution, execute

WHOLE = ["layers", "gpipe", "1f1b", "zero-bubble", "channels", "channel-pairs"]
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


@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
@pytest.mark.parametrize("name, k", [("zero-bubble", 3), ("channel-pairs", 2), ("channels", 3)])
def test_parameters_after_five_steps(name, k, optimizer):
    sizes = 24, 13, 7, 5, 9
    plan, devices = PLANS[name](k, 1, network=LENET_BN), [d2l.cpu(i) for i in range(k)]
    losses, params = trained(plan, devices, optimizer, np.float64, sizes)
    expected_losses, expected = one_device(LENET_BN, optimizer, np.float64, sizes)
    assert losses == pytest.approx(expected_losses, rel=1e-9)
    for i, (param, alone) in enumerate(zip(params, expected, strict=True)):
        if i not in BIASES:  # whose rounding Adam magnifies
            assert_close(param, alone, 1e-9)


@pytest.mark.parametrize("name", WHOLE)
def test_memory_is_what_was_predicted(name):
    assert_memory(PLANS[name](2, 1, network=LENET_BN), 13, "adam", np.float32)


@pytest.mark.parametrize("name", PLANS)
def test_a_minibatch_that_is_cut_is_refused(name):
    plan = PLANS[name](2, 3, network=LENET_BN)
    with pytest.raises(ValueError, match=f"batch norm, .* cuts the minibatch into {plan.micro_batches}; take one that"):
        Execution(plan, init_params(network=LENET_BN), [d2l.cpu(0), d2l.cpu(1)])
