"""Batch normalisation on GPUs: how its kernels are launched, and the stage that a program makes of it.

The head of batch_norm.cu says what the kernels do.
"""

from typing import NamedTuple

import numpy as np

from ...layers.batch_norm import EPSILON, MOMENTUM
from .launch import Launch, ceil_div, empty, macros, rounding, run

MAX_BLOCKS = 1024
"""The most blocks of a launch: about eight per multiprocessor of a large GPU, so all are busy and partial sums few."""

_SMALL = 8
"""The fewest values in a channel of an image for which neighbouring threads take neighbouring values of a channel."""


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
        """The number of channels of a block."""
        return 1 if self.H * self.W >= _SMALL else 32


def over_images(name, norm, N):
    """The launch of a kernel that goes over all numbers of N images.

    name             arguments
    moments          x, count, workspace, N
    normalise        x, weight, bias, moments, count, y, mask, N
    normalise_fixed  x, weight, bias, mean, variance, count, y, mask, N
    gradient_sums    x, dy, mask, moments, count, workspace, N
    input_grad       x, dy, mask, weight, moments, sums, count, dx, N

    The workspace is float64 (2, parts, C). The launch says how many numbers that is; a larger workspace will do.
    """
    values = N * (norm.H // norm.S) * (norm.W // norm.S)  # of a channel
    at_a_time = {1: 8, 2: 2}.get(norm.S, 1)  # SQUARES in batch_norm.cu
    if name in ("moments", "input_grad"):
        values, at_a_time = N * norm.H * norm.W, 8
    across = ceil_div(norm.C, norm.TC)
    parts = max(1, min(ceil_div(values, 256 // norm.TC * at_a_time), MAX_BLOCKS // across))
    workspace = 2 * parts * norm.C if name in ("moments", "gradient_sums") else 0
    return Launch("batch_norm.cu", name, _options(norm), (parts, across), (256,), workspace)


def over_channels(name, norm):
    """The launch of a kernel that adds up what the blocks of another one have found; ``parts`` is the number of these.

    name               arguments
    moments_sum        workspace, count, moments, parts, N
    gradient_sums_sum  workspace, moments, sums, dweight, dbias, parts
    """
    return Launch("batch_norm.cu", name, _options(norm), (1, ceil_div(norm.C, 8)), (256,))


def track(C):
    """Arguments: moments, running mean, running variance."""
    return Launch("batch_norm.cu", "track", _options(Norm(C)), (ceil_div(C, 256),), (256,))


def _options(norm):
    sizes = macros(C=norm.C, H=norm.H, W=norm.W, S=norm.S, MAX_POOL=norm.max_pool, RELU=norm.relu, TC=norm.TC)
    return (*sizes, f"-DEPSILON={EPSILON!r}f", f"-DMOMENTUM={MOMENTUM!r}")


class BatchNorm:
    """x (N, C, H, W) or (N, C) → y, normalised, after ReLU if ``relu``, and pooled.

    ``count`` (1,): how many of the N are examples. ``half``: whether y is rounded to float16. `forward` writes the
    moments of x to ``whole``; if ``statistics``, (mean, variance), are given, it uses these.
    """

    def __init__(self, x, S, max_pool, relu, input_grad, count, half=False):
        N, *shape = x.shape
        norm = Norm(*shape, S=S, max_pool=max_pool, relu=relu)
        sides = [side // S for side in shape[1:]]
        self.x, self.N, self.count, self.channels = x, np.int32(N), count, norm.C
        self.y = empty((N, norm.C, *sides))
        self.mask = empty(self.y.shape, np.uint16)
        self.dx = empty(x.shape) if input_grad else None
        self.moments, self.gradient_sums = over_images("moments", norm, N), over_images("gradient_sums", norm, N)
        self.moments_sum = over_channels("moments_sum", norm)
        self.gradient_sums_sum = over_channels("gradient_sums_sum", norm)
        self.normalise = rounding(over_images("normalise", norm, N), out=half)
        self.normalise_fixed = rounding(over_images("normalise_fixed", norm, N), out=half)
        self.input_grad = over_images("input_grad", norm, N)
        size = max(self.moments.workspace, self.gradient_sums.workspace)
        self.workspace = empty(size, np.float64)  # forward of partial moments, backward of partial sums
        self.sums, self.whole, self.statistics = empty((2, norm.C), np.float64), None, None

    def forward(self, weight, bias):
        kernel, statistics = self.normalise_fixed, self.statistics
        if statistics is None:
            run(self.moments, self.x, self.count, self.workspace, self.N)
            parts = np.int32(self.moments.grid[0])
            run(self.moments_sum, self.workspace, self.count, self.whole, parts, self.N)
            kernel, statistics = self.normalise, [self.whole]
        run(kernel, self.x, weight, bias, *statistics, self.count, self.y, self.mask, self.N)

    def backward(self, dy, params, grads):
        """Compute the sums of dz and of dz · x̂, the gradients of weight and bias, and ``dx``, if it is wanted."""
        run(self.gradient_sums, self.x, dy, self.mask, self.whole, self.count, self.workspace, self.N)
        parts = np.int32(self.gradient_sums.grid[0])
        run(self.gradient_sums_sum, self.workspace, self.whole, self.sums, *grads, parts)
        if self.dx is not None:
            arrays = self.x, dy, self.mask, params[0], self.whole, self.sums, self.count, self.dx
            run(self.input_grad, *arrays, self.N)
