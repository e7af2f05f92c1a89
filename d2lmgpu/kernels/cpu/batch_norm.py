"""Batch normalisation with the ReLU and pooling that follow it, as one stage: images last, arrays made once.

Each number takes little arithmetic, so most of the time goes into moving
numbers. Everything is therefore done with a few channels, while they are in the
core's cache, before the next ones are taken, and only x, y and dx go through
memory: what lies between is computed again on the way back.
"""

import numpy as np

from ...layers.batch_norm import EPSILON, mean_and_variance
from .relu_pool import ReluPool, places_of
from .scratch import scratch

_BLOCK = 2**19
"""How many bytes of channels are processed at a time: several such blocks fit into a core's cache."""


class BatchNorm:
    """x (C, H, W, n) or (C, n) → y, normalised, after ReLU if ``relu`` and pooled as in relu_pool.py.

    ``moments`` (3, C) and ``sums`` (2, C) are those of these images. Between `measure` and `forward`, and between
    `measure_back` and `backward`, they are added up for all images, in ``whole`` and ``whole_sums``. If ``statistics``,
    (mean, variance), are given, these are used instead.
    """

    def __init__(self, x, size, kind, relu, input_grad):
        self.channels = C = len(x)
        self.x, self.x_places = x, places_of(x, size)
        self.y = np.empty(self.x_places[0, 0].shape, x.dtype)
        self.moments, self.sums = np.zeros((3, C)), np.zeros((2, C))
        self.whole = self.whole_sums = self.statistics = None
        count = max(1, min(C, _BLOCK // x[:1].nbytes))
        self.blocks = [slice(start, min(C, start + count)) for start in range(0, C, count)]
        z = scratch((size, size, count, *self.y.shape[1:]), x.dtype)
        parts = {block.stop - block.start for block in self.blocks}
        self.squares = {
            part: ReluPool(z[:, :, :part], z[:, :, :part], kind, relu, computed_again=True) for part in parts
        }
        self.work = scratch((count, *x.shape[1:]), x.dtype)
        self.dz = np.empty_like(x)  # the gradient of the normalised x
        self.ragged = self.x_places.size < x.size
        self.dx = self.dz if input_grad else None  # the same memory: `backward` turns dz into dx
        self.dz_places = places_of(self.dz, size)

    def load(self, params):
        self.params = [self._wide(param) for param in params]

    def measure(self):
        """Compute the moments of x."""
        count = self.x.size // len(self.x)
        for block in self.blocks:
            work = self.work[: block.stop - block.start]
            np.copyto(work, self.x[block])  # always added in the same order, however x lies in memory
            mean = (_sums(work) / count).astype(self.x.dtype)
            np.subtract(work, self._wide(mean), out=work)  # about the mean: nothing large cancels
            np.square(work, out=work)
            mean = mean.astype(np.float64)
            self.moments[0, block] = count
            self.moments[1, block] = count * mean
            self.moments[2, block] = _sums(work) + count * mean**2

    def forward(self):
        mean, variance = self.statistics or mean_and_variance(self.whole)
        self.mean = self._wide(mean.astype(self.x.dtype))
        self.factor = self._wide((1 / (variance + EPSILON) ** 0.5).astype(self.x.dtype))
        self.slope = self.factor * self.params[0]
        for block in self.blocks:
            self._normalise(block).forward(self.y[block])

    def _normalise(self, block):
        """The normalised channels, sorted by place in the square, before ReLU and pooling."""
        squares = self.squares[block.stop - block.start]
        scale = self.x.dtype.type(squares.scale)
        np.subtract(self.x_places[:, :, block], self.mean[block], out=squares.z)
        np.multiply(squares.z, self.slope[block] * scale, out=squares.z)
        np.add(squares.z, self.params[1][block] * scale, out=squares.z)
        return squares

    def measure_back(self, dy):
        """Compute ``dz``, and the sums of dz and of dz · x̂."""
        for block in self.blocks:
            squares = self._normalise(block)
            squares.backward(self.y[block], dy[block])
            if self.ragged:
                self.dz[block] = 0  # for what is in no square
            np.multiply(squares.z, self.x.dtype.type(squares.scale), out=self.dz_places[:, :, block])
            work, dz = self._centred(block), self.dz[block]
            np.multiply(work, dz, out=work)
            self.sums[0, block] = _sums(dz)
            self.sums[1, block] = _sums(work) * self.factor[block].reshape(-1)

    def backward(self, dy):
        """dx = (dz - mean of dz - x̂ · mean of dz · x̂) · weight · factor, in place of dz."""
        if self.dx is None:
            return
        along_one, along_x = map(self._wide, (self.whole_sums / self.whole[0]).astype(dy.dtype))
        for block in self.blocks:
            work, dx = self._centred(block), self.dx[block]
            np.multiply(work, along_x[block] * self.factor[block], out=work)
            np.subtract(dx, work, out=dx)
            np.subtract(dx, along_one[block], out=dx)
            np.multiply(dx, self.slope[block], out=dx)

    def store(self, grads):
        np.copyto(grads[0], self.sums[1])
        np.copyto(grads[1], self.sums[0])

    def _centred(self, block):
        return np.subtract(self.x[block], self.mean[block], out=self.work[: block.stop - block.start])

    def _wide(self, values):
        return values.reshape(-1, *(1 for _ in self.x.shape[1:]))


def _sums(x):
    """The sum of each channel, as float64: added up in pairs, in x's own dtype, which is faster and nearly as exact."""
    return x.reshape(len(x), -1).sum(axis=1).astype(np.float64)
