"""Networks: how they are composed, those with a name, what training starts from, what is computed."""

from .build import (
    AvgPool2d,
    BatchNorm,
    Conv2d,
    Dense,
    Flatten,
    Layer,
    MaxPool2d,
    Network,
    ReLU,
    channels,
    sequential,
)
from .compute import (
    count_correct,
    in_parts,
    lenet,
    logits,
    loss_and_grads,
    loss_and_grads_as_written,
)
from .initial import INITS, init_params, init_statistics
from .known import CNN, LENET, LENET_BN, NETWORKS, cnn_network, known_network, lenet_network

__all__ = [
    "CNN",
    "INITS",
    "LENET",
    "LENET_BN",
    "NETWORKS",
    "AvgPool2d",
    "BatchNorm",
    "Conv2d",
    "Dense",
    "Flatten",
    "Layer",
    "MaxPool2d",
    "Network",
    "ReLU",
    "channels",
    "cnn_network",
    "count_correct",
    "in_parts",
    "init_params",
    "init_statistics",
    "known_network",
    "lenet",
    "lenet_network",
    "logits",
    "loss_and_grads",
    "loss_and_grads_as_written",
    "sequential",
]
