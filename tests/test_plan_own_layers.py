"""Plans of networks whose layers are functions of one's own: weights without a bias, parameters that are no weights."""

import numpy as np
import pytest
from conftest import few
from test_plan_execution import check_gradients

import d2lmgpu as d2l
from d2lmgpu.networks import BatchNorm, Conv2d, Dense, Flatten, Layer, MaxPool2d, ReLU, sequential
from d2lmgpu.plans import PLANS, copies_of


def linear(x, weight):
    return x @ weight, (x, weight)


def linear_grad(dy, cache, input_grad=True):
    x, weight = cache
    return dy @ weight.T if input_grad else None, x.T @ dy


def bare_conv(x, weight):
    return d2l.conv2d(x, weight, np.zeros(len(weight), x.dtype))


def bare_conv_grad(dy, cache, input_grad=True):
    dx, dweight, _ = d2l.conv2d_grad(dy, cache, input_grad)
    return dx, dweight


def scale(x, factor):
    factor = factor.reshape(-1, *(1,) * (x.ndim - 2))
    return x * factor, (x, factor)


def scale_grad(dy, cache, input_grad=True):
    x, factor = cache
    return dy * factor if input_grad else None, (dy * x).sum(axis=(0, *range(2, x.ndim)))


def Linear(outputs):  # noqa: N802
    return lambda shape: Layer(linear, linear_grad, ((*shape, outputs),))


def BareConv(outputs, size):  # noqa: N802
    return lambda shape: Layer(bare_conv, bare_conv_grad, ((outputs, shape[0], size, size),))


def Scale():  # noqa: N802
    return lambda shape: Layer(scale, scale_grad, (shape[:1],), ("ones",))


NETWORKS = {
    "without bias": sequential(
        (2, 8, 7), BareConv(3, 2), ReLU(), BareConv(5, 2), MaxPool2d(), Flatten(), Linear(4), ReLU(), Linear(3)
    ),
    "some without": sequential((2, 6, 5), Conv2d(3, 2), BareConv(4, 2), Flatten(), Linear(7), Dense(5), Linear(3)),
    "scaled": sequential(
        (2, 6, 5), Conv2d(3, 2), Scale(), ReLU(), Conv2d(4, 2), Scale(), Flatten(), Linear(4), Scale()
    ),
}


@pytest.mark.parametrize("k, micro_batches, n", few([(1, 1, 3), (2, 2, 7), (3, 1, 5), (5, 3, 8)], (2, 2, 7), (5, 3, 8)))
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("name", PLANS)
def test_gradients_are_those_of_one_device(name, network, k, micro_batches, n):
    k = min(k, 4) if name in ("layers", "gpipe", "1f1b", "zero-bubble") else k
    plan, devices = PLANS[name](k, micro_batches, network=NETWORKS[network]), [d2l.cpu(i) for i in range(k)]
    check_gradients(plan, devices, n)


@pytest.mark.parametrize("network", NETWORKS)
def test_copies(network):
    check_gradients(copies_of("channels", 2, 2, network=NETWORKS[network]), [d2l.cpu(i) for i in range(4)], 7)


@pytest.mark.parametrize(
    "first",
    [BatchNorm(), Scale(), lambda shape: Layer(scale, scale_grad, ((1,),))],
    ids=["batch norm", "as many", "one number"],
)
def test_parameters_that_are_not_of_the_units_are_not_split(first):
    """Before a convolution they are of its inputs, also where these are as many as its outputs."""
    network = sequential((2, 6, 5), first, Conv2d(2, 3), Flatten(), Dense(3))
    with pytest.raises(ValueError, match="stage 0: split by columns, it .*; other layers .* for each of its outputs"):
        PLANS["channels"](2, network=network)
