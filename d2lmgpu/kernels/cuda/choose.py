"""Choose which of the possible kernels computes a convolution.

The rule, from counts of instructions and predictions for an H100:

- A convolution and its gradients are computed by Winograd's method where `winograd.choose` finds that it is less work,
  otherwise by the kernels of convolution.py. This holds for every precision: these kernels multiply in float32; in
  mixed precision, they multiply numbers that were rounded to float16 before. Kernels on tensor cores were predicted to
  be slower at 1, 2 and 4 times LeNet's width. The exception was LeNet's second convolution forward in float16: 12%
  faster at twice the width, equally fast at four times. That was not worth the extra kernels.
- A dense layer is computed on tensor cores if the precision has factors with fewer bits, otherwise in float32: for it
  there is nothing to choose here (dense.py).

In mixed precision (networks/mixed.py), factors are rounded where they are written: a convolution rounds its dx, and
also its y if that is ``multiplied`` next by another convolution; a dense layer rounds its dx. Weights, and what a dense
layer multiplies, are rounded as they are read.
"""

from typing import NamedTuple

from . import convolution as plain, winograd
from .launch import Launch, rounding


class ConvolutionLaunches(NamedTuple):
    """The launches of a convolution. In Winograd's method, forward reads the weights as ``weights`` transforms them.

    So does ``input_grad``, if it is ``transposed``.
    """

    forward: Launch
    input_grad: Launch
    weight_grad: Launch
    weight_grad_sum: Launch
    weights: Launch | None = None
    transposed: bool = False


def convolution(kind, conv, N, input_grad, multiplied, multiprocessors):
    """The `ConvolutionLaunches` of a `Convolution` for N images. ``kind`` is a value of `stages.PRECISIONS`.

    Raises ValueError for shapes that no kernel takes.
    """
    mixed = kind == "float16"
    choice = winograd.choose(conv, N, multiprocessors)
    back = winograd.conv_input_grad(choice) if choice and input_grad else None
    weight_grad = winograd.conv_weight_grad(choice) if choice else plain.conv_weight_grad(conv, N, multiprocessors)
    forward = winograd.conv_forward(choice) if choice else plain.conv_forward(conv, N)
    weights = winograd.weights(choice, input_grad=back is not None) if choice else None
    return ConvolutionLaunches(
        rounding(forward, out=mixed and multiplied, weight=mixed and not choice),
        rounding(back or plain.conv_input_grad(conv, N), out=mixed, weight=mixed and not back),
        weight_grad,
        plain.conv_weight_grad_sum(conv, weight_grad),
        weights and rounding(weights, out=False, weight=mixed),
        transposed=back is not None,
    )
