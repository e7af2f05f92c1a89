"""The networks that have a name."""

import functools

from ..arguments import check_flag, check_name, check_number
from .build import AvgPool2d, BatchNorm, Conv2d, Dense, Flatten, MaxPool2d, ReLU, sequential

FASHION_MNIST = (1, 28, 28)
"""The shape of its images, (C, H, W)."""


MOST_WIDTH = 100
"""Times LeNet's channels: a gigabyte of parameters."""


def lenet_network(width=1.0, batch_norm=False, input_shape=FASHION_MNIST, classes=10):
    """LeCun et al. 1998, as in Dive into Deep Learning, "Training on Multiple GPUs".

    (N, 1, 28, 28) → 20 × 13 × 13 → 50 × 4 × 4 → 128 → 10, all numbers of channels
    times ``width``. ``batch_norm``: after each convolution.

    Raises ValueError for a width below 1/20, which leaves no channel, or above `MOST_WIDTH`.
    """
    check_number("lenet_network: width", width, least=1 / 20, most=MOST_WIDTH)
    check_flag("batch_norm", batch_norm)
    norm = [BatchNorm()] if batch_norm else []
    channels = [round(number * width) for number in (20, 50, 128)]
    return sequential(
        input_shape,
        *(Conv2d(channels[0], 3), *norm, ReLU(), AvgPool2d()),  # 28 × 28 → 26 × 26 → 13 × 13
        *(Conv2d(channels[1], 5), *norm, ReLU(), AvgPool2d()),  # → 9 × 9 → 4 × 4: the ninth row and column are left out
        *(Flatten(), Dense(channels[2]), ReLU(), Dense(classes)),
    )


def cnn_network(input_shape=FASHION_MNIST, classes=10):
    """The network of TensorFlow's guide "Distributed training with Keras": (N, 1, 28, 28) → 32 × 13 × 13 → 64 → 10."""
    return sequential(
        input_shape, *(Conv2d(32, 3), ReLU(), MaxPool2d()), *(Flatten(), Dense(64), ReLU(), Dense(classes))
    )


_MAKERS = {
    "lenet": lenet_network,
    "lenet-bn": functools.partial(lenet_network, batch_norm=True),
    "cnn": cnn_network,
}


def known_network(name, classes=10, input_shape=FASHION_MNIST):
    """The network of that name, a key of `NETWORKS`, for another number of classes, or images of another shape.

    Raises ValueError for another name, and for images that are too small.
    """
    check_name("network", name, _MAKERS)
    return _MAKERS[name](classes=classes, input_shape=input_shape)


NETWORKS = {name: make() for name, make in _MAKERS.items()}
"""As they are known: for images of Fashion-MNIST's shape, 10 classes."""

LENET, LENET_BN, CNN = NETWORKS.values()
