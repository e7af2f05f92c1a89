"""Dynamic loss scaling for mixed precision (Micikevicius et al. 2018).

Many gradients are smaller than the smallest float16, and would be rounded to
zero. So the gradient of the loss, from which all others follow, is multiplied by
a large number, and the update divides by it. If a gradient comes out infinite,
the number was too large: the step is left out and the scale halved. After many
good steps it is doubled.
"""

import contextlib

import numpy as np

from ..devices import array_module

FIRST_SCALE = 2.0**12
LARGEST_SCALE = 2.0**24
INTERVAL = 2000
"""Good steps in a row after which the scale is doubled."""


def are_finite(arrays):
    """Whether all numbers of the plain arrays are."""
    return all(bool(array_module(array).isfinite(array).all()) for array in arrays)


class LossScale:
    """``scale`` is what gradients are multiplied by: a power of two, so that it changes no digit of them.

    In full precision, without ``mixed``, it is 1, and there is no state.
    Every device has its own, and since all see the same sums, they stay the same.
    On CUDA graphs kernels/cuda/mixed_precision.cu does the same.
    """

    def __init__(self, mixed):
        self.mixed, self.scale, self.good_steps = mixed, FIRST_SCALE if mixed else 1, 0

    def quiet(self):
        """A context in which NumPy does not warn of infinite gradients where they are found and left out."""
        return np.errstate(over="ignore", invalid="ignore") if self.mixed else contextlib.nullcontext()

    def adapt(self, finite):
        """Whether to use the summed gradients, of which it is known whether all are ``finite``."""
        if not finite:
            self.scale, self.good_steps = max(1.0, self.scale / 2), 0
            return False
        self.good_steps += 1
        if self.good_steps == INTERVAL:
            self.scale, self.good_steps = min(LARGEST_SCALE, self.scale * 2), 0
        return True

    def arrays(self):
        """The state, for a checkpoint."""
        return [np.array([self.scale], np.float32), np.array([self.good_steps], np.int32)] if self.mixed else []

    def set_arrays(self, scale, good_steps):
        """Take what `arrays` gave."""
        self.scale, self.good_steps = float(scale[0]), int(good_steps[0])
