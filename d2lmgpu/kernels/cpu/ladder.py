"""From the layers as they are written to the fast body, one step at a time.

Each version does the same: convolution, ReLU and average pooling of a micro-batch,
and back; for LeNet's second convolution (20 → 50 channels, kernels of 5 × 5,
images of 13 × 13) that is most of a training step. ``benchmarks/what_it_brings.py``
times them one after the other; benchmarks/results/cpu_what_it_brings.json has what it
measured, and docs/performance.md what came of it.

Images, weights and gradients go in and out in the layers' layout (N, C, H, W);
making a version makes its arrays, and is not timed.
"""

import numpy as np

from ...layers import avg_pool2d, avg_pool2d_grad, conv2d, conv2d_grad, relu, relu_grad
from .choose import make_convolution
from .convolution import Convolution
from .stages import Pooling


class AsWritten:
    """1. The layers, one after the other. Every array is made anew, and each layer goes over all of it."""

    def __init__(self, x, weight, bias):
        self.x, self.weight, self.bias = x, weight, bias

    def step(self, dy):
        """One forward and backward pass; returns y, dx, dweight, dbias."""
        z, conv_cache = conv2d(self.x, self.weight, self.bias)
        a, relu_cache = relu(z)
        y, pool_cache = avg_pool2d(a)
        da = avg_pool2d_grad(dy, pool_cache)
        dx, dweight, dbias = conv2d_grad(relu_grad(da, relu_cache), conv_cache)
        return y, dx, dweight, dbias


class _Stages:
    """Stages of a program, in the layers' layout."""

    def __init__(self, x, weight, bias):
        self.stages = self.make(np.ascontiguousarray(np.moveaxis(x, 0, -1)), weight.shape)
        self.params = weight, bias
        self.grads = np.empty_like(weight), np.empty_like(bias)

    def step(self, dy):
        first, last = self.stages[0], self.stages[-1]
        first.load(self.params)
        for stage in self.stages:
            stage.forward()
        dy = np.moveaxis(dy, 0, -1)
        for stage in reversed(self.stages):
            stage.backward(dy)
            dy = stage.dx
        first.store(self.grads)
        return np.moveaxis(last.y, -1, 0), np.moveaxis(dy, -1, 0), *self.grads


class ImagesLast(_Stages):
    """2. Images last in memory, arrays made once: patches are copied, added back and pooled in long runs.

    All 9 × 9 outputs, as before, and ReLU and pooling in passes of their own. The bias is one more patch row, and thin
    products are done in pieces (convolution.py), as in the next version.
    """

    def make(self, x, shape):
        convolution = Convolution(x, shape, 1, None, False, True)
        return [convolution, Pooling(convolution.y, 2, "average", True)]


class PooledOutputs(_Stages):
    """3. Only the 8 × 8 outputs that the pooling reads, in the order in which it reads them, pooled in place; the
    mean's 1/4 in the weights."""

    def make(self, x, shape):
        return [Convolution(x, shape, 2, "average", True, True)]


class Winograd(_Stages):
    """4. Winograd's method: 64 multiplications a tile instead of 400, tiles read where they lie instead of patches
    that are copied, and a row of tiles finished in the cache (winograd_convolution.py). What a program does."""

    def make(self, x, shape):
        return [make_convolution(x, shape, 2, "average", True, True)]


VERSIONS = {
    "the layers as written": AsWritten,
    "images last, arrays made once": ImagesLast,
    "only pooled outputs, fused": PooledOutputs,
    "Winograd": Winograd,
}
