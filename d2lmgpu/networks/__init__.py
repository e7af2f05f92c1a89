"""Networks: composing them, networks with a name, initial parameters, and computing outputs, losses and gradients."""

from ..kernels import cpu, cuda
from .build import (
    AvgPool2d as AvgPool2d,
    BatchNorm as BatchNorm,
    Conv2d as Conv2d,
    Dense as Dense,
    Dropout as Dropout,
    Flatten as Flatten,
    Layer as Layer,
    MaxPool2d as MaxPool2d,
    Network as Network,
    ReLU as ReLU,
    channels as channels,
    sequential as sequential,
)
from .compute import (
    KERNELS,
    kernels_work as kernels_work,
    lenet as lenet,
    logits as logits,
    loss_and_grads as loss_and_grads,
    sums_and_grads as sums_and_grads,
)
from .known import (
    CNN as CNN,
    DEEP as DEEP,
    FASHION_MNIST as FASHION_MNIST,
    INITS as INITS,
    LENET as LENET,
    LENET_BN as LENET_BN,
    NETWORKS as NETWORKS,
    check_width as check_width,
    described as described,
    init_params as init_params,
    init_statistics as init_statistics,
    known_network as known_network,
    layer_rows as layer_rows,
    layer_table as layer_table,
    lenet_network as lenet_network,
    restored as restored,
)
from .losses import CROSS_ENTROPY as CROSS_ENTROPY, LOSSES as LOSSES, find_loss as find_loss, try_loss as try_loss
from .mixed import HALF as HALF, half_weights as half_weights, in_half as in_half
from .plain import logits_as_written as logits_as_written, loss_and_grads_as_written as loss_and_grads_as_written

KERNELS.update(cpu=cpu, gpu=cuda)
