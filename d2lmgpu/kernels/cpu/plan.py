"""Plans: a network of layers as stages with all the arrays they need, for micro-batches of n images.

A plan is made once for a network, a size of image and an n, and is then used
again and again: in the steady state a step allocates nothing. Layers that belong
together become one stage; a layer without a fast body is a stage as it is written.

Plans are no device's memory but a core's scratch paper: whoever computes borrows
the one that was given back last, so that k devices taking turns on few cores all
find it in the core's cache.
"""

import contextlib
import math
import threading

import numpy as np

from ...layers import avg_pool2d, batch_norm, conv2d, dense, flatten, half, max_pool2d, relu
from ...timing import span
from ..stages import function_of, make_stages, output_shapes, to_the_end
from .batch_norm import BatchNorm
from .convolution import Convolution
from .stages import AsWritten, Dense, Flatten, Half, Pooling, SoftmaxCrossEntropy
from .winograd import choose_tile
from .winograd_convolution import WinogradConvolution

MICRO_BATCH = 64
"""Images that go through the network at a time, at most.

Fewer stay in the cache; more spend less time under the interpreter's lock, for
which threads of several devices wait (benchmarks/results/cpu_what_it_brings.json:
for two devices 64 are best, for one 16 to 128 are alike).
"""

MOST_OUTPUTS = 2**24
"""Numbers that all layers together may put out for a micro-batch: it is smaller where images or networks are large."""

KEPT = 12
"""Plans that are kept while nobody uses them, of all networks and all n together."""

POOLS = {avg_pool2d: "average", max_pool2d: "max"}

EACH_BY_ITSELF = {conv2d, dense, flatten, half, relu, *POOLS}
"""Layers that treat each image by itself, so that it does not matter which images are with it."""

_lock = threading.Lock()
_outputs = {}  # key without n: numbers that all layers put out for an image, and those layers that need all images
_idle = []  # (key, plan), the one used last at the end


def loss_and_grads(X, y, params, network, grads, ready=None, scale=1.0):
    """The cross-entropy summed over examples, as a float; its gradients are written to ``grads``.

    ``X`` (N, C, H, W) and the parameters are NumPy arrays of one dtype, ``y`` (N,).
    ``ready(i)`` is called as soon as the gradients from number ``i`` on are written.
    All gradients are multiplied by ``scale``. For networks without batch norm: see `in_parts`.
    """
    return to_the_end(in_parts(X, y, params, network, grads, ready, scale=scale))


def in_parts(X, y, params, network, grads, ready=None, meetings=(), scale=1.0):
    """`loss_and_grads` as a generator, which pauses where ``meetings`` (networks/compute.py) are to be summed."""
    ready = ready or (lambda first: None)
    if len(X) == 0:
        for share in [meeting.moments for meeting in meetings] + [meeting.sums for meeting in reversed(meetings)]:
            share[...] = 0
            yield
        for grad in grads:
            grad[...] = 0
        ready(0)
        return 0.0
    with borrowed_plan(network, params, X) as plan:
        plan.meet(meetings)
        loss = 0.0
        for part in plan.parts(X):
            loss += yield from plan.forward(X[part], y[part])
            if part.stop < len(X):
                yield from plan.backward(scale)
            else:
                yield from plan.backward(scale, grads, ready)
    return loss


def count_correct(X, y, params, network, statistics=()):
    """How many of the images have their label as the largest logit.

    ``statistics``: the mean and variance of each batch norm layer, in one list.
    """
    if len(X) == 0:
        return 0
    with borrowed_plan(network, params, X, one_by_one=len(statistics) > 0) as plan:
        plan.meet(statistics=statistics)
        return sum(plan.count_correct(X[part], y[part]) for part in plan.parts(X))


@contextlib.contextmanager
def borrowed_plan(network, params, X, one_by_one=False):
    """A plan for these sizes with ``params`` loaded, of nobody else until it is given back; made if there is none.

    ``one_by_one``: batch norm, too, treats each image by itself.

    Raises what the layers raise if the sizes do not fit together.
    """
    key = (tuple(network), X.shape[1:], tuple(param.shape for param in params), X.dtype)
    if key not in _outputs:
        shapes = output_shapes(network, params, np.zeros((1, *X.shape[1:]), X.dtype))
        others = {function_of(layer)[0] for layer in network} - EACH_BY_ITSELF
        _outputs[key] = sum(math.prod(shape) for shape in shapes), others
    outputs, others = _outputs[key]
    most = len(X) if others - ({batch_norm} if one_by_one else set()) else min(MICRO_BATCH, MOST_OUTPUTS // outputs)
    most = max(1, most)
    n = -(-len(X) // -(-len(X) // most))  # as even as can be
    key = (*key, n)
    with _lock:
        found = next((i for i in reversed(range(len(_idle))) if _idle[i][0] == key), None)
        plan = None if found is None else _idle.pop(found)[1]
    if plan is None:
        plan = Plan(network, params, X.shape[1:], X.dtype, n)
    plan.load(params)
    yield plan  # if work with it fails, it is not given back
    with _lock:
        _idle.append((key, plan))
        if len(_idle) > KEPT:
            del _idle[0]


class Plan:
    """The stages of a network for images of ``shape`` (C, H, W), n at a time."""

    def __init__(self, network, params, shape, dtype, n):
        self.n = n
        self.x = np.empty((*shape, n), dtype)
        self.stages, self.owners = make_stages(network, params, self.x, np.zeros((1, *shape), dtype), make_stage)
        self.loss = SoftmaxCrossEntropy(self.stages[-1].y)

    def parts(self, X):
        """Slices of the images ``X``, of up to n each."""
        return [slice(start, start + self.n) for start in range(0, len(X), self.n)]

    def load(self, params):
        """Take a step's parameters, and begin new sums of gradients."""
        for stage, owned in zip(self.stages, self.owners, strict=True):
            stage.load(params[owned])

    def meet(self, meetings=(), statistics=()):
        """Where batch norm layers write their sums over images; ``statistics``: what they take instead."""
        norms = [stage for stage in self.stages if isinstance(stage, BatchNorm)]
        meetings = meetings or [None] * len(norms)
        statistics = list(zip(statistics[::2], statistics[1::2], strict=True)) or [None] * len(norms)
        for norm, meeting, fixed in zip(norms, meetings, statistics, strict=True):
            norm.meet(meeting, fixed)

    def forward(self, X, y):
        """A generator that pauses at each batch norm layer; its result is the summed loss of up to n images."""
        timing = span("forward")
        timing.begin()
        self._take(X)
        self.m = len(X)
        for stage in self.stages:
            if isinstance(stage, BatchNorm):
                stage.measure()
                timing.end()
                yield
                timing.begin()
            stage.forward()
        loss = self.loss.forward(y)
        timing.end()
        return loss

    def backward(self, scale, grads=None, ready=None):
        """Add the gradients of the images of the last `forward` to the stages' sums: a generator that pauses likewise.

        They are multiplied by ``scale``. With ``grads`` the sums are written there, from the last stage to the first.
        """
        timing = span("backward")
        timing.begin()
        self.loss.backward(self.m)
        dy = self.loss.dx
        if scale != 1:
            np.multiply(dy, dy.dtype.type(scale), out=dy)
        for stage, owned in zip(reversed(self.stages), reversed(self.owners), strict=True):
            if isinstance(stage, BatchNorm):
                stage.measure_back(dy)
                timing.end()
                yield
                timing.begin()
            stage.backward(dy)
            dy = stage.dx
            if grads is not None:
                stage.store(grads[owned])
                ready(owned.start)
            if dy is None:
                break
        timing.end()

    def count_correct(self, X, y):
        self._take(X)
        for stage in self.stages:
            if isinstance(stage, BatchNorm) and stage.statistics is None:
                stage.measure()
            stage.forward()
        return int(np.count_nonzero(self.loss.logits[:, : len(X)].argmax(axis=0) == y))

    def _take(self, X):
        np.copyto(self.x[..., : len(X)], X.transpose(*range(1, X.ndim), 0))
        if len(X) < self.n:
            self.x[..., len(X) :] = 0


def make_stage(layers, x, shapes, input_grad):
    """The stage that does the first of ``layers``, and those after it that belong to it: (stage, how many).

    A convolution takes a ReLU and then a pooling with it, a dense layer a ReLU.
    """
    first, rest = layers[0], layers[1:]
    function = function_of(first)[0]
    if function is flatten:
        return Flatten(x), 1
    if function is half:
        return Half(x), 1
    if function is batch_norm:
        return BatchNorm(x, input_grad), 1
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
        pool, options = function_of(rest[0])
        kind, size = POOLS[pool], options.get("size", 2)
    taken = convolved + fused + pooled
    if convolved:
        return make_convolution(x, first.shapes[0], size, kind, fused, input_grad), taken
    if taken:
        return Pooling(x, size, kind, fused), taken
    return AsWritten(x, first, shapes[0], input_grad), 1


def _starts_with(layers, *functions):
    return bool(layers) and function_of(layers[0])[0] in functions


def make_convolution(x, kernel_shape, size, kind, relu, input_grad):
    """By Winograd's method where that is less work."""
    O, C, kh, kw = kernel_shape
    outputs = (x.shape[1] - kh + 1) // size * size, (x.shape[2] - kw + 1) // size * size
    tile = choose_tile((kh, kw), outputs, size, C, O)
    if tile is None:
        return Convolution(x, kernel_shape, size, kind, relu, input_grad)
    return WinogradConvolution(x, kernel_shape, size, kind, relu, input_grad, tile)
