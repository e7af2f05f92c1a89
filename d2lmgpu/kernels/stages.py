"""What programs for the CPU and for GPUs share: a network in stages, layers as they are written, and idle programs."""

import itertools

import numpy as np

from ..devices import array_module
from ..layers import zero_moments
from ..layers.functions import output_shapes


class Stages:
    """A network's ``stages``, and their ``owners``: for each stage, the slice of the parameters that belong to it.

    ``x`` is the first stage's input, for images of ``shape`` (C, H, W). ``make_stages(layers, x, shapes, input_grad)``
    returns a list of the stages that do the first of ``layers``, and how many layers these are; the last stage has
    their parameters. ``shapes`` are the shapes of the layers' outputs for one image. ``input_grad``: whether anything
    before these layers has parameters and so needs the gradient of ``x``; as an argument of this class, whether this is
    so before the whole network, which is then a part of a larger one. Raises ValueError, or what the layers raise, if
    the sizes do not fit together.
    """

    def __init__(self, network, params, x, shape, make_stages, input_grad=False):
        if [param.shape for param in params] != [shape for layer in network for shape in layer.shapes]:
            raise ValueError(f"parameters of shapes {[param.shape for param in params]} are not those of the network")
        shapes = output_shapes(network, params, np.zeros((1, *shape), x.dtype))
        for layer, (C, *_) in zip(network, shapes, strict=True):
            if layer.channels not in (0, C):  # arrays would be broadcast: a kernel reads whatever lies there
                raise ValueError(f"batch norm of {layer.channels} channels cannot take images of {C}")
        self.x, self.stages, self.owners = x, [], []
        i = first = 0
        while i < len(network):
            is_wanted = input_grad or any(layer.shapes for layer in network[:i])
            stages, taken = make_stages(network[i:], x, shapes[i:], is_wanted)
            count = sum(len(layer.shapes) for layer in network[i : i + taken])
            self.stages += stages
            self.owners += [slice(first, first)] * (len(stages) - 1) + [slice(first, first + count)]
            x, i, first = stages[-1].y, i + taken, first + count
        self.norms = [stage for stage in self.stages if hasattr(stage, "statistics")]
        self.written = [stage for stage in self.stages if isinstance(stage, WrittenLayer)]

    def new_moments(self):
        """New arrays for the moments of batch norm layers."""
        return zero_moments([norm.channels for norm in self.norms], array_module(self.x))

    def use_statistics(self, moments=(), statistics=()):
        """Set where batch norm layers have their moments, or the list of each layer's mean and variance."""
        moments = moments or [None] * len(self.norms)
        statistics = list(zip(statistics[::2], statistics[1::2], strict=True)) or [None] * len(self.norms)
        for norm, own, fixed in zip(self.norms, moments, statistics, strict=True):
            norm.whole, norm.statistics = own, fixed

    def use_draws(self, draws):
        """Set what random layers draw from; with None, nothing is random."""
        for number, stage in enumerate(stage for stage in self.written if stage.layer.random):
            stage.draws = draws and draws._replace(layer=draws.layer + number)


class WrittenLayer:
    """A layer without a fast implementation: its own two functions do the work.

    ``draws``: what a random layer draws from in training; otherwise None.
    """

    draws = None

    def __init__(self, layer, input_grad):
        self.layer, self.input_grad = layer, input_grad

    def compute(self, x, params):
        """Return y."""
        options = {} if self.draws is None else {"draws": self.draws}
        self.shapes = [param.shape for param in params]
        y, self.cache = self.layer.forward(x, *params, **options)
        return y

    def compute_back(self, dy):
        """Return dx, and a list of the parameters' gradients."""
        if not self.layer.shapes:
            return self.layer.backward(dy, self.cache), []
        dx, *grads = self.layer.backward(dy, self.cache, input_grad=self.input_grad)
        check_grads(grads, self.shapes)
        return dx, grads


def check_grads(grads, shapes):
    """Raise ValueError unless these are the gradients of parameters of these shapes: others might be broadcast."""
    found = [np.shape(grad) for grad in grads]
    if found != shapes:
        raise ValueError(f"a layer's backward function returned gradients of shapes {found}; they should be {shapes}")


class Idle:
    """Programs that nothing uses at the moment, at most ``most`` of them; a key says what each is for.

    It is changed by single calls only, so it needs no lock.
    """

    def __init__(self, most):
        self.most, self._programs, self._numbers = most, {}, itertools.count()

    def take(self, key):
        """The program with this key that was given back last, or None."""
        for number, (other, program) in reversed(list(self._programs.items())):
            if other == key and self._programs.pop(number, None) is not None:  # else another thread was faster
                return program
        return None

    def give_back(self, key, program):
        """Keep a program, and forget those that have not been used for the longest time."""
        self._programs[next(self._numbers)] = key, program
        for number in list(self._programs)[: -self.most]:
            self._programs.pop(number, None)


def images_last(x):
    """A new plain array (..., N) with the elements of ``x`` (N, ...)."""
    return array_module(x).moveaxis(x, 0, -1).copy()


def with_shapes(layers, params):
    """The ``layers`` with the shapes of these ``params``, which may be parts of the layers' own."""
    rest, found = iter(params), []
    for layer in layers:
        shapes = tuple(next(rest).shape for _ in layer.shapes)
        found.append(layer._replace(shapes=shapes, channels=shapes[0][0] if layer.channels else 0))
    return tuple(found)
