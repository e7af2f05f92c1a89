"""What programs for the CPU and for GPUs share: a network in stages, layers as they are written, idle programs.

Both compute as generators, which pause where devices add up their sums.
"""

import functools
import itertools
import math

import numpy as np

from ..devices import array_module
from ..layers import avg_pool2d, max_pool2d, relu
from ..timing import span

POOLS = {avg_pool2d: "average", max_pool2d: "max"}
"""Pooling layers, and the kind of each."""


class Stages:
    """A network's ``stages`` and, as slices, which parameters belong to each, the ``owners``.

    ``x`` is the first stage's input, for images of ``shape`` (C, H, W). ``make_stages(layers, x, shapes, input_grad)``
    makes a list of the stages that do the first of ``layers``, and says how many of them they do; the last one has
    their parameters. ``shapes`` are the layers' outputs for one image. ``input_grad``: whether something before has
    parameters, and needs the gradient of ``x``; given here, whether there is such a thing before the network, of which
    this is then a part. Raises ValueError, or what the layers raise, if the sizes do not fit together.
    """

    def __init__(self, network, params, x, shape, make_stages, input_grad=False):
        if [param.shape for param in params] != [shape for layer in network for shape in layer.shapes]:
            raise ValueError(f"parameters of shapes {[param.shape for param in params]} are not those of the network")
        shapes = output_shapes(network, params, np.zeros((1, *shape), x.dtype))
        for layer, (C, *_) in zip(network, shapes, strict=True):
            if layer.channels not in (0, C):  # arrays would be broadcast: a kernel reads whatever lies there
                raise ValueError(f"batch norm of {layer.channels} channels cannot take images of {C}")
        self.stages, self.owners = [], []
        i = first = 0
        while i < len(network):
            is_wanted = input_grad or any(layer.shapes for layer in network[:i])
            stages, taken = make_stages(network[i:], x, shapes[i:], is_wanted)
            count = sum(len(layer.shapes) for layer in network[i : i + taken])
            self.stages += stages
            self.owners += [slice(first, first)] * (len(stages) - 1) + [slice(first, first + count)]
            x, i, first = stages[-1].y, i + taken, first + count
        self.norms = [stage for stage in self.stages if hasattr(stage, "measure")]
        self.written = [stage for stage in self.stages if isinstance(stage, WrittenLayer)]

    def use_statistics(self, sync_statistics=(), statistics=()):
        """Set where batch norm layers find sums over all images, or each layer's mean and variance, in one list."""
        sync_statistics = sync_statistics or [None] * len(self.norms)
        statistics = list(zip(statistics[::2], statistics[1::2], strict=True)) or [None] * len(self.norms)
        for norm, sync, fixed in zip(self.norms, sync_statistics, statistics, strict=True):
            norm.sync, norm.statistics = sync, fixed

    def use_draws(self, draws):
        """Set what random layers draw from; with None nothing is random."""
        for number, stage in enumerate(stage for stage in self.written if stage.layer.random):
            stage.draws = draws and draws._replace(layer=draws.layer + number)


class WrittenLayer:
    """A layer without a fast body: its own two functions.

    ``draws``: of a random layer in training; None otherwise.
    """

    draws = None

    def __init__(self, layer, input_grad):
        self.layer, self.input_grad = layer, input_grad

    def compute(self, x, params):
        """→ y."""
        options = {} if self.draws is None else {"draws": self.draws}
        y, self.cache = self.layer.forward(x, *params, **options)
        return y

    def compute_back(self, dy):
        """→ dx, and a list of the parameters' gradients."""
        if not self.layer.shapes:
            return self.layer.backward(dy, self.cache), []
        dx, *grads = self.layer.backward(dy, self.cache, input_grad=self.input_grad)
        return dx, grads


class Idle:
    """Programs that nothing uses at the moment, at most so many; a key says what each is for.

    Changed by single calls, so that it needs no lock.
    """

    def __init__(self, most):
        self.most, self._programs, self._numbers = most, {}, itertools.count()

    def take(self, key):
        """The program of this key that was given back last, or None."""
        for number, (other, program) in reversed(list(self._programs.items())):
            if other == key and self._programs.pop(number, None) is not None:  # else another thread was faster
                return program
        return None

    def give_back(self, key, program):
        """Keep it, and forget those that were not used for longest."""
        self._programs[next(self._numbers)] = key, program
        for number in list(self._programs)[: -self.most]:
            self._programs.pop(number, None)


def images_last(x):
    """Of a plain array (N, ...) a new one (..., N)."""
    return array_module(x).moveaxis(x, 0, -1).copy()


def with_shapes(layers, params):
    """The ``layers`` for these ``params``, which may be parts of a layer's."""
    rest, found = iter(params), []
    for layer in layers:
        shapes = tuple(next(rest).shape for _ in layer.shapes)
        found.append(layer._replace(shapes=shapes, channels=shapes[0][0] if layer.channels else 0))
    return tuple(found)


def norm_channels(layers, params):
    """Of how many channels each batch norm layer of ``layers`` is, with these ``params``, which may be parts."""
    pairs = zip(layers, with_shapes(layers, params), strict=True)
    return [own.channels for layer, own in pairs if layer.channels]


def output_shapes(network, params, x):
    """The shape of each layer's output for one image: found by sending ``x`` (1, C, H, W) through the layers."""
    rest = iter(params)
    shapes = []
    for layer in network:
        x, _ = layer.forward(x, *(next(rest) for _ in layer.shapes))
        shapes.append(x.shape[1:])
    return shapes


def function_of(layer):
    """The layer's forward function and its options, if it is a `functools.partial`."""
    if isinstance(layer.forward, functools.partial):
        return layer.forward.func, layer.forward.keywords
    return layer.forward, {}


def relu_and_pool(layers, largest=math.inf):
    """What ``layers`` begin with that is fused to what comes before: (size, kind, relu), and how many layers that is.

    ``relu``: whether the first is one. After it pooling of squares of side ``size``, at most ``largest``, of a
    ``kind`` of `POOLS`; (1, None) without.
    """
    has_relu = bool(layers) and function_of(layers[0])[0] is relu
    pool, options = function_of(layers[has_relu]) if len(layers) > has_relu else (None, {})
    size = options.get("size", 2)
    if pool in POOLS and size <= largest:
        return (size, POOLS[pool], has_relu), has_relu + 1
    return (1, None, has_relu), has_relu + 0


def timed(name, parts):
    """A generator's parts, each as a span of time; its result."""
    while True:
        with span(name):
            try:
                next(parts)
            except StopIteration as end:
                return end.value
        yield


def to_the_end(parts):
    """Run a generator without pausing; returns its result."""
    while True:
        try:
            next(parts)
        except StopIteration as end:
            return end.value
