"""A convolution with the ReLU and pooling that follow it, as one stage: by Winograd's method.

    pixels     (H, W, C, n)           of x, sorted so that sides come first
      ↓ Bᵀ                            along one side, then along the other: `OverlappingTiles`
    values     (T, t, T, t, C, n)     of T × T tiles at t × t points
      ↓ kernels (t, t, O, C)          for each point a matrix product over channels
    products   (t, T, t, O, n)        of a row of tiles
      ↓ Aᵀ                            along one side, then along the other
    z          (m, T, m, O, n)        m × m outputs of each tile: m rows of the convolution's output

A row of tiles is computed from its products to its pooled outputs before the next one, so that the products, which are
many, stay in the core's cache. Backward goes the same way upwards, with each matrix transposed. layers/winograd.py has
the method and its matrices.

Some outputs must not be rounded. Where all of an output's inputs and its bias are exactly 0, as on the black background
of the first step's images, the output is 0, and so is ReLU's slope there. Rounding would make the output ±1e-9, and the
slope a matter of chance.
"""

from collections import namedtuple

import numpy as np

from ...layers.winograd import ONE, transforms
from .relu_pool import ReluPool, places_of
from .scratch import RunningSum, scratch, scratch_of_zeros

STAIRCASE = 3
"""The number of tiles whose gradients one matrix adds up: with more tiles, most of it would be zeros."""

RowOfTiles = namedtuple("RowOfTiles", "values z squares y dy")


class OverlappingTiles:
    """Tiles along one side of images: cut out and transformed by one product, and added up again by another.

    Neighbouring tiles of t pixels begin m pixels apart, m < t, and so overlap. On the way forward, a product reads each
    tile where it lies; no tile is copied. On the way back, what overlaps must be added up; that is also a product, with
    a staircase of B's.

        values  ←  Bᵀ  x x x x · · · ·         dpixels  =  B ·   values' gradients
                   Bᵀ  · · x x x x · ·                     B B
                   Bᵀ  · · · · x x x x                     · B
                                                           ...

    Bᵀ (t, t) along the last axis but one: pixels (..., (T - 1)·m + t, L) → values (..., T, t, L).

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
            np.copyto(saved, seam)
            np.matmul(B, values, out=target)
            np.add(seam, saved, out=seam)


class WinogradConvolution:
    """x (C, H, W, n) → y (O, H' // s, W' // s, n), in tiles of m_h × m_w outputs, which s divides."""

    def __init__(self, x, kernel_shape, size, kind, relu, input_grad, tile):
        O, C, *kernel = kernel_shape
        _, H, W, n = x.shape
        dtype = x.dtype
        rows, columns = (H - kernel[0] + 1) // size, (W - kernel[1] + 1) // size  # of squares
        m_h, m_w = tile
        T_h, T_w = -(-rows * size // m_h), -(-columns * size // m_w)  # tiles
        (self.A_h, G_h, Bt_h), (self.A_w, G_w, Bt_w) = (
            [matrix.astype(dtype) for matrix in transforms(m, r)] for m, r in zip(tile, kernel, strict=True)
        )
        t_h, t_w = len(self.A_h), len(self.A_w)

        # Tiles may reach beyond the image, where they find zeros, and need not reach its end.
        reach_h, reach_w = (T_h - 1) * m_h + t_h, (T_w - 1) * m_w + t_w
        within = reach_h <= H and reach_w <= W
        pixels = scratch_of_zeros((reach_h, reach_w, C, n), dtype)
        between = scratch((T_h, t_h, reach_w, C * n), dtype)  # the two sides' transforms
        values = np.empty((T_h, t_h, T_w, t_w, C, n), dtype)
        self.dx = self.dpixels = None
        if input_grad:
            self.dx, self.dpixels = scratch_of_zeros(x.shape, dtype), pixels if within else scratch(pixels.shape, dtype)
        # Back, gradients take the memory of what they are gradients of (not of pixels beyond the image, which stay 0).
        dpixels, dbetween = (_matrix(self.dpixels), between) if input_grad else (None, None)
        self.along_h = OverlappingTiles(Bt_h, m_h, _matrix(pixels), between.reshape(T_h, t_h, -1), dpixels)
        self.along_w = OverlappingTiles(Bt_w, m_w, between, values.reshape(T_h, t_h, T_w, t_w, C * n), dbetween)
        h, w = min(H, reach_h), min(W, reach_w)
        self.source, self.inside = x[:, :h, :w].transpose(1, 2, 0, 3), pixels[:h, :w]

        self.products, self.half = scratch((t_h, T_w, t_w, O, n), dtype), scratch((m_h, T_w, t_w, O * n), dtype)
        z = ReluPool.outputs((T_h, m_h, T_w, m_w, O * n), dtype, kind)
        y = np.empty((T_h, m_h // size, T_w * m_w // size, O, n), dtype)
        dy = scratch(y.shape, dtype)
        images = z.reshape(T_h, m_h, T_w * m_w, O, n)
        self.rows_of_tiles = [
            RowOfTiles(values[a], z[a], ReluPool(images[a], places_of(images[a], size, 0), kind, relu), y[a], dy[a])
            for a in range(T_h)
        ]
        y, dy = (a.reshape(-1, *y.shape[2:]) for a in (y, dy))
        self.y = y[:rows, :columns].transpose(2, 0, 1, 3)
        self.dy = dy[:rows, :columns]
        self.outside = [part for part in (dy[rows:], dy[:, columns:]) if part.size]  # outputs that do not exist

        self.relu, self.kernel, self.pixels = relu, kernel, pixels
        self.scale = dtype.type(self.rows_of_tiles[0].squares.scale)
        self.to_kernels = np.kron(G_h, G_w) * self.scale
        self.kernels, self.biases = scratch((t_h, 1, t_w, O, C), dtype), scratch((O, 1), dtype)
        self.kernel_grads, self.bias_grads = RunningSum((t_h, T_w, t_w, C, O), dtype), RunningSum(O, dtype)
        self.summed_grads = scratch((t_h, t_w, C, O), dtype)
        self.taps = scratch((kernel[0] * kernel[1], C * O), dtype)  # of the kernels' gradients

    def load(self, params):
        """Take the step's parameters, weight (O, C, kh, kw) and bias (O,), and begin new sums of gradients."""
        weight, bias = params
        flat = weight.reshape(weight.shape[0] * weight.shape[1], -1)
        np.matmul(self.to_kernels, flat.T, out=self.kernels.reshape(len(self.to_kernels), -1))
        np.multiply(bias[:, None], self.scale, out=self.biases)
        self.without_bias = np.flatnonzero(bias == 0) if self.relu else np.array([], int)
        self.kernel_grads.begin()
        self.bias_grads.begin()

    def forward(self):
        np.copyto(self.inside, self.source)
        self.along_h.forward()
        self.along_w.forward()
        products, half = self.products, self.half
        at_one = products[ONE, :, ONE]  # where the bias is added
        lit = self._lit() if self.without_bias.size else None
        for a, row in enumerate(self.rows_of_tiles):
            np.matmul(self.kernels, row.values, out=products)
            np.add(at_one, self.biases, out=at_one)
            np.matmul(self.A_h.T, _matrix(products), out=_matrix(half))
            np.matmul(self.A_w.T, half, out=row.z)
            if lit is not None:
                row.squares.z[:, :, self.without_bias] *= lit[a * len(half) : (a + 1) * len(half)]
            row.squares.forward(row.y)

    def _lit(self):
        """1 for outputs some of whose inputs are not 0, and 0 for the others: (T·m, T·m, 1, n)."""
        bits = self.pixels.view(f"i{self.pixels.itemsize}")  # much faster than numbers
        bits = np.bitwise_or.reduce(bits, axis=2, keepdims=True)
        windows = np.lib.stride_tricks.sliding_window_view(bits, self.kernel, axis=(0, 1))
        return windows.any(axis=(-2, -1)).astype(self.pixels.dtype)

    def backward(self, dy):
        """``dy`` is like y; afterwards ``dx`` is the input's gradient, and the parameters' are added to the sums."""
        np.copyto(self.dy, dy.transpose(1, 2, 0, 3))
        for outside in self.outside:
            outside[...] = 0
        products, half = self.products, self.half
        kernels, products_T = self.kernels.swapaxes(3, 4), products.swapaxes(3, 4)
        for row in self.rows_of_tiles:
            row.squares.backward(row.y, row.dy)  # z now holds its own gradient
            np.matmul(self.A_w, row.z, out=half)
            np.matmul(self.A_h, _matrix(half), out=_matrix(products))
            self.kernel_grads.add(np.matmul, row.values, products_T)
            self.bias_grads.add(np.add.reduce, products[ONE, :, ONE], (0, 2))
            if self.dx is not None:
                np.matmul(kernels, products, out=row.values)
        if self.dx is not None:
            self.along_w.backward()
            self.along_h.backward()
            h, w = self.inside.shape[:2]
            np.copyto(self.dx[:, :h, :w], self.dpixels[:h, :w].transpose(2, 0, 1, 3))

    def store(self, grads):
        """Write the sums of the parameters' gradients."""
        dweight, dbias = grads
        np.add.reduce(self.kernel_grads.total, axis=1, out=self.summed_grads)
        t_h, t_w, C, O = self.summed_grads.shape
        np.matmul(self.to_kernels.T, self.summed_grads.reshape(t_h * t_w, C * O), out=self.taps)
        np.copyto(dweight, self.taps.reshape(*dweight.shape[2:], C, O).transpose(3, 2, 0, 1))
        np.multiply(self.bias_grads.total, self.scale, out=dbias)


def _matrix(array):
    """The view with a single axis after the first."""
    return array.reshape(len(array), -1)
