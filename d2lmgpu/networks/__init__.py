"""Networks: how they are composed, those with a name, what training starts from, what is computed."""

from .as_written import logits_as_written, loss_and_grads_as_written
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
    sequential,
)
from .checks import check_drawing, check_images, check_network, check_params, check_running, is_random
from .compute import count_correct, kernels_work, lenet, logits, loss_and_grads
from .describe import described, layer_rows, layer_table, restored
from .initial import INITS, init_params, init_statistics
from .known import CNN, DEEP, FASHION_MNIST, LENET, LENET_BN, NETWORKS, check_width, known_network, lenet_network
from .losses import CROSS_ENTROPY, LOSSES, find_loss, try_loss
from .mixed import HALF, half_weights, in_half
