"""The initial values for training: random parameters, and running statistics."""

import contextlib
import math
from typing import Any

import numpy as np

from ..base.arguments import check_name, check_number, check_seed, shown
from .build import channels
from .checks import check_layers
from .known import LENET

INITS = ("normal", "he")


def init_params(seed=0, scale=0.01, init="normal", dtype: Any = np.float32, network=LENET) -> list[np.ndarray]:
    """Initial parameters as NumPy arrays on the host, so that every device can start from the same values.

    ``init="normal"`` (the textbook): normally distributed weights with standard deviation ``scale``. ``init="he"`` (He
    et al. 2015): normally distributed weights with standard deviation √(2 / inputs of a unit), so that activations keep
    their size from layer to layer; ``scale`` is ignored. Biases are zero, and batch norm's weights are one.

    Raises ValueError for an unknown ``init``, and for an invalid seed, scale or network, and for a dtype not of floats.
    """
    check_name("init", init, INITS)
    seed, scale = check_seed(seed), check_number("scale", scale, least=0)
    check_layers(network)
    dtype = check_dtype(dtype)
    rng = np.random.default_rng(seed)
    params = []
    for layer in network:
        kinds = layer.initial or ["zeros" if len(shape) == 1 else "weights" for shape in layer.shapes]
        for shape, kind in zip(layer.shapes, kinds, strict=True):
            if kind == "weights":
                inputs = math.prod(shape[1:]) if len(shape) == 4 else shape[0]
                std = math.sqrt(2 / inputs) if init == "he" else scale
                params.append(rng.normal(0, std, shape).astype(dtype))
            else:
                params.append(np.full(shape, {"zeros": 0, "ones": 1}[kind], dtype))
    return params


def init_statistics(network=LENET, dtype: Any = np.float32):
    """The running mean and variance of each batch norm layer, in one list: host arrays of zeros and of ones."""
    check_layers(network)
    return [array for C in channels(network) for array in (np.zeros(C, dtype), np.ones(C, dtype))]


def check_dtype(dtype):
    """The ``dtype`` as a NumPy dtype. Raises ValueError if it is not a floating-point type."""
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        if dtype is not None and np.dtype(dtype).kind == "f":
            return np.dtype(dtype)
    raise ValueError(f"dtype is {shown(dtype)}; it should be a floating-point type, such as np.float32")
