"""Mixed precision: a network whose products have float16 factors (Micikevicius et al. 2018).

A convolution or dense layer multiplies its input, its weight, and the gradient that reaches it; each of these is
rounded first. Bias, ReLU, pooling, batch norm, the loss and all sums are unchanged.

    x ─ half ─ conv2d ─ relu ─ pool ─ half ─ dense ─ half ─ loss
         │        │                    │       │      │
         (rounded forward)             (rounded forward and backward)

The weights are rounded when a computation starts (see `half_weights`). In CUDA graphs, the kernels round the same
numbers (see kernels/cuda/stages.py).
"""

import contextlib

import numpy as np

from ..devices import array_module
from ..layers import conv2d, dense, half, half_grad, rounded_to_half
from ..layers.functions import function_of
from .build import Layer, Network

HALF = Layer(half, half_grad)


def in_half(network):
    """The `Network` with the factors of its products rounded to float16, except for the weights."""
    layers = []
    for layer in network:
        if function_of(layer)[0] in (conv2d, dense):
            layers.append(HALF)
        layers.append(layer)
    return Network([*layers, HALF], network.input_shape, network.classes)


def half_weights(params):
    """The plain arrays ``params`` as they are used: weights as copies rounded to float16, all others unchanged."""
    return [rounded_to_half(param) if param.ndim > 1 else param for param in params]


# Dynamic loss scaling for mixed precision (Micikevicius et al. 2018).
#
# Many gradients are smaller than the smallest float16 number and would be rounded to zero. So the gradient of the loss,
# from which all other gradients follow, is multiplied by a large number, the scale, and the update divides by the
# scale. If a gradient becomes infinite, the scale was too large: the step is skipped, and the scale is halved. After
# many good steps in a row, the scale is doubled.


FIRST_SCALE = 2.0**12
LARGEST_SCALE = 2.0**24
INTERVAL = 2000
"""The scale is doubled after this many good steps in a row."""


def are_finite(arrays):
    """Whether all numbers of the plain arrays are finite."""
    return all(bool(array_module(array).isfinite(array).all()) for array in arrays)


class LossScale:
    """The ``scale`` by which gradients are multiplied. It is a power of two, so it changes none of their digits.

    In full precision, without ``mixed``, the scale is 1, and there is no state. Every device has its own scale; all
    scales stay equal, because all devices see the same sums. In CUDA graphs, kernels/cuda/mixed_precision.cu does the
    same.
    """

    def __init__(self, mixed):
        self.mixed, self.scale, self.good_steps = mixed, FIRST_SCALE if mixed else 1, 0

    def quiet(self):
        """A context in which NumPy does not warn of infinite gradients: they are detected, and the step is skipped."""
        return np.errstate(over="ignore", invalid="ignore") if self.mixed else contextlib.nullcontext()

    def adapt(self, finite):
        """Adapt the scale after a step; ``finite``: whether all summed gradients are. Return whether to use them."""
        if not finite:
            self.scale, self.good_steps = max(1.0, self.scale / 2), 0
            return False
        self.good_steps += 1
        if self.good_steps == INTERVAL:
            self.scale, self.good_steps = min(LARGEST_SCALE, self.scale * 2), 0
        return True

    def arrays(self):
        """The state, as a list of arrays for a checkpoint."""
        return [np.array([self.scale], np.float32), np.array([self.good_steps], np.int32)] if self.mixed else []

    def set_arrays(self, arrays):
        """Restore the state from what `arrays` returned; a run in full precision had none."""
        if self.mixed and arrays:
            self.scale, self.good_steps = float(arrays[0][0]), int(arrays[1][0])
