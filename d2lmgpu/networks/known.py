"""Networks that can be chosen by name, their initial parameters, and any network as plain data or as a table.

The data are only the names of layers and their arguments, so no code from a file is ever run:

{"input_shape": [1, 28, 28], "layers": [["Conv2d", {"outputs": 20, "kernel_size": 3}], ["ReLU", {}], ...]}
"""

import contextlib
import functools
import math
from typing import Any

import numpy as np

from ..base.arguments import check_name, check_number, check_seed, shown
from ..base.text import message_of
from ..layers.functions import function_of, output_shapes
from .build import RECIPES, AvgPool2d, BatchNorm, Conv2d, Dense, Flatten, MaxPool2d, Recipe, ReLU, channels, sequential
from .checks import check_layers

FASHION_MNIST = (1, 28, 28)
"""The shape of Fashion-MNIST's images, (C, H, W)."""


MAX_WIDTH = 100
"""The largest width, a factor for the numbers of channels. With it, LeNet's parameters take a gigabyte."""


def check_width(width):
    """``width`` as a number. ValueError unless it is from 1/20, which leaves LeNet one channel, to `MAX_WIDTH`."""
    return check_number("width", width, least=1 / 20, most=MAX_WIDTH)


def lenet_network(width=1.0, batch_norm=False, input_shape=FASHION_MNIST, classes=10):
    """LeNet (LeCun et al. 1998), as in Dive into Deep Learning, "Training on Multiple GPUs".

    (N, 1, 28, 28) → 20 × 13 × 13 → 50 × 4 × 4 → 128 → 10. The numbers of channels in hidden layers are multiplied by
    ``width``. ``batch_norm``: whether batch norm follows each convolution.
    """
    norm = [BatchNorm()] if batch_norm else []
    channels = _widened(width, 20, 50, 128)
    return sequential(
        input_shape,
        *(Conv2d(channels[0], 3), *norm, ReLU(), AvgPool2d()),  # 28 × 28 → 26 × 26 → 13 × 13
        *(Conv2d(channels[1], 5), *norm, ReLU(), AvgPool2d()),  # → 9 × 9 → 4 × 4, without the ninth row and column
        *(Flatten(), Dense(channels[2]), ReLU(), Dense(classes)),
    )


def cnn_network(input_shape=FASHION_MNIST, classes=10, width=1.0):
    """The network of TensorFlow's guide "Distributed training with Keras": (N, 1, 28, 28) → 32 × 13 × 13 → 64 → 10.

    The numbers of channels are multiplied by ``width``, as in `lenet_network`.
    """
    channels = _widened(width, 32, 64)
    return sequential(
        input_shape,
        *(Conv2d(channels[0], 3), ReLU(), MaxPool2d()),
        *(Flatten(), Dense(channels[1]), ReLU(), Dense(classes)),
    )


def deep_network(input_shape=FASHION_MNIST, classes=10, width=1.0):
    """A network of pairs of 3 × 3 convolutions, after Simonyan 2014: eight layers with parameters, for many stages.

    (N, 1, 28, 28) → 16 × 14 × 14 → 32 × 7 × 7 → 64 × 3 × 3 → 128 → 10. The numbers of channels are multiplied by
    ``width``, as in `lenet_network`. Because of the padding, convolutions keep the images' size; each pooling halves
    it.
    """
    *channels, units = _widened(width, 16, 32, 64, 128)
    pairs = []
    for C in channels:
        pairs += [Conv2d(C, 3, padding=1), ReLU(), Conv2d(C, 3, padding=1), ReLU(), MaxPool2d()]
    return sequential(input_shape, *pairs, *(Flatten(), Dense(units), ReLU(), Dense(classes)))


def _widened(width, *channels):
    return [round(number * float(width)) for number in channels]


_MAKERS = {
    "lenet": lenet_network,
    "lenet-bn": functools.partial(lenet_network, batch_norm=True),
    "cnn": cnn_network,
    "deep": deep_network,
}


def known_network(name, classes=10, input_shape=FASHION_MNIST, width=1.0):
    """The network with this name, a key of `NETWORKS`, for the given number of classes and shape of images.

    Its hidden layers have ``width`` times the usual number of channels. Raises ValueError for an unknown name, a wrong
    width, and images that are too small.
    """
    check_name("network", name, _MAKERS)
    return _MAKERS[name](width=check_width(width), classes=classes, input_shape=input_shape)


NETWORKS = {name: make() for name, make in _MAKERS.items()}
"""The networks by name, for images of Fashion-MNIST's shape in 10 classes."""

LENET, LENET_BN, CNN, DEEP = NETWORKS.values()


# The initial values for training: random parameters, and running statistics.


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


def described(network):
    """The `Network` as data for JSON; None if one of its layers was not made by a recipe of build.py."""
    if not network.recipes or not all(isinstance(recipe, Recipe) for recipe in network.recipes):
        return None
    layers = [[recipe.name, dict(recipe.arguments)] for recipe in network.recipes]
    return {"input_shape": list(network.input_shape), "layers": layers}


def restored(description):
    """The `Network` with this description. Raises ValueError for a description that `described` did not make."""
    try:
        shape = description["input_shape"]
        recipes = [RECIPES[name](**arguments) for name, arguments in description["layers"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{shown(description)} is not a description of a network: {message_of(error)}") from error
    return sequential(shape, *recipes)


def layer_rows(network):
    """For each layer: its name, its output's shape for one image, and its numbers of parameters and multiplications.

    Only the products of convolutions and dense layers are counted, one for each weight and position; there are few
    other products.
    """
    rows, shapes = [], output_shapes(network, network.input_shape)
    for i, (layer, shape) in enumerate(zip(network, shapes, strict=True)):
        name = repr(network.recipes[i]) if network.recipes else function_of(layer)[0].__name__
        parameters = sum(map(math.prod, layer.shapes))
        weights = sum(math.prod(shape) for shape in layer.shapes if len(shape) > 1)
        rows.append((name, tuple(shape), parameters, weights * math.prod(shape[1:])))
    return rows


def layer_table(network):
    """The `layer_rows` as a text table, with sums in its last line."""
    rows = layer_rows(network)
    total = "", "", sum(row[2] for row in rows), sum(row[3] for row in rows)
    head = "layer", "output", "parameters", "multiplications"
    cells = [head] + [
        (name, " × ".join(map(str, shape)), f"{parameters:,}", f"{products:,}")
        for name, shape, parameters, products in [("input", network.input_shape, 0, 0), *rows, total]
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}  {d:>{widths[3]}}" for a, b, c, d in cells]
    lines[-1:] = ["-" * len(lines[0]), lines[-1]]
    return "\n".join(lines)
