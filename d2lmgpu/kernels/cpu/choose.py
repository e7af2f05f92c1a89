"""Choose which stage does which layers of a network."""

from ...layers import batch_norm, conv2d, dense, flatten
from ...layers.functions import function_of, relu_and_pool
from ...layers.winograd import choose_tile
from .batch_norm import BatchNorm
from .convolution import Convolution
from .stages import Dense, Flatten, Padding, Pooling, ReferenceStage
from .winograd_convolution import WinogradConvolution


def make_stages(layers, x, shapes, input_grad):
    """The stages for the first of ``layers`` and for those after it that belong to it: (a list, how many layers).

    A convolution takes along a ReLU and then a pooling that follow it, and so does batch norm; a dense layer takes a
    ReLU.
    """
    first = layers[0]
    function, options = function_of(first)
    if function is flatten:
        return [Flatten(x)], 1
    own = function in (conv2d, batch_norm, dense)
    what, fused = relu_and_pool(layers[own:])
    if function is dense:
        return [Dense(x, first.shapes[0], what[-1], input_grad)], 1 + what[-1]
    if function is conv2d:
        frames = [Padding(x, options["padding"])] if options.get("padding") else []
        x = frames[0].y if frames else x
        return [*frames, make_convolution(x, first.shapes[0], *what, input_grad, options.get("stride", 1))], 1 + fused
    if function is batch_norm:
        return [BatchNorm(x, *what, input_grad)], 1 + fused
    if fused:
        return [Pooling(x, *what)], fused
    return [ReferenceStage(x, first, shapes[0], input_grad)], 1


def make_convolution(x, kernel_shape, size, kind, relu, input_grad, stride=1):
    """The stage of a convolution: by Winograd's method where that is less work."""
    O, C, kh, kw = kernel_shape
    outputs = (x.shape[1] - kh + 1) // size * size, (x.shape[2] - kw + 1) // size * size
    tile = choose_tile((kh, kw), outputs, size, C, O) if stride == 1 else None
    if tile is None:
        return Convolution(x, kernel_shape, size, kind, relu, input_grad, stride)
    return WinogradConvolution(x, kernel_shape, size, kind, relu, input_grad, tile)
