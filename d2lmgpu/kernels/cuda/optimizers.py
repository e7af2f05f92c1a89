"""How an optimiser's kernel is launched in a CUDA graph."""

import numpy as np

from . import launch, tensor_cores
from .run import run


def optimize(name, params, grads, state, rates, sizes, step, scale, overflow, taken):
    """Do a step of the optimiser ``name``; the other arguments are arrays, as in optimizers.cu, and are not empty."""
    n = params.size
    if name == "sgd":
        how = tensor_cores.mixed_precision("scaled_sgd", n)
        run(how, params, grads, rates, step, scale, overflow, np.int32(n))
        return
    numbers = [rates, sizes, step, scale, overflow] + [taken] * (name == "adam")
    run(getattr(launch, name)(n), params, grads, *state, *numbers, np.int32(n))
