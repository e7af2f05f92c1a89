"""The dense (fully connected) layer, and flattening, which comes before it."""

import math

from ..arguments import check_array, check_cache, check_flag, check_shape
from ..devices import array_module, on_device


@on_device
def dense(x, weight, bias):
    """``x`` (N, D), ``weight`` (D, O), ``bias`` (O,) → y = x @ weight + bias (N, O), cache.

    Raises ValueError if the shapes do not fit together.
    """
    for name, array in (("x", x), ("weight", weight), ("bias", bias)):
        check_array(f"dense: {name}", array)
    if x.ndim != 2 or weight.ndim != 2 or x.shape[1] != weight.shape[0] or bias.shape != weight.shape[1:]:
        raise ValueError(
            f"dense: x {x.shape}, weight {weight.shape} and bias {bias.shape} do not fit; "
            "they should be (N, D), (D, O) and (O,)"
        )
    y = x @ weight
    y += bias
    return y, (x, weight)


@on_device
def dense_grad(dy, cache, input_grad=True, weight_grad=True):
    """``dy`` (N, O) → dx (N, D), dweight (D, O), dbias (O,).

    With ``input_grad=False`` dx is not computed, and None; with ``weight_grad=False`` so are dweight and dbias.

    Raises ValueError if dy and cache do not fit together.
    """
    check_cache("dense", cache, 2)
    x, weight = cache
    check_shape("dense_grad: dy", dy, (len(x), weight.shape[1]))
    check_flag("input_grad", input_grad)
    check_flag("weight_grad", weight_grad)
    dx = dy @ weight.T if input_grad else None
    if not weight_grad:
        return dx, None, None
    return dx, x.T @ dy, array_module(dy).ones(len(dy), dy.dtype) @ dy


@on_device
def flatten(x):
    """``x`` (N, C, H, W) → y (N, C·H·W) in that order, cache. Raises ValueError for another number of axes."""
    check_array("flatten: x", x, 4, "(N, C, H, W)")
    N, C, H, W = x.shape
    return x.reshape(N, C * H * W), x.shape


@on_device
def flatten_grad(dy, x_shape):
    """``dy`` (N, C·H·W) → dx (N, C, H, W). Raises ValueError unless that has as many elements."""
    check_cache("flatten", x_shape, 4)
    check_shape("flatten_grad: dy", dy, (x_shape[0], math.prod(x_shape[1:])))
    return dy.reshape(x_shape)
