"""Solutions of notebook 2's exercises."""

import numpy as np


def leaky_relu(x, slope):
    """The derivative is what backward has to keep."""
    derivative = np.where(x > 0, 1, slope).astype(x.dtype)
    return x * derivative, lambda dy: dy * derivative


def max_pool_grad(dy, x):
    """Square by square, as it is said."""
    dx = np.zeros_like(x)
    for n, c, i, j in np.ndindex(dy.shape):
        square = x[n, c, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2]
        row, column = np.unravel_index(square.argmax(), (2, 2))  # the first of the largest
        dx[n, c, 2 * i + row, 2 * j + column] = dy[n, c, i, j]
    return dx
