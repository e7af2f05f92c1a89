"""A frame of zeros around images, for convolutions with padding."""

import numpy as np

from . import launch
from .run import run


class Frame:
    """x (N, C, H, W) → framed (N, C, H + 2P, W + 2P), with P zeros around each image."""

    def __init__(self, x, padding):
        import cupy

        N, C, H, W = x.shape
        self.x, self.planes = x, np.int32(N * C)
        self.framed = cupy.zeros((N, C, H + 2 * padding, W + 2 * padding), np.float32)
        self.launch = launch.frame(H, W, padding, N * C)
        self.launch_grad = launch.frame_grad(H, W, padding, N * C)

    def make_dx(self):
        """A new array, to which `backward` writes the gradient of x."""
        import cupy

        self.dx = cupy.empty_like(self.x)
        return self.dx

    def forward(self):
        run(self.launch, self.x, self.framed, self.planes)

    def backward(self, dframed):
        run(self.launch_grad, dframed, self.dx, self.planes)
