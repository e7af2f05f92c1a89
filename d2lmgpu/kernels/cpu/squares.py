"""What follows a convolution: ReLU and pooling, in place on the convolution's output.

The output comes *sorted by place in the square*: with 2 × 2 pooling first the top
left outputs of all squares, then the top right ones, and so on. Pooling is then
a sum (or maximum) of s² long runs of memory.

ReLU is the maximum with an array of zeros: NumPy 2.4 takes five times as long with the number 0.

The mean is taken as a sum: its 1/s² is multiplied into the weights, which are
few, instead of into the outputs. ReLU allows that, since max(c·z, 0) = c·max(z, 0)
for positive c.

Of the outputs backward needs with ReLU only where they are positive. A pass that keeps them for long (passes.py) keeps
that, a byte each; otherwise it is as fast to find it in the outputs.
"""

import numpy as np

from .scratch import is_shared, scratch, scratch_of_zeros


class Squares:
    """ReLU (or none) and pooling over squares of ``size``: ``kind`` "average", "max", or None with size 1.

    ``z`` is the convolution's output in any shape, ``places`` are views of it, one for each of the size² places of a
    square: places[q] are the outputs at place q of all squares.
    ``computed_again``: before `backward` z is as it was before `forward`.
    """

    @staticmethod
    def outputs(shape, dtype, kind):
        """An array for ``z``: scratch, unless backward needs it."""
        return (np.empty if kind == "max" else scratch)(shape, dtype)

    def __init__(self, z, places, kind, relu, computed_again=False):
        self.z, self.places, self.kind, self.relu = z, places, kind, relu
        self.zeros = scratch_of_zeros(z[0].shape, z.dtype) if relu and kind != "max" else None
        keeps = relu and kind != "max" and is_shared() and not computed_again
        self.positive = [np.empty_like(place, bool) for place in places] if keeps else None
        self.found = scratch(places[0].shape, bool) if kind == "max" else None
        self.left = scratch(places[0].shape, bool) if kind == "max" else None

    @property
    def scale(self):
        """The factor of weights and bias that makes a sum a mean."""
        return 1 / len(self.places) if self.kind == "average" else 1.0

    def forward(self, y):
        """``y``, of a place's shape, becomes the pooled output; ``z`` keeps what backward needs."""
        if self.kind == "max":
            self._combine(np.maximum, y)
            if self.relu:
                np.maximum(y, 0, out=y)  # the same as ReLU first, on a quarter of the numbers
            return
        if self.relu:
            np.maximum(self.z, self.zeros, out=self.z)
            for positive, place in zip(self.positive or (), self.places, strict=False):
                np.greater(place, 0, out=positive)
        self._combine(np.add, y)

    def _combine(self, function, y):
        """``y`` becomes the sum, or what else ``function`` makes of two, of all places."""
        first, *others = self.places
        if not others:
            np.copyto(y, first)
        for place in others:
            function(first, place, out=y)
            first = y

    def backward(self, y, dy):
        """``z`` becomes its own gradient (the mean's 1/s² left out, as in forward)."""
        if self.kind == "max":
            self._backward_max(y, dy)
            return
        slopes = self.positive or self.places
        if self.relu and self.positive is None:
            np.greater(self.z, 0, out=self.z)  # 0 or 1, by which the gradient is multiplied
        for slope, place in zip(slopes, self.places, strict=True):
            if self.relu:
                np.multiply(slope, dy, out=place)
            else:
                np.copyto(place, dy)

    def _backward_max(self, y, dy):
        """The whole gradient goes to the first of the largest, and with ReLU only where that is positive."""
        if self.relu:
            np.greater(y, 0, out=self.left)  # squares whose gradient is still to be given
        else:
            self.left[...] = True
        for place in self.places:
            np.equal(place, y, out=self.found)
            np.logical_and(self.found, self.left, out=self.found)
            np.logical_xor(self.left, self.found, out=self.left)
            np.multiply(dy, self.found, out=place)


def pooled_shape(x, size):
    """The shape of ``x`` (C, H, W, n) or (D, n), a number for each square; with size 1 that of any ``x``."""
    first, *sides, n = x.shape
    return first, *(side // size for side in sides), n


def places_of(x, size):
    """Views of ``x`` (C, H, W, n): the inputs at place (i, j) of all squares. With size 1 all of any ``x``."""
    if size == 1:
        return [x]
    H, W = x.shape[1] // size * size, x.shape[2] // size * size
    return [x[:, i:H:size, j:W:size] for i in range(size) for j in range(size)]
