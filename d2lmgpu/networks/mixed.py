"""Mixed precision: a network whose products have float16 factors (Micikevicius et al. 2018).

A convolution or dense layer multiplies its input, its weight, and the gradient that reaches it; each of these is
rounded first. Bias, ReLU, pooling, batch norm, the loss and all sums are unchanged.

    x ─ half ─ conv2d ─ relu ─ pool ─ half ─ dense ─ half ─ loss
         │        │                    │       │      │
         (rounded forward)             (rounded forward and backward)

The weights are rounded when a computation starts (see `half_weights`). In CUDA graphs, the kernels round the same
numbers (see kernels/cuda/choose.py).
"""

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
