"""The dense (fully connected) layer, and flattening, which comes before it."""

from ..devices import array_module, on_device


@on_device
def dense(x, weight, bias):
    """``x`` (N, D), ``weight`` (D, O), ``bias`` (O,) → y = x @ weight + bias (N, O), cache.

    Raises ValueError if the shapes do not fit together.
    """
    if x.ndim != 2 or weight.ndim != 2 or x.shape[1] != weight.shape[0] or bias.shape != weight.shape[1:]:
        raise ValueError(
            f"dense: x {x.shape}, weight {weight.shape} and bias {bias.shape} do not fit; "
            "they should be (N, D), (D, O) and (O,)"
        )
    y = x @ weight
    y += bias
    return y, (x, weight)


@on_device
def dense_grad(dy, cache, input_grad=True):
    """``dy`` (N, O) → dx (N, D), dweight (D, O), dbias (O,); dx is None with ``input_grad=False``."""
    x, weight = cache
    ones = array_module(dy).ones(len(dy), dy.dtype)
    dx = dy @ weight.T if input_grad else None
    return dx, x.T @ dy, ones @ dy


@on_device
def flatten(x):
    """``x`` (N, C, H, W) → y (N, C·H·W) in that order, cache."""
    N, C, H, W = x.shape
    return x.reshape(N, C * H * W), x.shape


@on_device
def flatten_grad(dy, x_shape):
    """``dy`` (N, C·H·W) → dx (N, C, H, W)."""
    return dy.reshape(x_shape)
