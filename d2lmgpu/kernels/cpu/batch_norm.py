"""Batch normalisation as a stage: as in layers/batch_norm.py, with images last and arrays made once."""

import numpy as np

from ...layers import make_meetings, mean_and_variance
from ...layers.batch_norm import EPSILON


class BatchNorm:
    """x (C, H, W, n) or (C, n) → y like x; between `measure` and `forward` others may add to the moments."""

    def __init__(self, x, input_grad):
        self.x, self.y = x, np.empty(x.shape, x.dtype)
        self.x_hat, self.work = np.empty_like(self.y), np.empty_like(self.y)
        self.dx = np.empty_like(self.y) if input_grad else None
        self.axes = tuple(range(1, x.ndim))
        self.own_sums = np.empty((2, len(x)))
        (self.own_meeting,) = make_meetings([len(x)])

    def meet(self, meeting, statistics):
        """Where to write sums over images (None: nobody else is to see them); the (mean, variance) to take instead."""
        self.meeting, self.statistics = meeting or self.own_meeting, statistics

    def load(self, params):
        self.weight, self.bias = map(self._wide, params)

    def measure(self):
        """Write the moments of x to the meeting."""
        count = self.x.size // len(self.x)
        mean = self.x.mean(self.axes, keepdims=True)
        np.subtract(self.x, mean, out=self.work)  # about the mean: nothing large cancels
        np.square(self.work, out=self.work)
        squares = _sums(self.work)
        mean = mean.reshape(-1).astype(np.float64)
        self.meeting.moments[0] = count
        self.meeting.moments[1] = count * mean
        self.meeting.moments[2] = squares + count * mean**2

    def forward(self):
        if self.statistics is None:
            mean, variance = mean_and_variance(self.meeting.moments)
        else:
            mean, variance = self.statistics
        self.factor = self._wide((1 / (variance + EPSILON) ** 0.5).astype(self.x.dtype))
        np.subtract(self.x, self._wide(mean.astype(self.x.dtype)), out=self.x_hat)
        np.multiply(self.x_hat, self.factor, out=self.x_hat)
        np.multiply(self.x_hat, self.weight, out=self.y)
        np.add(self.y, self.bias, out=self.y)

    def measure_back(self, dy):
        """Write the sums of dy and of dy · x̂ to the meeting."""
        np.multiply(dy, self.x_hat, out=self.work)
        self.own_sums[0] = _sums(dy)
        self.own_sums[1] = _sums(self.work)
        self.meeting.sums[...] = self.own_sums

    def backward(self, dy):
        if self.dx is None:
            return
        along_one, along_x = map(self._wide, (self.meeting.sums / self.meeting.moments[0]).astype(dy.dtype))
        np.multiply(self.x_hat, along_x, out=self.work)
        np.subtract(dy, self.work, out=self.dx)
        np.subtract(self.dx, along_one, out=self.dx)
        np.multiply(self.dx, self.weight * self.factor, out=self.dx)

    def store(self, grads):
        np.copyto(grads[0], self.own_sums[1])
        np.copyto(grads[1], self.own_sums[0])

    def _wide(self, values):
        return values.reshape(-1, *(1 for _ in self.axes))


def _sums(x):
    """The sum of each channel, as float64: added up in pairs, in x's own dtype, which is faster and nearly as exact."""
    return x.reshape(len(x), -1).sum(axis=1).astype(np.float64)
