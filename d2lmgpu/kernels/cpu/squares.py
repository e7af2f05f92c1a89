"""What follows a convolution: ReLU and pooling, in place on the convolution's output.

The output comes *sorted by place in the square*: with 2 × 2 pooling first the top
left outputs of all squares, then the top right ones, and so on. Pooling is then
a sum (or maximum) of s² long runs of memory.

The mean is taken as a sum: its 1/s² is multiplied into the weights, which are
few, instead of into the outputs. ReLU allows that, since max(c·z, 0) = c·max(z, 0)
for positive c.

Of the outputs backward needs with ReLU only where they are positive. A pass that keeps them for long (passes.py) keeps
that, a byte each; otherwise it is as fast to find it in the outputs.
"""

import numpy as np

from .scratch import is_shared, scratch


class Squares:
    """ReLU (or none) and pooling over squares of ``size``: ``kind`` "average", "max", or None with size 1.

    ``z`` is the convolution's output in any shape, ``places`` a view of it whose
    first axis are the size² places of a square: places[q] are the outputs at place q of all squares.
    ``computed_again``: before `backward` z is as it was before `forward`.
    """

    @staticmethod
    def outputs(shape, dtype, kind):
        """An array for ``z``: scratch, unless backward needs it."""
        return (np.empty if kind == "max" else scratch)(shape, dtype)

    def __init__(self, z, places, kind, relu, computed_again=False):
        self.z, self.places, self.kind, self.relu = z, places, kind, relu
        keeps = relu and kind != "max" and is_shared() and not computed_again
        self.positive = np.empty_like(places, bool) if keeps else None
        self.found = scratch(places[0].shape, bool) if kind == "max" else None
        self.left = scratch(places[0].shape, bool) if kind == "max" else None

    @property
    def scale(self):
        """The factor of weights and bias that makes a sum a mean."""
        return 1 / len(self.places) if self.kind == "average" else 1.0

    def forward(self, y):
        """``y``, of a place's shape, becomes the pooled output; ``z`` keeps what backward needs."""
        if self.kind == "max":
            np.maximum.reduce(self.places, axis=0, out=y)
            if self.relu:
                np.maximum(y, 0, out=y)  # the same as ReLU first, on a quarter of the numbers
            return
        if self.relu:
            np.maximum(self.z, 0, out=self.z)
            if self.positive is not None:
                np.greater(self.places, 0, out=self.positive)
        np.add.reduce(self.places, axis=0, out=y)

    def backward(self, y, dy):
        """``z`` becomes its own gradient (the mean's 1/s² left out, as in forward)."""
        if self.kind == "max":
            self._backward_max(y, dy)
        elif self.positive is not None:
            np.multiply(self.positive, dy, out=self.places)
        elif self.relu:
            np.greater(self.z, 0, out=self.z)  # 0 or 1, by which the gradient is multiplied
            np.multiply(self.places, dy, out=self.places)
        else:
            np.copyto(self.places, dy)

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
