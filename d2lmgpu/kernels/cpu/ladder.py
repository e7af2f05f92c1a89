"""From the layers as they are written to the fast implementation, one step at a time.

Each version does the same: convolution, ReLU and average pooling of a micro-batch, and the way back. For LeNet's second
convolution (20 → 50 channels, kernels of 5 × 5, images of 13 × 13), that is most of a training step.
``benchmarks/what_it_brings.py`` times them one after the other; benchmarks/results/cpu_what_it_brings.json has the
times that it measured, and docs/performance.md says what came of them.

Images, weights and gradients go in and out in the layers' layout (N, C, H, W);
making a version makes its arrays, and is not timed.
"""

import numpy as np

from ...layers import avg_pool2d, avg_pool2d_grad, conv2d, conv2d_grad, relu, relu_grad
from .choose import make_convolution
from .convolution import Convolution


class AsWritten:
    """1. The layers, one after the other. Every array is newly allocated, and each layer makes a full pass over it."""

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


class ImagesLast:
    """2. Images last in memory, arrays made once: patches are copied, added back and pooled in long runs.

    All 9 × 9 outputs are computed, as before; the bias, ReLU and pooling are done in separate passes.
    """

    def __init__(self, x, weight, bias):
        O, C, kh, kw = weight.shape
        N, _, H, W = x.shape
        self.x = np.ascontiguousarray(np.moveaxis(x, 0, -1))
        self.matrix, self.bias = weight.reshape(O, -1).copy(), bias[:, None].copy()
        self.rows, self.columns = H - kh + 1, W - kw + 1
        self.patches = np.empty((C, kh, kw, self.rows, self.columns, N), x.dtype)
        self.z = np.empty((O, self.rows, self.columns, N), x.dtype)
        self.dz, self.dx, self.dpatches = (np.empty_like(a) for a in (self.z, self.x, self.patches))
        self.dmatrix = np.empty_like(self.matrix)
        self.y = np.empty((O, self.rows // 2, self.columns // 2, N), x.dtype)
        self.mask = np.empty(self.z.shape, bool)
        self.shape = weight.shape

    def step(self, dy):
        O, C, kh, kw = self.shape
        dy = np.moveaxis(dy, 0, -1)
        for i, j in np.ndindex(kh, kw):
            np.copyto(self.patches[:, i, j], self.x[:, i : i + self.rows, j : j + self.columns])
        patches, z, dz = self.patches.reshape(C * kh * kw, -1), self.z.reshape(O, -1), self.dz.reshape(O, -1)
        np.matmul(self.matrix, patches, out=z)
        np.add(z, self.bias, out=z)
        np.maximum(z, 0, out=z)
        places = self._places(self.z)
        np.add(places[0], places[1], out=self.y)
        np.add(self.y, places[2], out=self.y)
        np.add(self.y, places[3], out=self.y)
        np.multiply(self.y, self.y.dtype.type(0.25), out=self.y)

        self.dz[...] = 0
        for place in self._places(self.dz):
            np.multiply(dy, self.y.dtype.type(0.25), out=place)
        np.greater(self.z, 0, out=self.mask)
        np.multiply(self.dz, self.mask, out=self.dz)
        np.matmul(dz, patches.T, out=self.dmatrix)
        np.matmul(self.matrix.T, dz, out=self.dpatches.reshape(C * kh * kw, -1))
        self.dx[...] = 0
        for i, j in np.ndindex(kh, kw):
            self.dx[:, i : i + self.rows, j : j + self.columns] += self.dpatches[:, i, j]
        dweight, dbias = self.dmatrix.reshape(self.shape), dz.sum(axis=1)
        return np.moveaxis(self.y, -1, 0), np.moveaxis(self.dx, -1, 0), dweight, dbias

    def _places(self, z):
        rows, columns = self.rows // 2 * 2, self.columns // 2 * 2
        return [z[:, i:rows:2, j:columns:2] for i in (0, 1) for j in (0, 1)]


class _Stage:
    """A stage of a program, in the layers' layout."""

    def __init__(self, x, weight, bias):
        self.stage = self.make(np.ascontiguousarray(np.moveaxis(x, 0, -1)), weight.shape)
        self.params = weight, bias
        self.grads = np.empty_like(weight), np.empty_like(bias)

    def step(self, dy):
        self.stage.load(self.params)
        self.stage.forward()
        self.stage.backward(np.moveaxis(dy, 0, -1))
        self.stage.store(self.grads)
        return np.moveaxis(self.stage.y, -1, 0), np.moveaxis(self.stage.dx, -1, 0), *self.grads


class PooledOutputs(_Stage):
    """3. Only the 8 × 8 outputs that the pooling reads are computed, in the order in which it reads them; the bias is
    one more row of patches, the mean's 1/4 is in the weights, and thin products are done in pieces (convolution.py)."""

    def make(self, x, shape):
        return Convolution(x, shape, 2, "average", True, True)


class Winograd(_Stage):
    """4. Winograd's method: 64 multiplications per tile instead of 400, tiles that are read where they lie instead of
    patches that are copied, and rows of tiles that are finished in the cache (winograd_convolution.py). This is what a
    program does."""

    def make(self, x, shape):
        return make_convolution(x, shape, 2, "average", True, True)


VERSIONS = {
    "the layers as written": AsWritten,
    "images last, arrays made once": ImagesLast,
    "only pooled outputs, fused": PooledOutputs,
    "Winograd": Winograd,
}
