"""Plans: a network of layers as stages with all the arrays they need, for micro-batches of n images.

A plan is made once for a network, a size of image and an n, and is then used
again and again by the thread that made it: in the steady state a step allocates
nothing. Layers that belong together become one stage; a layer without a fast
body is a stage as it is written.
"""

import functools
import threading

import numpy as np

from ...layers import avg_pool2d, conv2d, dense, flatten, max_pool2d, relu
from .convolution import Convolution
from .stages import AsWritten, Dense, Flatten, Pooling, SoftmaxCrossEntropy
from .winograd import choose_tile
from .winograd_convolution import WinogradConvolution

MICRO_BATCH = 32
"""Images that go through the network at a time, at most: their activations stay in a core's cache."""

KEPT = 8
"""Plans that a thread keeps: one for each network and each n that it meets."""

POOLS = {avg_pool2d: "average", max_pool2d: "max"}

EACH_BY_ITSELF = {conv2d, dense, flatten, relu, *POOLS}
"""Layers that treat each image by itself, so that it does not matter which images are with it."""

_thread = threading.local()


def loss_and_grads(X, y, params, network, grads):
    """The cross-entropy summed over examples, as a float; its gradients are written to ``grads``.

    ``X`` (N, C, H, W) and the parameters are NumPy arrays of one dtype, ``y`` (N,).
    """
    if len(X) == 0:
        for grad in grads:
            grad[...] = 0
        return 0.0
    plan = plan_for(network, params, X)
    plan.load(params)
    loss = 0.0
    for start in range(0, len(X), plan.n):
        part = slice(start, start + plan.n)
        loss += plan.forward(X[part], y[part])
        plan.backward()
    plan.store(grads)
    return loss


def count_correct(X, y, params, network):
    """How many of the images have their label as the largest logit."""
    if len(X) == 0:
        return 0
    plan = plan_for(network, params, X)
    plan.load(params)
    correct = 0
    for start in range(0, len(X), plan.n):
        part = slice(start, start + plan.n)
        correct += plan.count_correct(X[part], y[part])
    return correct


def plan_for(network, params, X):
    """This thread's plan for these sizes, made if there is none. Raises what the layers raise if nothing fits."""
    parts = 1
    if all(_function(layer)[0] in EACH_BY_ITSELF for layer in network):
        parts = -(-len(X) // MICRO_BATCH)
    n = -(-len(X) // parts)
    key = (tuple(network), X.shape[1:], tuple(param.shape for param in params), X.dtype, n)
    plans = _thread.__dict__.setdefault("plans", {})
    plan = plans.pop(key, None) or Plan(network, params, X.shape[1:], X.dtype, n)
    plans[key] = plan  # last in order: used last
    if len(plans) > KEPT:
        del plans[next(iter(plans))]
    return plan


class Plan:
    """The stages of a network for images of ``shape`` (C, H, W), n at a time."""

    def __init__(self, network, params, shape, dtype, n):
        shapes = output_shapes(network, params, shape, dtype)
        self.n = n
        self.x = np.empty((*shape, n), dtype)
        self.stages = []
        self.owners = []  # which parameters belong to which stage, as slices
        x, i, first = self.x, 0, 0
        while i < len(network):
            stage, taken = make_stage(network[i:], x, shapes[i:], input_grad=i > 0)
            count = sum(len(layer.shapes) for layer in network[i : i + taken])
            self.stages.append(stage)
            self.owners.append(slice(first, first + count))
            x, i, first = stage.y, i + taken, first + count
        self.loss = SoftmaxCrossEntropy(x)

    def load(self, params):
        for stage, owned in zip(self.stages, self.owners, strict=True):
            stage.load(params[owned])

    def forward(self, X, y):
        """The summed loss of up to n images."""
        self._take(X)
        self.m = len(X)
        for stage in self.stages:
            stage.forward()
        return self.loss.forward(y)

    def backward(self):
        """Add the gradients of the images of the last `forward` to the stages' sums."""
        self.loss.backward(self.m)
        dy = self.loss.dx
        for stage in reversed(self.stages):
            stage.backward(dy)
            dy = stage.dx

    def store(self, grads):
        for stage, owned in zip(self.stages, self.owners, strict=True):
            stage.store(grads[owned])

    def count_correct(self, X, y):
        self._take(X)
        for stage in self.stages:
            stage.forward()
        return int(np.count_nonzero(self.loss.logits[:, : len(X)].argmax(axis=0) == y))

    def _take(self, X):
        np.copyto(self.x[..., : len(X)], X.transpose(*range(1, X.ndim), 0))
        self.x[..., len(X) :] = 0


def output_shapes(network, params, shape, dtype):
    """The shape of each layer's output for one image: found by sending one through the layers."""
    x, rest = np.zeros((1, *shape), dtype), iter(params)
    shapes = []
    for layer in network:
        x, _ = layer.forward(x, *(next(rest) for _ in layer.shapes))
        shapes.append(x.shape[1:])
    return shapes


def make_stage(layers, x, shapes, input_grad):
    """The stage that does the first of ``layers``, and those after it that belong to it: (stage, how many).

    A convolution takes a ReLU and then a pooling with it, a dense layer a ReLU.
    """
    first, rest = layers[0], layers[1:]
    function = _function(first)[0]
    if function is flatten:
        return Flatten(x), 1
    if function is dense:
        fused = _starts_with(rest, relu)
        return Dense(x, first.shapes[0], fused, input_grad), 1 + fused
    convolved = function is conv2d
    if not convolved:
        rest = layers
    fused = _starts_with(rest, relu)
    rest = rest[fused:]
    pooled = _starts_with(rest, *POOLS)
    kind, size = None, 1
    if pooled:
        pool, options = _function(rest[0])
        kind, size = POOLS[pool], options.get("size", 2)
    taken = convolved + fused + pooled
    if convolved:
        return make_convolution(x, first.shapes[0], size, kind, fused, input_grad), taken
    if taken:
        return Pooling(x, size, kind, fused), taken
    return AsWritten(x, first, shapes[0], input_grad), 1


def _starts_with(layers, *functions):
    return bool(layers) and _function(layers[0])[0] in functions


def make_convolution(x, kernel_shape, size, kind, relu, input_grad):
    """By Winograd's method where that is less work."""
    O, C, kh, kw = kernel_shape
    outputs = (x.shape[1] - kh + 1) // size * size, (x.shape[2] - kw + 1) // size * size
    tile = choose_tile((kh, kw), outputs, size, C, O)
    if tile is None:
        return Convolution(x, kernel_shape, size, kind, relu, input_grad)
    return WinogradConvolution(x, kernel_shape, size, kind, relu, input_grad, tile)


def _function(layer):
    """The layer's forward function and its options, if it is a `functools.partial`."""
    if isinstance(layer.forward, functools.partial):
        return layer.forward.func, layer.forward.keywords
    return layer.forward, {}
