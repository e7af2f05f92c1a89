"""Winograd's tiles along one side of images: cut out and transformed by one product, and added up again by another.

Neighbouring tiles of t pixels begin m pixels apart, m < t, and so overlap. On the way forward, a product reads each
tile where it lies; no tile is copied. On the way back, what overlaps must be added up; that is also a product, with a
staircase of B's.

    values  ←  Bᵀ  x x x x · · · ·         dpixels  =  B ·   values' gradients
               Bᵀ  · · x x x x · ·                     B B
               Bᵀ  · · · · x x x x                     · B
                                                       ...
"""

import numpy as np

from .scratch import scratch

STAIRCASE = 3
"""The number of tiles whose gradients one matrix adds up: with more tiles, most of it would be zeros."""


class OverlappingTiles:
    """Bᵀ (t, t) along the last axis but one: pixels (..., (T - 1)·m + t, L) → values (..., T, t, L).

    ``dpixels``: where to write the pixels' gradient, or None; the gradient of the values is read from where the values
    were.
    """

    def __init__(self, Bt, step, pixels, values, dpixels):
        *lead, T, t, L = values.shape
        *lead_strides, row, number = pixels.strides
        strides = (*lead_strides, step * row, row, number)
        self.tiles = np.lib.stride_tricks.as_strided(pixels, values.shape, strides, writeable=False)
        self.Bt, self.values, self.staircases = Bt, values, []
        if dpixels is not None:
            count = -(-T // STAIRCASE)
            for first, last in ((i * T // count, (i + 1) * T // count) for i in range(count)):
                B = np.zeros(((last - first - 1) * step + t, (last - first) * t), Bt.dtype)
                for i in range(last - first):
                    B[i * step : i * step + t, i * t : (i + 1) * t] = Bt.T
                target = dpixels[..., first * step : first * step + len(B), :]
                # The first rows already hold what the previous staircase has added up.
                seam = target[..., : t - step if first else 0, :]
                source = values[..., first:last, :, :].reshape(*lead, (last - first) * t, L)
                self.staircases.append((B, source, target, seam, scratch(seam.shape, Bt.dtype)))

    def forward(self):
        np.matmul(self.Bt, self.tiles, out=self.values)

    def backward(self):
        for B, values, target, seam, saved in self.staircases:
            if seam.size:
                np.copyto(saved, seam)
            np.matmul(B, values, out=target)
            if seam.size:
                np.add(seam, saved, out=seam)
