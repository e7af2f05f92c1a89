"""A convolution with the ReLU and pooling that follow it, as one stage: by one matrix product.

All patches are copied out and multiplied with the kernels (im2col, which layers/convolution.py explains):

- images are last in memory: the patches' pixels are copied in runs of n images;
- only the patches that the pooling reads are copied, in the order in which it
  reads them: sorted by place in the square (see relu_pool.py);
- a last row of ones multiplies the bias, which therefore needs no extra pass over the output or the gradient;
- every array is made once and used for every micro-batch.

**Products in pieces**: a BLAS product first copies its operands into an order of its own, which pays off when each
number is then used a hundred times. In LeNet's first convolution, each is used 10 or 20 times. For products of up to a
million multiplications, OpenBLAS leaves that copying out, so thin products are given to it in pieces: 87 GFLOP/s
instead of 55 for (20 × 10) @ (10 × 21632) on the machine of benchmarks/results.
"""

import functools

import numpy as np

from .relu_pool import ReluPool
from .scratch import RunningSum, scratch

THIN = 32
"""The number of rows, or the inner length, up to which a product is thin."""

_PIECE = 500_000
"""The most multiplications in a piece."""

MIN_COLUMNS = 64
"""The fewest columns in a piece: shorter pieces are slow again."""


def count_pieces(rows, inner, columns):
    """The number of equal pieces of columns in which to do (rows × inner) @ (inner × columns)."""
    if min(rows, inner) <= THIN:
        for count in range(max(1, -(-rows * inner * columns // _PIECE)), columns // MIN_COLUMNS + 1):
            if columns % count == 0:
                return count
    return 1


def split(matrix, count):
    """The view (count, rows, columns / count) of a matrix's columns in equal pieces."""
    rows, columns = matrix.shape
    return matrix.reshape(rows, count, columns // count).transpose(1, 0, 2)


def product(a, b, out):
    """A function that does ``out[...] = a @ b`` for just these arrays: a (M, K), b (K, L), out (M, L); L is long."""
    count = count_pieces(*a.shape, b.shape[1])
    if count > 1:
        b, out = split(b, count), split(out, count)
    return functools.partial(np.matmul, a, b, out=out)


def long_product(a, b):
    """A function that does ``out[...] = a @ b.T`` for any out (M, K) but just these a (M, L) and b (K, L); L is long.

    Pieces of L give partial sums, which are then added up.
    """
    count = count_pieces(len(a), len(b), a.shape[1])
    a, b = split(a, count), split(b, count).transpose(0, 2, 1)
    parts = scratch((count, a.shape[1], b.shape[2]), a.dtype)

    def multiply(out):
        np.matmul(a, b, out=parts)
        np.add.reduce(parts, axis=0, out=out)

    return multiply


class Convolution:
    """x (C, H, W, n) → y (O, H' // s, W' // s, n), for kernels (O, C, kh, kw) and squares of side s."""

    def __init__(self, x, kernel_shape, size, kind, relu, input_grad, stride=1):
        O, C, kh, kw = kernel_shape
        _, H, W, n = x.shape
        dtype = x.dtype
        rows, columns = ((H - kh) // stride + 1) // size, ((W - kw) // stride + 1) // size  # of squares
        far = stride * size  # from a square to the next, in pixels
        taps = C * kh * kw

        def windows(x):  # of the same memory, without copying
            step_c, step_h, step_w, step_n = x.strides
            steps = (step_h, step_w, stride * step_h, stride * step_w, far * step_h, far * step_w)
            shape = (C, kh, kw, size, size, rows, columns, n)
            return np.lib.stride_tricks.as_strided(x, shape, (step_c, *steps, step_n))

        self.windows = windows(x)
        self.patches = np.empty((taps + 1, size * size * rows * columns * n), dtype)
        self.patches[-1] = 1
        self.weights = scratch((O, taps + 1), dtype)
        self.grads = RunningSum(self.weights.shape, dtype)
        z = ReluPool.outputs((O, self.patches.shape[1]), dtype, kind)
        by_place = z.reshape(O, size, size, rows, columns, n)
        self.squares = ReluPool(z, by_place.transpose(1, 2, 0, 3, 4, 5), kind, relu)
        self.multiply = product(self.weights, self.patches, z)
        self.sum_grads = long_product(z, self.patches)
        self.y = np.empty((O, rows, columns, n), dtype)
        self.copied = self.patches[:-1].reshape(self.windows.shape)
        self.dx = None
        if input_grad:
            self.dx = scratch(x.shape, dtype)
            self.dpatches = scratch((taps, z.shape[1]), dtype)
            pairs = windows(self.dx), self.dpatches.reshape(self.windows.shape)
            places = [(slice(None), *place) for place in np.ndindex(kh, kw, size, size)]
            self.overlaps = [[array[place] for array in pairs] for place in places]
            self.multiply_back = product(self.weights[:, :-1].T, z, self.dpatches)

    def load(self, params):
        """Take the step's parameters, weight (O, C, kh, kw) and bias (O,), and set the sums of gradients to zero."""
        weight, bias = params
        np.multiply(weight.reshape(len(weight), -1), self.squares.scale, out=self.weights[:, :-1])
        np.multiply(bias, self.squares.scale, out=self.weights[:, -1])
        self.grads.begin()

    def forward(self):
        np.copyto(self.copied, self.windows)
        self.multiply()
        self.squares.forward(self.y)

    def backward(self, dy):
        """``dy`` is like y; afterwards ``dx`` is the input's gradient, and the parameters' are added to the sums."""
        self.squares.backward(self.y, dy)  # z now holds its own gradient
        self.grads.add(self.sum_grads)
        if self.dx is not None:
            self.multiply_back()
            self.dx[...] = 0
            for target, patches in self.overlaps:  # back to where they came from, one place and one tap at a time
                np.add(target, patches, out=target)

    def store(self, grads):
        """Write the sums of the parameters' gradients."""
        dweight, dbias = grads
        np.multiply(self.grads.total[:, :-1].reshape(dweight.shape), self.squares.scale, out=dweight)
        np.multiply(self.grads.total[:, -1], self.squares.scale, out=dbias)
