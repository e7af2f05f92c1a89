"""Batch normalisation on GPUs: how its kernels are launched, and the stage that a program makes of it.

What the kernels do, and where they may be interrupted, is said at the head of
batch_norm.cu.
"""

from typing import NamedTuple

import numpy as np

from ...layers.batch_norm import EPSILON, MOMENTUM
from .launch import Launch, ceil_div, macros, rounding
from .run import run

MOST_BLOCKS = 1024
"""The most blocks of a launch: some eight for each multiprocessor of a large GPU; all are busy, partial sums few."""

SMALL = 8
"""Values that a channel of an image has at least where neighbouring threads take neighbouring values of a channel."""


class Norm(NamedTuple):
    """Batch norm of images (N, C, H, W), or (N, C) with H = W = 1, with ReLU if ``relu`` and pooling of S x S."""

    C: int
    H: int = 1
    W: int = 1
    S: int = 1
    max_pool: bool = False
    relu: bool = False

    @property
    def TC(self):
        """Channels of a block."""
        return 1 if self.H * self.W >= SMALL else 32

    @property
    def outputs(self):
        """The number of outputs of one channel of one image."""
        return (self.H // self.S) * (self.W // self.S)


def moments(norm, N):
    """Arguments: x, count, workspace, N. The workspace is float64 (2, parts, C), as many numbers as it says."""
    return _over_images("moments", norm, N * norm.H * norm.W, 8, sums=True)


def moments_sum(norm):
    """Arguments: workspace, count, moments, parts, N."""
    return _over_channels("moments_sum", norm)


def normalise(norm, N):
    """Arguments: x, weight, bias, moments, count, y, mask, N."""
    return _over_images("normalise", norm, N * norm.outputs, _squares(norm))


def normalise_fixed(norm, N):
    """Arguments: x, weight, bias, mean, variance, count, y, mask, N."""
    return _over_images("normalise_fixed", norm, N * norm.outputs, _squares(norm))


def gradient_sums(norm, N):
    """Arguments: x, dy, mask, moments, count, workspace, N. The workspace is that of `moments`, or smaller."""
    return _over_images("gradient_sums", norm, N * norm.outputs, _squares(norm), sums=True)


def gradient_sums_sum(norm):
    """Arguments: workspace, moments, sums, dweight, dbias, parts."""
    return _over_channels("gradient_sums_sum", norm)


def input_grad(norm, N):
    """Arguments: x, dy, mask, weight, moments, sums, count, dx, N."""
    return _over_images("input_grad", norm, N * norm.H * norm.W, 8)


def track(C):
    """Arguments: moments, running mean, running variance."""
    return Launch("batch_norm.cu", "track", _options(Norm(C)), (ceil_div(C, 256),), (256,))


def _squares(norm):
    """Outputs that a thread has under way at a time: SQUARES in batch_norm.cu."""
    return {1: 8, 2: 2}.get(norm.S, 1)


def _options(norm):
    sizes = macros(C=norm.C, H=norm.H, W=norm.W, S=norm.S, MAX_POOL=norm.max_pool, RELU=norm.relu, TC=norm.TC)
    return (*sizes, f"-DEPSILON={EPSILON!r}f", f"-DMOMENTUM={MOMENTUM!r}")


def _over_images(name, norm, values, at_a_time, sums=False):
    """``values`` of each channel, of which a thread takes so many at a time."""
    across = ceil_div(norm.C, norm.TC)
    parts = max(1, min(ceil_div(values, 256 // norm.TC * at_a_time), MOST_BLOCKS // across))
    workspace = 2 * parts * norm.C if sums else 0
    return Launch("batch_norm.cu", name, _options(norm), (parts, across), (256,), workspace)


def _over_channels(name, norm):
    return Launch("batch_norm.cu", name, _options(norm), (1, ceil_div(norm.C, 8)), (256,))


class BatchNorm:
    """x (N, C, H, W) or (N, C) → y, normalised, after ReLU if ``relu`` and pooled. ``count`` (1,) are examples.

    ``half``: whether y is rounded to float16.

    `measure` and `measure_back` write this device's sums to ``sync``; before
    `forward` and `backward` they may be added up for all devices. ``statistics``,
    (mean, variance), are taken instead of moments unless None.
    """

    def __init__(self, x, S, max_pool, relu, input_grad, count, half=False):
        import cupy

        N, *shape = x.shape
        self.norm = norm = Norm(*shape, S=S, max_pool=max_pool, relu=relu)
        sides = [side // S for side in shape[1:]]
        self.x, self.N, self.count, self.half = x, np.int32(N), count, half
        self.y = cupy.empty((N, norm.C, *sides), np.float32)
        self.mask = cupy.empty(self.y.shape, np.uint16)
        self.dx = cupy.empty_like(x) if input_grad else None
        self.launch_moments, self.launch_sums = moments(norm, N), gradient_sums(norm, N)
        size = max(self.launch_moments.workspace, self.launch_sums.workspace)
        self.workspace = cupy.empty(size, np.float64)  # forward of partial moments, backward of partial sums
        self.sync = self.statistics = None

    def measure(self):
        """The moments of x."""
        run(self.launch_moments, self.x, self.count, self.workspace, self.N)
        parts = np.int32(self.launch_moments.grid[0])
        run(moments_sum(self.norm), self.workspace, self.count, self.sync.moments, parts, self.N)

    def forward(self, weight, bias):
        out = self.count, self.y, self.mask, self.N
        if self.statistics:
            how, statistics = normalise_fixed(self.norm, len(self.x)), self.statistics
        else:
            how, statistics = normalise(self.norm, len(self.x)), [self.sync.moments]
        run(rounding(how, out=self.half), self.x, weight, bias, *statistics, *out)

    def measure_back(self, dy, grads):
        """The sums of dz and of dz · x̂, and the gradients of weight and bias."""
        moments, sums = self.sync
        run(self.launch_sums, self.x, dy, self.mask, moments, self.count, self.workspace, self.N)
        run(gradient_sums_sum(self.norm), self.workspace, moments, sums, *grads, np.int32(self.launch_sums.grid[0]))

    def backward(self, dy, params, grads):
        """``dx``, if it is wanted."""
        if self.dx is not None:
            arrays = self.x, dy, self.mask, params[0], *self.sync, self.count, self.dx
            run(input_grad(self.norm, len(self.x)), *arrays, self.N)
