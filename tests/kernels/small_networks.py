"""Small networks for the kernels: for those of the CPU, and for those of GPUs, which the CPU runs in tests."""

import numpy as np
from gpus import TINY_NETWORK, oblong

from d2lmgpu.networks import (
    LENET,
    LENET_BN,
    AvgPool2d,
    BatchNorm,
    Conv2d,
    Dense,
    Flatten,
    Layer,
    MaxPool2d,
    ReLU,
    init_params,
    sequential,
)


def less_half_the_mean(x):
    return x - 0.5 / max(1, len(x)) * x.sum(axis=0), None


def less_half_the_mean_grad(dy, cache):
    return dy - 0.5 / max(1, len(dy)) * dy.sum(axis=0)


def minus_half_mean(shape):
    """A layer without a fast body, in which an image's result depends on the others, as in batch norm."""
    return Layer(less_half_the_mean, less_half_the_mean_grad)


RELU, AVERAGE, MAX, FLATTEN, NORM = ReLU(), AvgPool2d(), MaxPool2d(), Flatten(), BatchNorm()
END = RELU, AVERAGE, FLATTEN, Dense(4)
NETWORKS = {
    "LeNet": LENET,
    "wider LeNet": sequential((1, 28, 28), Conv2d(40, 3), RELU, AVERAGE, Conv2d(24, 5), *END),
    "CNN with max pooling": sequential((1, 20, 20), Conv2d(32, 3), RELU, MAX, FLATTEN, Dense(64), RELU, Dense(10)),
    "tiles beyond the image": sequential((24, 15, 17), Conv2d(23, 3), *END),
    "many tiles": sequential((1, 46, 26), Conv2d(16, 2), RELU, oblong(16, 3, 5), *END),
    "Winograd and max pooling": sequential((32, 14, 9), oblong(28, 3, 2), RELU, MAX, FLATTEN, Dense(5)),
    "squares of 3": sequential((3, 13, 12), oblong(16, 2, 3), RELU, MaxPool2d(3), FLATTEN, Dense(5)),
    "no ReLU, no pooling": sequential((10, 11, 8), oblong(30, 4, 3), Conv2d(28, 3), FLATTEN, Dense(7)),
    "average without ReLU": sequential((2, 9, 9), Conv2d(3, 2), AVERAGE, RELU, FLATTEN, Dense(4)),
    "convolution after convolution": sequential(
        (1, 16, 15), Conv2d(8, 3), RELU, Conv2d(8, 3), RELU, Conv2d(7, 1), RELU, MAX, FLATTEN, Dense(4)
    ),
    "a kernel too large for Winograd": sequential((9, 12, 12), Conv2d(9, 9), *END),
    "pooling and ReLU by themselves": sequential((3, 9, 8), RELU, MAX, AVERAGE, RELU, FLATTEN, Dense(6), RELU),
    "batch norm": sequential(  # not right after a bias, whose gradient would be rounding alone
        *((2, 11, 12), Conv2d(6, 3), RELU, AVERAGE, NORM, Conv2d(30, 2), RELU, NORM, FLATTEN, Dense(9), RELU, NORM)
    ),
    "batch norm before ReLU and pooling": sequential(
        *((3, 11, 13), NORM, RELU, AVERAGE, Conv2d(6, 2), RELU, NORM, MAX, FLATTEN, Dense(8), RELU, NORM, RELU),
        Dense(4),
    ),
    "batch norm and a layer without a fast body": sequential(
        (1, 10, 10), NORM, Conv2d(5, 3), RELU, minus_half_mean, NORM, AVERAGE, FLATTEN, Dense(3)
    ),
    "padding, and kernels smaller than their stride": sequential(
        *((2, 9, 8), Conv2d(16, 5, stride=2, padding=4), RELU, AVERAGE, Conv2d(32, 3, padding=2), RELU, MAX),
        *(Conv2d(6, 1, stride=2, padding=1), RELU, FLATTEN, Dense(4)),
    ),
    "dense only": sequential((2, 3, 4), FLATTEN, Dense(30), RELU, Dense(3)),
}
SHARED = "squares of 3", "pooling and ReLU by themselves", "dense only", "batch norm before ReLU and pooling"
ON_GPUS = {name: NETWORKS[name] for name in SHARED} | {
    "LeNet": LENET,
    "LeNet with batch norm": LENET_BN,
    "tiny": TINY_NETWORK,
    "what comes between": sequential((2, 12, 11), RELU, MAX, RELU, Conv2d(3, 2), MAX, AVERAGE, Conv2d(4, 1), FLATTEN),
    "convolutions": sequential(
        (2, 9, 8), oblong(5, 2, 3), Conv2d(4, 3), AVERAGE, Conv2d(3, 2), RELU, FLATTEN, Dense(4)
    ),
    "Winograd": sequential(
        *((3, 14, 14), Conv2d(8, 3), RELU, Conv2d(24, 5), RELU, AVERAGE, Conv2d(6, 3), RELU, FLATTEN, Dense(4))
    ),
    "too large squares": sequential((1, 12, 11), Conv2d(3, 2), RELU, AvgPool2d(5), FLATTEN, Dense(3)),
    "many classes": sequential((1, 6, 5), oblong(2, 3, 2), RELU, FLATTEN, Dense(9), RELU, Dense(40)),
    "padding": sequential(
        (2, 6, 5), Conv2d(4, 3, padding=1), RELU, Conv2d(5, 3, padding=2), AVERAGE, FLATTEN, Dense(3)
    ),
    "layers without a kernel": sequential(
        (2, 38, 6), oblong(3, 33, 3), minus_half_mean, RELU, Conv2d(3, 2, stride=2), FLATTEN, Dense(4)
    ),
    "batch norm everywhere": sequential(
        (2, 9, 8), NORM, MAX, RELU, NORM, oblong(5, 2, 3), NORM, FLATTEN, Dense(7), NORM, RELU, Dense(3)
    ),
}


def make(rng, network, N, dtype=np.float32):
    """Images, labels and parameters."""
    params = [p + rng.normal(0, 0.1, p.shape) for p in init_params(1, init="he", network=network, dtype=np.float64)]
    X, y = rng.normal(0, 1, (N, *network.input_shape)), rng.integers(0, network.classes, N)
    return X.astype(dtype), y, [param.astype(dtype) for param in params]
