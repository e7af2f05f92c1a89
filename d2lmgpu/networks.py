"""Networks as lists of layers: the textbook's LeNet.

A network is data: a list of `Layer`, each with its two functions and the shapes
of its parameters. Forward walks the list down and keeps every layer's cache,
backward walks it up again. All parameters of a network are one list, in order:
for LeNet ``[W1, b1, W2, b2, W3, b3, W4, b4]``.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .devices import array_module, on_device, zeros_in_one_buffer
from .kernels import cpu as cpu_kernels
from .layers import (
    avg_pool2d,
    avg_pool2d_grad,
    conv2d,
    conv2d_grad,
    dense,
    dense_grad,
    flatten,
    flatten_grad,
    relu,
    relu_grad,
    softmax_cross_entropy,
    softmax_cross_entropy_grad,
)
from .timing import span


class Layer(NamedTuple):
    """Forward and backward functions, and the shapes of weight and bias if the layer has them."""

    forward: Callable
    backward: Callable
    shapes: tuple = ()


LENET = [  # LeCun et al. 1998, as in Dive into Deep Learning, "Training on Multiple GPUs"
    Layer(conv2d, conv2d_grad, ((20, 1, 3, 3), (20,))),  # (N, 1, 28, 28) → (N, 20, 26, 26)
    Layer(relu, relu_grad),
    Layer(avg_pool2d, avg_pool2d_grad),  # → (N, 20, 13, 13)
    Layer(conv2d, conv2d_grad, ((50, 20, 5, 5), (50,))),  # → (N, 50, 9, 9)
    Layer(relu, relu_grad),
    Layer(avg_pool2d, avg_pool2d_grad),  # → (N, 50, 4, 4): the ninth row and column are left out
    Layer(flatten, flatten_grad),  # → (N, 800)
    Layer(dense, dense_grad, ((800, 128), (128,))),
    Layer(relu, relu_grad),
    Layer(dense, dense_grad, ((128, 10), (10,))),  # → (N, 10)
]

INITS = ("normal", "he")


def init_params(seed=0, scale=0.01, init="normal", dtype=np.float32, network=LENET):
    """Initial parameters as NumPy arrays on the host, so that every device can start from the same.

    ``init="normal"`` (the textbook): weights normal with standard deviation
    ``scale``. ``init="he"`` (He et al. 2015): standard deviation √(2 / inputs of
    a unit), which keeps the size of activations from layer to layer; ``scale`` is
    then not used. Biases are zero.

    Raises ValueError for an unknown ``init``.
    """
    if init not in INITS:
        raise ValueError(f"init {init!r} is unknown; choose from {', '.join(INITS)}")
    rng = np.random.default_rng(seed)
    params = []
    for layer in network:
        for shape in layer.shapes:
            if len(shape) == 1:  # a bias
                params.append(np.zeros(shape, dtype))
            else:
                inputs = math.prod(shape[1:]) if len(shape) == 4 else shape[0]
                std = math.sqrt(2 / inputs) if init == "he" else scale
                params.append(rng.normal(0, std, shape).astype(dtype))
    return params


@on_device
def lenet(X, params):
    """Logits (N, 10) of images ``X`` (N, 1, 28, 28) with LeNet's parameters.

    Raises ValueError if shapes or dtypes do not fit together.
    """
    return forward(LENET, X, params)[0]


@on_device
def loss_and_grads(X, y, params, network=LENET, out=None, ready=None):
    """The cross-entropy summed over examples (0-d), and its gradients: a list like ``params``.

    ``X`` (N, 1, 28, 28) in the parameters' dtype, labels ``y`` (N,). N may be 0:
    then loss and gradients are zero, as sums over no examples are. The gradients
    lie in one buffer (see devices/flat.py), or are written to ``out``, a list
    like ``params``. ``ready``: a function that is called with an index as soon
    as the gradients from that one on are final; 0 at the end.

    What is computed is `loss_and_grads_as_written`; on a CPU by kernels/cpu,
    which is several times as fast.

    Raises ValueError if shapes or dtypes do not fit together.
    """
    if not has_fast_body(X, params):
        return loss_and_grads_as_written(X, y, params, network, out, ready)
    _check_labels(X, y)
    grads = zeros_in_one_buffer(params) if out is None else out
    loss = cpu_kernels.loss_and_grads(X, y, params, network, grads, ready)
    return np.asarray(loss, X.dtype), grads


@on_device
def loss_and_grads_as_written(X, y, params, network=LENET, out=None, ready=None):
    """`loss_and_grads` as one thinks of it: through the layers one by one, and back."""
    _check_labels(X, y)
    with span("forward"):
        logits, caches = forward(network, X, params)
        loss, cache = softmax_cross_entropy(logits, y)
    with span("backward"):
        grads = zeros_in_one_buffer(params) if out is None else out
        for grad, value in zip(grads, backward(network, softmax_cross_entropy_grad(cache), caches), strict=True):
            grad[...] = value
    if ready is not None:
        ready(0)
    return loss, grads


@on_device
def count_correct(X, y, params, network=LENET):
    """How many of the images ``X`` (N, 1, 28, 28) get their label of ``y`` (N,) as the largest logit (0-d)."""
    if has_fast_body(X, params):
        return np.asarray(cpu_kernels.count_correct(X, y, params, network))
    logits, _ = forward(network, X, params)
    return (logits.argmax(axis=1) == y).sum()


def has_fast_body(X, params):
    """Whether kernels/ computes with these plain arrays: NumPy's, all float32 or all float64."""
    return (
        array_module(X) is np
        and X.dtype in (np.float32, np.float64)
        and all(param.dtype == X.dtype for param in params)
    )


def forward(network, X, params):
    """Through all layers: the output, and the list of the layers' caches."""
    rest = iter(params)
    caches = []
    for layer in network:
        X, cache = layer.forward(X, *(next(rest) for _ in layer.shapes))
        caches.append(cache)
    return X, caches


def backward(network, dy, caches):
    """Back through all layers: the gradients of all parameters, in the parameters' order."""
    grads = []
    for layer, cache in zip(reversed(network), reversed(caches), strict=True):
        if layer.shapes:
            dy, *param_grads = layer.backward(dy, cache, input_grad=layer is not network[0])
            grads = param_grads + grads
        else:
            dy = layer.backward(dy, cache)
    return grads


def _check_labels(X, y):
    if len(X) != len(y):
        raise ValueError(f"loss_and_grads: {len(X)} images and {len(y)} labels; each image needs one")
