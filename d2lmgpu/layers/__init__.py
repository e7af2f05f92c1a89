"""Layers: each is a pair of pure functions, forward and backward, side by side.

They are called as ``y, cache = layer(x, ...)`` and ``dx, ... = layer_grad(dy, cache)``. They take plain NumPy or CuPy
arrays, float32 or float64, or arrays that are all on one device.
"""

from .batch_norm import (
    batch_moments as batch_moments,
    batch_norm as batch_norm,
    batch_norm_grad as batch_norm_grad,
    mean_and_variance as mean_and_variance,
    track_statistics as track_statistics,
    zero_moments as zero_moments,
)
from .convolution import conv2d as conv2d, conv2d_grad as conv2d_grad
from .dense import dense as dense, dense_grad as dense_grad, flatten as flatten, flatten_grad as flatten_grad
from .elementwise import (
    Draws as Draws,
    dropout as dropout,
    dropout_grad as dropout_grad,
    half as half,
    half_grad as half_grad,
    relu as relu,
    relu_grad as relu_grad,
    rounded_to_half as rounded_to_half,
)
from .loss import (
    check_labels as check_labels,
    check_targets as check_targets,
    softmax_cross_entropy as softmax_cross_entropy,
    softmax_cross_entropy_grad as softmax_cross_entropy_grad,
    squared_error as squared_error,
    squared_error_grad as squared_error_grad,
)
from .pooling import (
    avg_pool2d as avg_pool2d,
    avg_pool2d_grad as avg_pool2d_grad,
    max_pool2d as max_pool2d,
    max_pool2d_grad as max_pool2d_grad,
)
