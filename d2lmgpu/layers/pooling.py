"""Average pooling: each output is the mean of a square of inputs, and squares do not overlap."""

from ..devices import array_module, on_device


@on_device
def avg_pool2d(x, size=2):
    """``x`` (N, C, H, W) → y (N, C, H // size, W // size), cache.

    Rows and columns that fill no whole square are left out: 9 × 9 becomes 4 × 4.

    Raises ValueError if an image is smaller than one square.
    """
    N, C, H, W = x.shape
    H_out, W_out = H // size, W // size
    if H_out == 0 or W_out == 0:
        raise ValueError(f"avg_pool2d: images of {(H, W)} are smaller than a square of {size} × {size}")
    corners = list(_corners(x, size, H_out, W_out))
    y = corners[0].copy()
    for corner in corners[1:]:
        y += corner
    y *= x.dtype.type(1 / size**2)
    return y, (x.shape, size)


@on_device
def avg_pool2d_grad(dy, cache):
    """``dy`` (N, C, H // size, W // size) → dx (N, C, H, W): every input of a square gets 1/size² of it.

    Inputs that were left out get zero.
    """
    xp = array_module(dy)
    (N, C, H, W), size = cache
    dx = xp.zeros((N, H, W, C), dy.dtype).transpose(0, 3, 1, 2)  # channels last in memory, as in convolution.py
    share = dy * dy.dtype.type(1 / size**2)
    for corner in _corners(dx, size, *dy.shape[2:]):
        corner[...] = share
    return dx


def _corners(x, size, H_out, W_out):
    """Views (N, C, H_out, W_out): the inputs at place (i, j) of all squares, for each i, j."""
    for i in range(size):
        for j in range(size):
            yield x[:, :, i : H_out * size : size, j : W_out * size : size]
