"""Matrix products in pieces: BLAS is slow at long thin ones, and fast at many small ones.

A BLAS product first copies its operands into an order of its own, which pays off when each number is then used a
hundred times. In LeNet's first convolution, each is used 10 or 20 times. For products of up to a million
multiplications, OpenBLAS leaves that copying out, so thin products are given to it in pieces: 87 GFLOP/s instead of 55
for (20 × 10) @ (10 × 21632) on the machine of benchmarks/results.
"""

import functools

import numpy as np

from .scratch import scratch

THIN = 32
"""The number of rows, or the inner length, up to which a product is thin."""

PIECE = 500_000
"""The most multiplications in a piece."""

LEAST = 64
"""The fewest columns in a piece: shorter pieces are slow again."""


def count_pieces(rows, inner, columns):
    """The number of equal pieces of columns in which to do (rows × inner) @ (inner × columns)."""
    if min(rows, inner) <= THIN:
        for count in range(max(1, -(-rows * inner * columns // PIECE)), columns // LEAST + 1):
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


class RunningSum:
    """A sum over micro-batches, the ``total``. The first term is written there directly."""

    def __init__(self, shape, dtype):
        self.total = scratch(shape, dtype)
        self._other = scratch(shape, dtype)
        self.begin()

    def begin(self):
        """Forget the sum."""
        self._is_first = True

    def add(self, function, *arguments):
        """Add the result of ``function(*arguments, out=...)``."""
        function(*arguments, out=self.total if self._is_first else self._other)
        if not self._is_first:
            np.add(self.total, self._other, out=self.total)
        self._is_first = False
