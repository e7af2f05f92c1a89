"""The stages of a program: layers that belong together, as launches of kernels, with their arrays.

Every stage has its output ``y``, ``forward(*params)``, and ``backward(dy, params, grads)``, which sets ``dx`` and
writes the parameters' gradients. No stage needs these gradients as input, so they are computed within ``beside``, a
context manager that a program may replace by one that leaves them to another stream (see streams.py).

Which of the possible kernels computes a layer follows from counts of instructions and predictions for an H100:

- A convolution and its gradients are computed by Winograd's method where `winograd.choose` finds that it is less work,
  otherwise by the kernels of convolution.py. This holds for every precision: these kernels multiply in float32; in
  mixed precision, they multiply numbers that were rounded to float16 before. Kernels on tensor cores were predicted to
  be slower at 1, 2 and 4 times LeNet's width. The exception was LeNet's second convolution forward in float16: 12%
  faster at twice the width, equally fast at four times. That was not worth the extra kernels.
- A dense layer is computed on tensor cores if the precision rounds factors, otherwise in float32 (dense.py).

In mixed precision (networks/mixed.py), factors are rounded where they are written: a convolution rounds its dx, and
also its y if that is multiplied next by another convolution; a dense layer rounds its dx. Weights, and what a dense
layer multiplies, are rounded as they are read.
"""

import contextlib

import numpy as np

from ...devices import array_module
from ...layers import batch_norm, conv2d, dense, flatten, relu
from ...layers.functions import POOLS, function_of, relu_and_pool
from ..stages import ReferenceLayer
from . import convolution, launch, winograd
from .batch_norm import BatchNorm
from .dense import Dense
from .launch import empty, rounding, run

PRECISIONS = {"float32": False, "mixed": True}
"""Whether the factors of products are rounded to float16 (see networks/mixed.py). All else is float32."""

LARGEST_SQUARE, LARGEST_KERNEL = 4, 32
"""The largest sides of the squares that GPUs' kernels pool, and of a convolution's kernels: shared memory is small."""


class OneKernel:
    """A stage that is one kernel forward and one back.

    ``to_y``: the launch forward and its arguments; ``to_dx``: the launch back and its arguments, of which dy, the first
    one, is missing.
    """

    def forward(self):
        run(*self.to_y)

    def backward(self, dy, params, grads):
        kernel, *arguments = self.to_dx
        run(kernel, dy, *arguments)


class Padding(OneKernel):
    """For convolutions with padding: x (N, C, H, W) → y (N, C, H + 2P, W + 2P), with P zeros around each image."""

    def __init__(self, x, padding, input_grad):
        N, C, H, W = x.shape
        self.y = empty((N, C, H + 2 * padding, W + 2 * padding))
        self.y.fill(0)
        self.dx = empty(x.shape) if input_grad else None
        self.to_y = launch.frame("frame", H, W, padding, N * C), x, self.y, np.int32(N * C)
        self.to_dx = launch.frame("frame_grad", H, W, padding, N * C), self.dx, np.int32(N * C)


class Convolution:
    """Convolution, bias, and the ReLU and pooling after it: x (N, C, H, W) → y (N, O, PH, PW).

    ``launches``: forward, of the gradient of x, and of the gradients of weight and bias.
    """

    beside = contextlib.nullcontext()

    def __init__(self, x, conv, input_grad, launches):
        self.x, self.N, self.launches = x, np.int32(len(x)), launches
        self.y = empty((len(x), conv.O, conv.PH, conv.PW))
        self.mask = empty(self.y.shape, np.uint16)
        self.dx = empty(x.shape) if input_grad else None
        size = launches[2].workspace
        self.workspace = empty(size) if size else None
        self.rows = np.int32(size // convolution.weight_grad_columns(conv))
        self.weight_grad_sum = convolution.conv_weight_grad_sum(conv, launches[2])

    def forward(self, weight, bias):
        run(self.launches[0], self.x, weight, bias, self.y, self.mask, self.N)

    def backward(self, dy, params, grads):
        """Compute ``dx``, if it is wanted, and the gradients of weight and bias.

        ``dx`` comes first: both keep a whole GPU busy, and only ``dx`` is waited for.
        """
        if self.dx is not None:
            run(self.launches[1], dy, self.mask, params[0], self.dx, self.N)
        with self.beside:
            if self.workspace is None:
                run(self.launches[2], self.x, dy, self.mask, *grads, self.N)
            else:
                run(self.launches[2], self.x, dy, self.mask, self.workspace, self.N)
                run(self.weight_grad_sum, self.workspace, *grads, self.rows)


class WinogradConvolution(Convolution):
    """The same by Winograd's method.

    `prepare` launches ``weights``, which transforms the weights: for forward, and for the gradient of x if that is
    computed by this method, too. Only this stage waits for that; ``ahead``, a branch, does it beside the main stream.
    """

    ahead = None

    def __init__(self, x, conv, input_grad, launches, weights):
        super().__init__(x, conv, input_grad, launches)
        self.weights, self.u = weights, empty(launches[0].workspace)
        self.u_back = empty(launches[1].workspace) if launches[1].workspace else None

    def prepare(self, weight, bias):
        """Transform the weights; call it before `forward`, with the same parameters."""
        with self.ahead or contextlib.nullcontext():
            run(self.weights, weight, self.u, self.u if self.u_back is None else self.u_back)

    def forward(self, weight, bias):
        if self.ahead:
            self.ahead.join()
        super().forward(self.u, bias)

    def backward(self, dy, params, grads):
        super().backward(dy, params if self.u_back is None else [self.u_back], grads)


class Flatten:
    """x (N, C, H, W) → y (N, C·H·W), the same memory."""

    def __init__(self, x):
        self.x, self.y = x, x.reshape(len(x), -1)

    def forward(self):
        pass

    def backward(self, dy, params, grads):
        self.dx = dy.reshape(self.x.shape)


class Rectifier(OneKernel):
    """ReLU where no convolution or dense layer comes before. ``half``: y is rounded to float16."""

    def __init__(self, x, half):
        self.y, self.dx = empty(x.shape), empty(x.shape)
        self.to_y = rounding(launch.relu("relu", x.size), out=half), x, self.y, np.int32(x.size)
        self.to_dx = launch.relu("relu_grad", x.size), x, self.dx, np.int32(x.size)


class Pooling(OneKernel):
    """Pooling where no convolution comes before: x (N, C, H, W) → y (N, C, H // S, W // S), rounded if ``half``."""

    def __init__(self, x, S, max_pool, half):
        N, C, H, W = x.shape
        self.y, self.dx = empty((N, C, H // S, W // S)), empty(x.shape)
        mask = empty(self.y.shape, np.uint16)
        sizes = H, W, S, max_pool, N * C
        self.to_y = rounding(launch.pool("pool", *sizes), out=half), x, self.y, mask, np.int32(N * C)
        self.to_dx = launch.pool("pool_grad", *sizes), mask, self.dx, np.int32(N * C)


class ReferenceStage(ReferenceLayer):
    """A layer without a kernel. It is never in a graph, so its factors are never rounded."""

    def __init__(self, x, layer, y_shape, input_grad):
        super().__init__(layer, input_grad)
        self.x, self.y = x, empty((len(x), *y_shape))

    def forward(self, *params):
        self.y[...] = self.compute(self.x, params)

    def backward(self, dy, params, grads):
        dx, values = self.compute_back(dy)
        for grad, value in zip(grads, values, strict=True):
            grad[...] = value
        self.dx = None if dx is None else array_module(dx).ascontiguousarray(dx)


def make_stages(layers, x, shapes, input_grad, mixed, count):
    """The stages for the first of ``layers`` and for those after it that belong to it: (a list, how many layers).

    ``mixed``: whether factors are rounded to float16; ``count`` (1,) says how many of the images are examples.
    """
    first, rest = layers[0], layers[1:]
    function, options = function_of(first)
    if not has_kernels([first]):
        return [ReferenceStage(x, first, shapes[0], input_grad)], 1
    if function is flatten:
        return [Flatten(x)], 1
    (S, pool, rectified), fused = relu_and_pool(rest, LARGEST_SQUARE)
    if function is dense:
        return [Dense(x, first.shapes[0][1], rectified, input_grad, mixed)], 1 + rectified
    if function in (conv2d, batch_norm):
        what, half = (S, pool == "max", rectified), rounds_output(mixed, rest[fused:])
        if function is batch_norm:
            return [BatchNorm(x, *what, input_grad, count, half)], 1 + fused
        frames = [Padding(x, options["padding"], input_grad)] if options.get("padding") else []
        x = frames[0].y if frames else x
        return [*frames, make_convolution(x, first.shapes[0], *what, input_grad, mixed, half)], 1 + fused
    half = rounds_output(mixed, rest)
    if function is relu:
        return [Rectifier(x, half)], 1
    return [Pooling(x, options.get("size", 2), POOLS[function] == "max", half)], 1


def rounds_output(mixed, following):
    """Whether what the ``following`` layers read is rounded where it is written: a convolution rounds only weights."""
    return mixed and bool(following) and function_of(following[0])[0] is conv2d


def make_convolution(x, kernel_shape, S, max_pool, relu, input_grad, mixed, half):
    """The stage of a convolution. If ``mixed``, weights and dx are rounded to float16; ``half``: whether y is."""
    import cupy

    (N, C, H, W), (O, _, KH, KW) = x.shape, kernel_shape
    conv = convolution.ConvolutionShape(C, H, W, O, KH, KW, S, max_pool, relu)
    multiprocessors = cupy.cuda.Device().attributes["MultiProcessorCount"]
    choice = winograd.choose(conv, N, multiprocessors)
    if choice is None:
        forward = rounding(convolution.conv_forward(conv, N), out=half, weight=mixed)
        back = rounding(convolution.conv_input_grad(conv, N), out=mixed, weight=mixed)
        launches = forward, back, convolution.conv_weight_grad(conv, N, multiprocessors)
        return Convolution(x, conv, input_grad, launches)
    back = winograd.conv_input_grad(choice) if input_grad else None
    weights = rounding(winograd.weights(choice, input_grad=back is not None), out=False, weight=mixed)
    back = rounding(back or convolution.conv_input_grad(conv, N), out=mixed, weight=mixed and back is None)
    launches = rounding(winograd.conv_forward(choice), out=half), back, winograd.conv_weight_grad(choice)
    return WinogradConvolution(x, conv, input_grad, launches, weights)


def has_kernels(network):
    """Whether there is a kernel for every layer, so that a step can be captured: others may allocate or call cuBLAS."""
    for layer in network:
        function, options = function_of(layer)
        sides = layer.shapes[0][2:] if function is conv2d else (1,)
        has_kernel = function in {batch_norm, conv2d, dense, flatten, relu, *POOLS} and options.get("stride", 1) == 1
        if not has_kernel or options.get("size", 1) > LARGEST_SQUARE or max(sides) > LARGEST_KERNEL:
            return False
    return True
