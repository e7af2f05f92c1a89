"""What follows a convolution: ReLU and pooling, in place on the convolution's output.

The output comes *sorted by place in the square*: with 2 × 2 pooling, the top left outputs of all squares come first,
then the top right ones, and so on. Pooling is then a sum (or maximum) of s² long runs of memory.

ReLU is the maximum with an array of zeros: NumPy 2.4 takes five times as long with the number 0.

The mean is taken as a sum: its 1/s² is multiplied into the weights, which are
few, instead of into the outputs. ReLU allows that, since max(c·z, 0) = c·max(z, 0)
for positive c.

With ReLU, all that backward needs to know of the outputs is which are positive. A pass that would have to keep the
outputs for long (passes.py) keeps only this, one byte for each; otherwise it is just as fast to read this off the
outputs.
"""

import numpy as np

from .scratch import is_shared, scratch, scratch_of_zeros


class ReluPool:
    """ReLU (or none) and pooling over squares of ``size``: ``kind`` "average", "max", or None with size 1.

    ``z`` is the convolution's output in any shape, ``places`` a view of it whose first two axes are the places of a
    square: places[i, j] are the outputs at place (i, j) of all squares. ``computed_again``: whether z is computed
    again, so that before `backward` it is as it was before `forward`.
    """

    @staticmethod
    def outputs(shape, dtype, kind):
        """An array for ``z``: scratch, unless backward needs it."""
        return (np.empty if kind == "max" else scratch)(shape, dtype)

    def __init__(self, z, places, kind, relu, computed_again=False):
        self.z, self.places, self.kind, self.relu = z, places, kind, relu
        self.zeros = scratch_of_zeros(z[0].shape, z.dtype) if relu and kind != "max" else None
        keeps = relu and kind != "max" and is_shared() and not computed_again
        self.positive = np.empty(places.shape, bool) if keeps else None
        self.found = scratch(places[0, 0].shape, bool) if kind == "max" else None
        self.left = scratch(places[0, 0].shape, bool) if kind == "max" else None

    @property
    def scale(self):
        """The factor of weights and bias that turns a sum into a mean."""
        return 1 / len(self.places) ** 2 if self.kind == "average" else 1.0

    def forward(self, y):
        """``y``, of a place's shape, becomes the pooled output; ``z`` keeps what backward needs."""
        if self.kind == "max":
            np.maximum.reduce(self.places, axis=(0, 1), out=y)
            if self.relu:
                np.maximum(y, 0, out=y)  # the same as ReLU first, on a quarter of the numbers
            return
        if self.relu:
            np.maximum(self.z, self.zeros, out=self.z)
            if self.positive is not None:
                np.greater(self.places, 0, out=self.positive)
        np.add.reduce(self.places, axis=(0, 1), out=y)

    def backward(self, y, dy):
        """``z`` becomes its own gradient (without the mean's 1/s², as in `forward`)."""
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
        """The whole gradient goes to the first of the largest outputs, with ReLU only if that is positive."""
        if self.relu:
            np.greater(y, 0, out=self.left)  # squares whose gradient is still to be given
        else:
            self.left[...] = True
        for i, j in np.ndindex(self.places.shape[:2]):
            place = self.places[i, j]
            np.equal(place, y, out=self.found)
            np.logical_and(self.found, self.left, out=self.found)
            np.logical_xor(self.left, self.found, out=self.left)
            np.multiply(dy, self.found, out=place)


def places_of(x, size, axis=1):
    """The view of ``x`` whose first two axes are the places of a square. What fills no whole square is left out.

    The sides of ``x`` are ``axis`` and the next one; by default x is (C, H, W, n). With size 1, it may have any shape.
    """
    if size == 1:
        return x[None, None]
    H, W = (side // size for side in x.shape[axis : axis + 2])
    whole = x[(*axis * [slice(None)], slice(H * size), slice(W * size))]
    cut = whole.reshape(*x.shape[:axis], H, size, W, size, *x.shape[axis + 2 :])
    return np.moveaxis(cut, (axis + 1, axis + 3), (0, 1))
