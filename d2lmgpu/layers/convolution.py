"""Convolution as one matrix product, and its gradients as two more.

Shapes: N examples, C input channels, O output channels, kernels of kh × kw. "Convolution" means cross-correlation, as
usual in deep learning: kernels are not flipped. Each side of the images is padded by ``padding`` zeros, and kernels are
applied at every ``stride``-th position. So a height of H becomes H' = (H + 2·padding - kh) // stride + 1.

Each output is the product of one *patch* of the input (C·kh·kw numbers) with one kernel. If all patches are written as
the rows of a matrix, the whole layer becomes a matrix product, which BLAS computes at nearly the machine's full speed
(im2col: Chellapilla et al. 2006; the layer: LeCun et al. 1998).

The shapes of arrays are N, C, H, W. In memory, the channels come last: the kw·C numbers in a row of a patch are then
adjacent, and are copied in one go.
"""

from ..devices import array_module, on_device


@on_device
def conv2d(x, weight, bias, stride=1, padding=0):
    """``x`` (N, C, H, W), ``weight`` (O, C, kh, kw), ``bias`` (O,) → y (N, O, H', W'), cache."""
    O, C, kh, kw = weight.shape
    if padding:
        x = array_module(x).pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    patches = im2col(x, kh, kw, stride)  # (N, H', W', kh·kw·C)
    N, H_out, W_out, size = patches.shape
    matrix = weight.transpose(2, 3, 1, 0).reshape(size, O)  # one kernel per column, in the patches' order
    patches = patches.reshape(N * H_out * W_out, size)
    y = patches @ matrix
    y += bias
    y = y.reshape(N, H_out, W_out, O).transpose(0, 3, 1, 2)
    return y, (patches, matrix, x.shape, weight.shape, stride, padding)


@on_device
def conv2d_grad(dy, cache, input_grad=True, weight_grad=True):
    """``dy`` (N, O, H', W') → dx, dweight, dbias, each in the shape of its argument.

    From y = patches @ matrix + bias it follows that dmatrix = patchesᵀ @ dy, that dpatches = dy @ matrixᵀ, and that
    dbias is the sum of dy's rows. A network's first layer does not need dx: with ``input_grad=False`` it is None, and
    not computed. With ``weight_grad=False``, dweight and dbias are None: a plan may compute them later.
    """
    patches, matrix, x_shape, (O, C, kh, kw), stride, padding = cache
    xp = array_module(dy)
    N, H, W = x_shape[0], *x_shape[2:]  # with the padding
    H_out, W_out = (H - kh) // stride + 1, (W - kw) // stride + 1
    rows = dy.transpose(0, 2, 3, 1).reshape(N * H_out * W_out, O)
    dweight = dbias = None
    if weight_grad:
        dbias = xp.ones(len(rows), dy.dtype) @ rows  # a product sums faster and more exactly than .sum(0)
        dmatrix = patches.T @ rows
        dweight = xp.ascontiguousarray(dmatrix.reshape(kh, kw, C, O).transpose(3, 2, 0, 1))
    if not input_grad:
        return None, dweight, dbias
    dpatches = (rows @ matrix.T).reshape(N, H_out, W_out, kh, kw, C)
    dx = col2im(dpatches, x_shape, stride)
    return dx[:, :, padding : H - padding, padding : W - padding], dweight, dbias


def im2col(x, kh, kw, stride=1):
    """All patches of ``x`` (N, C, H, W) as rows: (N, H', W', kh·kw·C).

    First a view is made, without copying, in which the next patch begins ``stride`` pixels later in memory. Then
    `reshape` copies the patches.
    """
    xp = array_module(x)
    x = xp.ascontiguousarray(x.transpose(0, 2, 3, 1))
    N, H, W, C = x.shape
    step_n, step_h, step_w, step_c = x.strides
    H_out, W_out = (H - kh) // stride + 1, (W - kw) // stride + 1
    shape, strides = (N, H_out, W_out, kh, kw, C), (step_n, stride * step_h, stride * step_w, step_h, step_w, step_c)
    windows = xp.lib.stride_tricks.as_strided(x, shape=shape, strides=strides)
    return windows.reshape(N, H_out, W_out, kh * kw * C)


def col2im(dpatches, x_shape, stride=1):
    """Add each patch's gradient (N, H', W', kh, kw, C) to the place where the patch came from: (N, C, H, W).

    This loops over the kernel's rows and the output's columns. Each time, it adds one row of the patches for all images
    and heights: kw·C adjacent numbers at once.
    """
    xp = array_module(dpatches)
    N, C, H, W = x_shape
    _, H_out, W_out, kh, kw, _ = dpatches.shape
    dx = xp.zeros((N, H, W, C), dpatches.dtype)
    for i in range(kh):
        for j in range(W_out):
            dx[:, i : i + stride * H_out : stride, stride * j : stride * j + kw] += dpatches[:, :, j, i]
    return dx.transpose(0, 3, 1, 2)
