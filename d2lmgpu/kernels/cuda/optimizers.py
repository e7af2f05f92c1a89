"""How an optimiser's kernel is launched, in graphs and, with exact sums, also where kernels are launched one by one.

CuPy's operations round after each multiplication, but a kernel does not always do so. Where the bits must be the same,
they must all come from the kernel.
"""

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
