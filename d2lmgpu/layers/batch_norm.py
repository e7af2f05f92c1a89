"""Batch normalisation: every channel gets mean 0 and variance 1 over the minibatch (Ioffe and Szegedy 2015).

    x̂ = (x - mean) / √(variance + ε)        y = weight · x̂ + bias

It is the only layer in which images affect each other: mean and variance are taken over all images and over all
positions of a channel. When devices share a minibatch, these are each device's own images.

    batch_moments(x) → moments (3, C) → batch_norm(x, weight, bias, moments)

Their sums are float64, so that the variance, a difference of large sums, stays accurate. A dense layer's outputs (N, C)
count as images with one position.
"""

import numpy as np

from ..devices import array_module, on_device

EPSILON = 1e-5
"""This is added to the variance, to avoid a division by zero when all values of a channel are equal."""

MOMENTUM = 0.1
"""The fraction by which a step moves the running statistics towards the statistics of its images."""


def zero_moments(channels, xp=np):
    """Moments (3, C) of no images for each batch norm layer; ``channels`` lists the layers' numbers of channels."""
    return [xp.zeros((3, C)) for C in channels]


@on_device
def batch_moments(x):
    """``x`` (N, C, H, W) or (N, C) → float64 (3, C): for each channel, the values' number, sum and sum of squares."""
    xp, axes = array_module(x), _axes(x)
    count = x.size // max(1, x.shape[1])
    if count == 0:
        return xp.zeros((3, x.shape[1]))
    mean = x.mean(axes, dtype=np.float64)
    centre = mean.astype(x.dtype)
    squares = xp.square(x - _wide(centre, x)).sum(axes, dtype=np.float64)  # around the mean, so no large numbers cancel
    centre = centre.astype(np.float64)
    return xp.stack([xp.full_like(mean, count), count * mean, squares + count * centre * (2 * mean - centre)])


@on_device
def mean_and_variance(moments):
    """Moments (3, C), from one device or summed over several → mean (C,) and variance (C,), both float64."""
    count, sums, squares = moments
    count = array_module(moments).maximum(count, 1)
    mean = sums / count
    return mean, (squares / count - mean**2).clip(0)


@on_device
def batch_norm(x, weight, bias, moments=None):
    """``x`` (N, C, H, W) or (N, C), ``weight`` and ``bias`` (C,) → y like x, cache.

    ``moments``: the `batch_moments` of all images over which to normalise; by default, those of ``x``.
    """
    if moments is None:
        moments = batch_moments(x)
    mean, variance = mean_and_variance(moments)
    factor = (1 / (variance + EPSILON) ** 0.5).astype(x.dtype)
    x_hat = (x - _wide(mean.astype(x.dtype), x)) * _wide(factor, x)
    return _wide(weight, x) * x_hat + _wide(bias, x), (x_hat, weight, factor, moments)


@on_device
def batch_norm_grad(dy, cache, input_grad=True):
    """``dy`` like y → dx like x, dweight (C,), dbias (C,); dx is None with ``input_grad=False``."""
    x_hat, weight, factor, moments = cache
    xp, axes = array_module(dy), _axes(dy)
    sums = xp.stack([dy.sum(axes, dtype=np.float64), (dy * x_hat).sum(axes, dtype=np.float64)])
    dbias, dweight = sums.astype(dy.dtype)
    if not input_grad:
        return None, dweight, dbias
    # y also depends on x through mean and variance: this removes the components of dy along 1 and along x̂.
    along_one, along_x = (sums / xp.maximum(moments[0], 1)).astype(dy.dtype)
    dx = _wide(weight * factor, dy) * (dy - _wide(along_one, dy) - x_hat * _wide(along_x, dy))
    return dx, dweight, dbias


@on_device
def batch_norm_fixed(x, weight, bias, mean, variance):
    """``x`` as in `batch_norm` → y like x, with a given mean and variance (C,), so images do not affect each other."""
    factor = weight / (variance + x.dtype.type(EPSILON)) ** 0.5
    return (x - _wide(mean, x)) * _wide(factor, x) + _wide(bias, x)


@on_device
def track_statistics(mean, variance, moments):
    """Move the running ``mean`` and ``variance`` (C,), in place, by the fraction `MOMENTUM` to those of ``moments``.

    The variance is the unbiased estimate, with n - 1 instead of n, as in PyTorch. Moments of no images do nothing.
    """
    count = moments[0]
    batch_mean, batch_variance = mean_and_variance(moments)
    batch_variance *= count / array_module(moments).maximum(count - 1, 1)
    for running, value in ((mean, batch_mean), (variance, batch_variance)):
        running += ((value - running) * (MOMENTUM * (count > 0))).astype(running.dtype)


def _axes(x):
    """All axes except the channel axis."""
    return (0, 2, 3)[: x.ndim - 1]


def _wide(values, x):
    """A value per channel, in a shape that broadcasts with ``x``."""
    return values[None, :, None, None] if x.ndim == 4 else values[None]
