"""Networks: how they are composed, those with a name, what training starts from, what is computed."""

from .as_written import loss_and_grads_as_written
from .build import (
    AvgPool2d,
    BatchNorm,
    Conv2d,
    Dense,
    Dropout,
    Flatten,
    Layer,
    MaxPool2d,
    Network,
    ReLU,
    channels,
    check_network,
    check_params,
    check_running,
    is_random,
    sequential,
)
from .compute import count_correct, in_parts, lenet, logits, loss_and_grads
from .describe import described, restored
from .initial import INITS, check_init, init_params, init_statistics
from .known import (
    CNN,
    DEEP,
    FASHION_MNIST,
    LENET,
    LENET_BN,
    NETWORKS,
    check_width,
    cnn_network,
    deep_network,
    known_network,
    lenet_network,
)
from .loss_trial import try_loss
from .losses import CROSS_ENTROPY, LOSSES, find_loss
from .mixed import half_weights, in_half
from .table import layer_rows, layer_table
from .trial import kernels_work

__all__ = [
    "CNN",
    "CROSS_ENTROPY",
    "DEEP",
    "FASHION_MNIST",
    "INITS",
    "LENET",
    "LENET_BN",
    "LOSSES",
    "NETWORKS",
    "AvgPool2d",
    "BatchNorm",
    "Conv2d",
    "Dense",
    "Dropout",
    "Flatten",
    "Layer",
    "MaxPool2d",
    "Network",
    "ReLU",
    "channels",
    "check_init",
    "check_network",
    "check_params",
    "check_running",
    "check_width",
    "cnn_network",
    "count_correct",
    "deep_network",
    "described",
    "find_loss",
    "half_weights",
    "in_half",
    "in_parts",
    "init_params",
    "init_statistics",
    "is_random",
    "kernels_work",
    "known_network",
    "layer_rows",
    "layer_table",
    "lenet",
    "lenet_network",
    "logits",
    "loss_and_grads",
    "loss_and_grads_as_written",
    "restored",
    "sequential",
    "try_loss",
]
