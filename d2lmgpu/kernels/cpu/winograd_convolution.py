"""A convolution with the ReLU and pooling that follow it, as one stage: by Winograd's method.

    tiles of x    (t·t, C·T)    copied from x, each t × t, overlapping
      ↓ Bᵀ⊗Bᵀ                   a matrix (t², t²): to values at t² points
    values        (t·t, C, T)
      ↓ kernels (t·t, O, C)     for each point a matrix product over channels
    products      (t·t, O, T)
      ↓ Aᵀ⊗Aᵀ                   a matrix (m², t²): to outputs
    z             (m·m, O, T)   sorted by place in the square for the pooling

T counts tiles and images: tile rows × tile columns × n. Backward goes the same
way up, each matrix transposed. ../winograd.py has the method and its matrices.
"""

import numpy as np

from ..winograd import ONE, transforms
from .products import RunningSum, product
from .scratch import scratch
from .squares import Squares


class WinogradConvolution:
    """x (C, H, W, n) → y (O, H' // s, W' // s, n), in tiles of m_h × m_w outputs, which s divides."""

    def __init__(self, x, kernel_shape, size, kind, relu, input_grad, tile):
        O, C, *kernel = kernel_shape
        _, H, W, n = x.shape
        dtype = x.dtype
        rows, columns = (H - kernel[0] + 1) // size, (W - kernel[1] + 1) // size  # of squares
        tiles = -(-rows * size // tile[0]), -(-columns * size // tile[1])
        (A_h, G_h, Bt_h), (A_w, G_w, Bt_w) = (transforms(m, r) for m, r in zip(tile, kernel, strict=True))
        t_h, t_w = len(A_h), len(A_w)
        points, T = t_h * t_w, tiles[0] * tiles[1] * n
        sub = tile[0] // size, tile[1] // size  # squares in a tile
        # Rows of A sorted by place in the square: output (s·u + i, s·v + j) of a tile is place (i, j) of square (u, v).
        A = np.kron(A_h, A_w).T.reshape(sub[0], size, sub[1], size, points).transpose(1, 3, 0, 2, 4)
        self.to_outputs = np.ascontiguousarray(A.reshape(-1, points), dtype)
        self.to_values = np.kron(Bt_h, Bt_w).astype(dtype)
        self.to_kernels = np.kron(G_h, G_w).astype(dtype)

        # Tiles may reach beyond the image, where they find zeros.
        self.x, self.padded, self.inside = x, x, None
        reach = max(H, tiles[0] * tile[0] + kernel[0] - 1), max(W, tiles[1] * tile[1] + kernel[1] - 1)
        if reach != (H, W):
            self.padded = np.zeros((C, *reach, n), dtype)
            self.inside = self.padded[:, :H, :W]
        step_c, step_h, step_w, step_n = self.padded.strides
        self.windows = np.lib.stride_tricks.as_strided(
            self.padded,
            (t_h, t_w, C, *tiles, n),
            (step_h, step_w, step_c, tile[0] * step_h, tile[1] * step_w, step_n),
            writeable=False,
        )
        self.copied = scratch((t_h, t_w, C, *tiles, n), dtype)
        values, products = np.empty((points, C, T), dtype), scratch((points, O, T), dtype)
        z = Squares.outputs((size * size, sub[0] * sub[1] * O * T), dtype, kind)
        z_rows = z.reshape(len(self.to_outputs), O * T)
        self.transform = product(self.to_values, self.copied.reshape(points, C * T), values.reshape(points, C * T))
        self.finish = product(self.to_outputs, products.reshape(points, O * T), z_rows)
        self.values, self.products = values, products
        self.products_at_one = products[ONE * t_w + ONE]  # where the bias is added
        self.kernels = scratch((points, O, C), dtype)
        self.biases = scratch((O, 1), dtype)
        self.squares = Squares(z, z, kind, relu)
        self.pooled = Squares.outputs(z.shape[1], dtype, kind)  # sorted as each place of z is
        self.dpooled = scratch(self.pooled.shape, dtype)
        y_tiles = np.empty((O, tiles[0] * sub[0], tiles[1] * sub[1], n), dtype)
        self.y = y_tiles[:, :rows, :columns]
        dy_tiles = np.zeros_like(y_tiles)  # zero for outputs that there are not
        self.dy = dy_tiles[:, :rows, :columns]
        # Views of equal shape: squares sorted as in z, and as they lie in the image.
        self.pooled_squares, self.dpooled_squares = (a.reshape(*sub, O, *tiles, n) for a in (self.pooled, self.dpooled))
        self.y_squares, self.dy_squares = (
            a.reshape(O, tiles[0], sub[0], tiles[1], sub[1], n).transpose(2, 4, 0, 1, 3, 5) for a in (y_tiles, dy_tiles)
        )
        self.start_back = product(self.to_outputs.T, z_rows, products.reshape(points, O * T))
        self.kernel_grads, self.bias_grads = RunningSum((points, C, O), dtype), RunningSum(O, dtype)
        self.taps = scratch((kernel[0] * kernel[1], C * O), dtype)  # of the kernels' gradients
        self.to_kernels *= self.squares.scale
        self.dx = None
        if input_grad:
            # The tiles and the values of x are no longer needed when the gradients come, and give them their memory.
            self.dvalues = self.copied.reshape(points, C, T)
            dtiles = values.reshape(self.copied.shape)
            self.transform_back = product(
                self.to_values.T, self.dvalues.reshape(points, C * T), values.reshape(points, C * T)
            )
            self.dpadded = scratch(self.padded.shape, dtype)
            self.dx = self.dpadded[:, :H, :W]
            self.overlaps = [
                (
                    self.dpadded[:, a * tile[0] : a * tile[0] + t_h, b * tile[1] : b * tile[1] + t_w],
                    dtiles[:, :, :, a, b].transpose(2, 0, 1, 3),
                )
                for a, b in np.ndindex(*tiles)
            ]

    def load(self, params):
        """Take the step's parameters, weight (O, C, kh, kw) and bias (O,), and begin new sums of gradients."""
        weight, bias = params
        flat = weight.reshape(weight.shape[0] * weight.shape[1], -1)
        np.matmul(self.to_kernels, flat.T, out=self.kernels.reshape(len(self.to_kernels), -1))
        np.multiply(bias[:, None], self.squares.scale, out=self.biases)
        self.kernel_grads.begin()
        self.bias_grads.begin()

    def forward(self):
        if self.inside is not None:
            np.copyto(self.inside, self.x)
        np.copyto(self.copied, self.windows)
        self.transform()
        np.matmul(self.kernels, self.values, out=self.products)
        np.add(self.products_at_one, self.biases, out=self.products_at_one)
        self.finish()
        self.squares.forward(self.pooled)
        np.copyto(self.y_squares, self.pooled_squares)

    def backward(self, dy):
        """``dy`` like y; afterwards ``dx`` is the input's gradient, and the parameters' are added to the sums."""
        np.copyto(self.dy, dy)
        np.copyto(self.dpooled_squares, self.dy_squares)
        self.squares.backward(self.pooled, self.dpooled)  # z now holds its own gradient
        self.start_back()  # products now holds its own gradient
        np.matmul(self.values, self.products.transpose(0, 2, 1), out=self.kernel_grads.term)
        self.kernel_grads.add()
        np.add.reduce(self.products_at_one, axis=1, out=self.bias_grads.term)
        self.bias_grads.add()
        if self.dx is not None:
            np.matmul(self.kernels.transpose(0, 2, 1), self.products, out=self.dvalues)  # where the tiles were
            self.transform_back()  # to where the values were
            self._add_tiles()

    def _add_tiles(self):
        """Add each tile's gradient back to where the tile was taken; neighbours overlap."""
        self.dpadded[...] = 0
        for target, tile in self.overlaps:
            np.add(target, tile, out=target)

    def store(self, grads):
        """Write the sums of the parameters' gradients."""
        dweight, dbias = grads
        points, C, O = self.kernel_grads.total.shape
        np.matmul(self.to_kernels.T, self.kernel_grads.total.reshape(points, C * O), out=self.taps)
        np.copyto(dweight, self.taps.reshape(*dweight.shape[2:], C, O).transpose(3, 2, 0, 1))
        np.multiply(self.bias_grads.total, self.squares.scale, out=dbias)
