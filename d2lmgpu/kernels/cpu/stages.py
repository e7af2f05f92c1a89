"""The stages of a program: which does which layers, and the simpler ones (convolutions have their own files).

Every stage has its output ``y``, ``forward()``, and ``backward(dy)``, which sets ``dx``. A stage with parameters also
has ``load(params)`` and ``store(grads)``; its ``params`` are those parameters that it uses as they are, until the
program forgets them. Images are last in every array.
"""

import numpy as np

from ...layers import batch_norm, conv2d, dense, flatten
from ...layers.functions import function_of, relu_and_pool
from ...layers.winograd import choose_tile
from ..stages import ReferenceLayer
from .batch_norm import BatchNorm
from .convolution import Convolution
from .relu_pool import ReluPool, places_of
from .scratch import RunningSum, scratch
from .winograd_convolution import WinogradConvolution


def make_stages(layers, x, shapes, input_grad):
    """The stages for the first of ``layers`` and for those after it that belong to it: (a list, how many layers).

    A convolution takes along a ReLU and then a pooling that follow it, and so does batch norm; a dense layer takes a
    ReLU.
    """
    first = layers[0]
    function, options = function_of(first)
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
    if function is flatten:
        return [Flatten(x)], 1
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


class Dense:
    """x (D, n) → y (O, n) = weightᵀ @ x + bias, for a weight (D, O); with ReLU if ``relu``."""

    def __init__(self, x, weight_shape, relu, input_grad):
        D, O = weight_shape
        self.x = x
        self.y = np.empty((O, x.shape[1]), x.dtype)
        self.relu, self.dx = relu, scratch(x.shape, x.dtype) if input_grad else None
        self.weight_grads, self.bias_grads = RunningSum((D, O), x.dtype), RunningSum(O, x.dtype)

    def load(self, params):
        self.params = params
        self.weight_grads.begin()
        self.bias_grads.begin()

    def forward(self):
        np.matmul(self.params[0].T, self.x, out=self.y)
        np.add(self.y, self.params[1][:, None], out=self.y)
        if self.relu:
            np.maximum(self.y, 0, out=self.y)

    def backward(self, dy):
        if self.relu:
            np.greater(self.y, 0, out=self.y)  # 0 or 1, by which the gradient is multiplied
            dy = np.multiply(self.y, dy, out=self.y)  # the output is no longer needed
        self.weight_grads.add(np.matmul, self.x, dy.T)
        self.bias_grads.add(np.add.reduce, dy, 1)
        if self.dx is not None:
            np.matmul(self.params[0], dy, out=self.dx)

    def store(self, grads):
        np.copyto(grads[0], self.weight_grads.total)
        np.copyto(grads[1], self.bias_grads.total)


class Pooling:
    """ReLU or pooling (or one after the other) where no convolution comes before: x (C, H, W, n) or (D, n)."""

    def __init__(self, x, size, kind, relu):
        self.dx, self.x_places = np.zeros_like(x), places_of(x, size)
        self.dx_places = places_of(self.dx, size)
        self.y = np.empty(self.x_places[0, 0].shape, x.dtype)
        z = ReluPool.outputs(self.x_places.shape, x.dtype, kind)
        self.squares = ReluPool(z, z, kind, relu)

    def forward(self):
        np.multiply(self.x_places, self.y.dtype.type(self.squares.scale), out=self.squares.z)
        self.squares.forward(self.y)

    def backward(self, dy):
        self.squares.backward(self.y, dy)
        np.multiply(self.squares.z, self.y.dtype.type(self.squares.scale), out=self.dx_places)


class Flatten:
    """x (C, H, W, n) → y (C·H·W, n), the same memory: with images last, an image's pixels keep their order."""

    def __init__(self, x):
        # A view, unless x itself is a part of a larger array.
        self.x, self.y = x, x.reshape(-1, x.shape[-1])
        self.is_view = np.may_share_memory(x, self.y)

    def forward(self):
        if not self.is_view:
            np.copyto(self.y.reshape(self.x.shape), self.x)

    def backward(self, dy):
        self.dx = dy.reshape(self.x.shape)


class Padding:
    """x (C, H, W, n) → y (C, H + 2P, W + 2P, n), with ``padding`` P zeros around each image, for a convolution."""

    def __init__(self, x, padding):
        C, H, W, n = x.shape
        self.x, self.y = x, np.zeros((C, H + 2 * padding, W + 2 * padding, n), x.dtype)
        self.inside = (slice(None), slice(padding, padding + H), slice(padding, padding + W))

    def forward(self):
        np.copyto(self.y[self.inside], self.x)

    def backward(self, dy):
        self.dx = dy[self.inside]


class ReferenceStage(ReferenceLayer):
    """A layer without a fast implementation, with images first, as its functions expect."""

    params = sums = ()  # of a layer without parameters

    def __init__(self, x, layer, y_shape, input_grad):
        super().__init__(layer, input_grad)
        self.x, self.y = x, np.empty((*y_shape, x.shape[-1]), x.dtype)

    def load(self, params):
        self.params = params
        self.sums = [np.zeros_like(param) for param in params]

    def forward(self):
        np.copyto(self.y, np.moveaxis(self.compute(np.moveaxis(self.x, -1, 0), self.params), 0, -1))

    def backward(self, dy):
        dx, grads = self.compute_back(np.moveaxis(dy, -1, 0))
        for total, grad in zip(self.sums, grads, strict=True):
            total += grad
        self.dx = None if dx is None else np.ascontiguousarray(np.moveaxis(dx, 0, -1))

    def store(self, grads):
        for grad, total in zip(grads, self.sums, strict=True):
            np.copyto(grad, total)


class SoftmaxCrossEntropy:
    """logits (K, n) and labels (m,), m ≤ n → the summed loss of the first m images, and their part of ``dx`` (K, n).

    The other images' columns are padding. dx is the probabilities, less 1 at the label.
    """

    def __init__(self, logits):
        K, n = logits.shape
        self.logits = logits
        self.dx = np.empty_like(logits)
        self.shifted, self.picked = scratch(logits.shape, logits.dtype), scratch(logits.shape, logits.dtype)
        self.row = scratch(n, logits.dtype)  # each image's largest logit, then its sum of exponentials, then the log
        self.classes = np.arange(K)[:, None]
        self.is_label = np.empty((K, n), bool)

    def forward(self, y):
        """The loss as a float."""
        m = len(y)
        np.maximum.reduce(self.logits, axis=0, out=self.row)
        np.subtract(self.logits, self.row, out=self.shifted)
        self.is_label[:, m:] = False
        np.equal(self.classes, y, out=self.is_label[:, :m])
        np.multiply(self.shifted, self.is_label, out=self.picked)
        label_logits = np.add.reduce(self.picked[:, :m], axis=None, dtype=float)
        np.exp(self.shifted, out=self.shifted)  # from here on the exponentials
        np.add.reduce(self.shifted, axis=0, out=self.row)
        np.divide(self.shifted, self.row, out=self.dx)
        np.log(self.row, out=self.row)
        np.subtract(self.dx, self.is_label, out=self.dx)
        return float(np.add.reduce(self.row[:m], dtype=float) - label_logits)


class OtherLoss:
    """The same for another loss: ``function(outputs, targets)`` of plain arrays (m, K) and (m, ...) gives it and dx."""

    def __init__(self, outputs, function):
        self.logits, self.function, self.dx = outputs, function, np.empty_like(outputs)

    def forward(self, y):
        """The loss as a float."""
        loss, grad = self.function(np.ascontiguousarray(self.logits[:, : len(y)].T), y)
        self.dx[:, : len(y)] = grad.T
        return float(loss)
