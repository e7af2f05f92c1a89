"""Layers: each a pair of pure functions, forward and backward, next to each other.

``y, cache = layer(x, ...)`` and ``dx, ... = layer_grad(dy, cache)``. They take
plain NumPy or CuPy arrays, float32 or float64, or the arrays of one device.
"""

from .batch_norm import (
    SyncStatistics,
    batch_moments,
    batch_norm,
    batch_norm_fixed,
    batch_norm_grad,
    batch_norm_sums,
    make_sync_statistics,
    mean_and_variance,
    track_statistics,
)
from .convolution import conv2d, conv2d_grad
from .dense import dense, dense_grad, flatten, flatten_grad
from .draws import Draws
from .elementwise import dropout, dropout_grad, half, half_grad, relu, relu_grad, rounded_to_half
from .labels import check_labels, check_targets
from .loss import softmax_cross_entropy, softmax_cross_entropy_grad, squared_error, squared_error_grad
from .pooling import avg_pool2d, avg_pool2d_grad, max_pool2d, max_pool2d_grad
