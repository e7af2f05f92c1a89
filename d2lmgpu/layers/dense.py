"""The dense (fully connected) layer, and the flattening that comes before it."""

from ..devices import array_module, on_device


@on_device
def dense(x, weight, bias):
    """``x`` (N, D), ``weight`` (D, O), ``bias`` (O,) → y = x @ weight + bias (N, O), cache."""
    y = x @ weight
    y += bias
    return y, (x, weight)


@on_device
def dense_grad(dy, cache, input_grad=True, weight_grad=True):
    """``dy`` (N, O) → dx (N, D), dweight (D, O), dbias (O,).

    With ``input_grad=False``, dx is None and not computed; so are dweight and dbias with ``weight_grad=False``.
    """
    x, weight = cache
    dx = dy @ weight.T if input_grad else None
    if not weight_grad:
        return dx, None, None
    return dx, x.T @ dy, array_module(dy).ones(len(dy), dy.dtype) @ dy


@on_device
def flatten(x):
    """``x`` (N, C, H, W) → y (N, C·H·W) in that order, cache."""
    N, C, H, W = x.shape
    return x.reshape(N, C * H * W), x.shape


@on_device
def flatten_grad(dy, x_shape):
    """``dy`` (N, C·H·W) → dx (N, C, H, W)."""
    return dy.reshape(x_shape)
