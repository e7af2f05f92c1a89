"""Trying the kernels of a device on a small network, against the layers that they stand for."""

import numpy as np

from ..devices import array_module
from ..devices.trials import works
from ..kernels import cpu as cpu_kernels
from ..kernels import cuda as cuda_kernels
from .as_written import loss_and_grads_as_written
from .build import AvgPool2d, Conv2d, Dense, Flatten, ReLU, sequential
from .initial import init_params

NETWORK = sequential(
    (2, 15, 14), Conv2d(6, 3), ReLU(), AvgPool2d(), Conv2d(8, 3), AvgPool2d(), Flatten(), Dense(9), ReLU(), Dense(4)
)

TOLERANCES = {"float32": 1e-4, "tf32": 0.05, "mixed": 0.05}
"""How far gradients may be off, in the mean and relative, for each precision: factors are rounded to 24 or 11 bits."""


def kernels_work(name, xp, precision="float32"):
    """Whether kernels compute on the current device as the layers do; tried once.

    ``name`` is the device's, for example "gpu(0)", ``xp`` its array module.
    """
    tried = "the kernels" if precision == "float32" else f"kernels with precision {precision}"
    instead = "the layers compute as they are written, which is slow"
    return works(name, tried, instead, lambda: try_kernels(xp, precision))


def try_kernels(xp, precision="float32"):
    """Loss and gradients of a small network. Raises RuntimeError if they are not those of the layers, in float64."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(0, 1, (5, *NETWORK.input_shape)).astype(np.float32), rng.integers(0, NETWORK.classes, 5)
    params = [param + rng.normal(0, 0.1, param.shape) for param in init_params(init="he", network=NETWORK)]
    loss, grads = loss_and_grads_as_written(X.astype(float), y, [param.astype(float) for param in params], NETWORK)
    places = [xp.array(param.astype(np.float32)) for param in params]
    found = [xp.zeros(param.shape, np.float32) for param in params]
    X, y = xp.array(X), xp.array(y)
    if xp is np:
        found_loss = cpu_kernels.loss_and_grads(X, y, places, NETWORK, found)
    else:
        found_loss = cuda_kernels.loss_and_grads(X, y, places, NETWORK, found, precision=precision)
    pairs = zip([found_loss, *found], [loss, *grads], strict=True)
    error = max(np.linalg.norm(_on_host(one) - other) / np.linalg.norm(other) for one, other in pairs)
    if not error <= TOLERANCES[precision]:
        raise RuntimeError(f"gradients are off by {error:.2g} of their size")


def _on_host(array):
    return np.asarray(array if array_module(array) is np else array.get(), float)
