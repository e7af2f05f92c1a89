"""Fast implementations of the layers: in NumPy for the CPU (cpu/), in CUDA for GPUs (cuda/).

They give the same results as the layers as they are written, which compute wherever there are no kernels.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Kernels(NamedTuple):
    """The kernels for a kind of device: what there is, for which arrays, and whether they work.

    ``module`` has ``loss_and_grads(X, y, params, network, grads, ...)``, which writes gradients and returns the loss
    and the number of right answers, ``outputs(X, params, network, ...)``, and what plans use.
    ``work()`` or ``work(precision)``, called on the device, tries them once.
    """

    module: Any
    dtypes: tuple = (np.float32,)
    work: Callable = lambda: True


KERNELS = {}
"""The `Kernels` by kind of device, "cpu" and "gpu"; networks/fast.py enters them."""
