"""How a device computes a stage of a plan: with kernels, in the way that language/ways.py finds, or layer by layer.

Everything here runs on the device, as work in its queue, with plain arrays.
"""

import itertools

from ..devices import array_module, parts_of
from ..kernels.stages import Idle, check_grads, images_last, with_shapes
from ..language.ways import EMPTY, KEPT, WRITTEN
from ..layers import zero_moments
from ..networks import half_weights
from ..networks.compute import kernels_for
from ..networks.plain import (
    backward,
    backward_weights,
    forward,
    loss_backward,
    loss_forward,
    with_weights,
    without_weights,
)
from ..parallel.loss_scale import LossScale
from .values import Values


class Computing(Values):
    """`Values` with computations. It takes the same arguments, and in addition ``ways``, the plan's `Ways`.

    ``mixed``: use mixed precision. The plan's network then rounds the inputs of layers (networks/mixed.py), weights are
    rounded where they are used, and ``precision`` is a loss scale.
    """

    def __init__(self, plan, number, device, flat, optimizer, extents, loss, ways, mixed):
        super().__init__(plan, number, device, flat, optimizer, extents, loss, {s for s, _ in ways.computed[number]})
        self.mixed = mixed
        self.precision = LossScale(mixed)
        none = self._new(0)
        self.kernels = kernels_for(none, [none])
        self.ways = {(s, m): way for (i, s, m), way in ways.of.items() if i == number}
        self.runs = {(s, m): run for (i, s, m), run in ways.runs.items() if i == number}
        self.papers = [{} for _ in plan.stages]  # scratch memory
        self.idle = Idle(2 * len(self.ways))  # passes that are not in use

    def begin(self, minibatch):
        """Begin a step with this `Minibatch`."""
        self.minibatch, self.used = minibatch, self.precision.scale
        for array in itertools.chain(*self.moments.values()):
            array.fill(0)

    def way(self, s, m, examples):
        """How to compute this: as written if there are no kernels, and not at all if there are no examples or units."""
        if not examples or (self.splits[s] is not None and not self.own[s].size):
            return EMPTY
        return WRITTEN if self.kernels is None else self.ways[s, m]

    def _way(self, s, m):
        return self.way(s, m, self.minibatch.examples[m])

    def _forward(self, s, m, way):
        """Compute y, or at the end the loss and the number of right answers; keep a cache, and add up moments."""
        return (self._by_kernels if way == KEPT else self._as_written)(s, m, self._input(s, m))

    def _input(self, s, m):
        return self.minibatch.X[m] if s == 0 else self._own("y", s - 1, m)

    def _add_moments(self, s, moments):
        """Add a micro-batch's moments to those of the stage."""
        add(zip(self.moments.get(s, ()), moments, strict=True))

    def _compute_run(self, s, m, x, final):
        """Compute a run, forward to the loss and back, for some of the examples at a time.

        ``final``: one event for each stage, triggered when the stage's gradients are final; or no events.
        """
        stages = range(s, len(self.layers))
        layers = sum((self.layers[i] for i in stages), ())
        params = [param for i in stages for param in self._params_of(i)]
        grads, more = self._written_to(self.runs[s, m])
        dx = None
        if s:
            dx = self.values["dy", s - 1, m] = self._new((*x.shape[1:], len(x)))
            dx = array_module(dx).moveaxis(dx, -1, 0)
        loss, layers = self.loss.for_kernels(self.minibatch.y[m]), with_shapes(layers, params)
        moments = self._moments_of_run(s, m)
        ready = self._teller(stages, final) if final and not more else None
        how = {"ready": ready, "moments": sum(moments, []), "draws": self._draws(s, m), "loss": loss, "dx": dx}
        sums = self._run_in_parts(s, m, x, params, layers, grads, **how)
        self.minibatch.sums[m] = None if sums is None else sums.astype(x.dtype)  # None: they stay on the device
        for i, own in zip(stages, moments, strict=True):
            self._add_moments(i, own)
        add(more)

    def _moments_of_run(self, s, m):
        """The results of `_new_moments` for the stages of a run that begins with stage s."""
        return [self._new_moments(i) for i in range(s, len(self.layers))]

    def _new_moments(self, s):
        """An array for the moments of each batch norm layer of a stage."""
        return zero_moments(self.channels[s], array_module(self.flat))

    def _run_in_parts(self, s, m, x, params, layers, grads, **how):
        """Call the kernels' `in_parts` for a run that begins with stage s; ``how``: its other arguments."""
        return self.kernels.in_parts(x, self.minibatch.y[m], params, layers, grads, scale=self.precision.scale, **how)

    def _teller(self, stages, final):
        """A function to be called with n when the gradients of these stages are final from number n on."""
        firsts = itertools.accumulate((len(self.shapes[i]) for i in stages), initial=0)
        left = list(zip(firsts, final, strict=False))

        def ready(number):
            while left and left[-1][0] >= number:
                left.pop()[1].finish(self.device.mark())

        return ready

    def _by_kernels(self, s, m, x):
        """`_forward` with kernels; the cache is a `Pass`."""
        params, is_last = self._params_of(s), s == len(self.layers) - 1
        targets = self.minibatch.y[m] if is_last else None
        loss = self.loss.for_kernels(targets) if is_last else None
        cache = self._pass(s, m, x, params, loss)
        self._set("cache", s, m, cache)
        y = cache.forward(x, params, targets, self._draws(s, m))
        self._add_moments(s, cache.moments)
        return y

    def _pass(self, s, m, x, params, loss):
        """A `Pass` that is not in use, or a new one."""
        return self.idle.take((s, x.shape)) or self.kernels.Pass(*self._of_pass(s, x, params, loss))

    def _of_pass(self, s, x, params, loss):
        """The arguments of a new `Pass`."""
        layers, is_last = with_shapes(self.layers[s], params), s == len(self.layers) - 1
        return layers, params, x.shape[1:], self.dtype, len(x), s > 0, is_last, loss, self.papers[s]

    def _as_written(self, s, m, x):
        """`_forward` with the layers as they are written."""
        moments, is_last = self._new_moments(s), s == len(self.layers) - 1
        y, cache = forward(self.layers[s], x, self._params(s), self._draws(s, m), moments)
        cache = without_weights(self.layers[s], cache)
        self._add_moments(s, moments)
        if is_last:
            y, end = loss_forward(y, self.minibatch.y[m], self.loss)
            cache.append(end)
        self._set("cache", s, m, cache)
        return y if is_last else images_last(y)

    def _draws(self, s, m):
        """The `Draws` for a stage's random layers. They depend on the examples and units, not on the device."""
        if self.minibatch.draws is None:
            return None
        split = self.splits[s]
        units = None if split is None else (*split.units_of(self.parts[s].params), split.units)
        return self.minibatch.draws._replace(first=sum(self.minibatch.examples[:m]), layer=self.random[s], units=units)

    def _backward(self, s, m, grads):
        """Go back with kernels: write the parameters' gradients to ``grads``, and return dx."""
        cache = self.values["cache", s, m]
        return cache.backward(self._params_of(s), grads, self._handed_back(s, m), self.precision.scale)

    def _back_as_written(self, s, m, how=backward):
        """Go back through the layers as they are written; return what ``how`` does: dx and gradients, or delta."""
        layers, cache, dy = self.layers[s], self.values["cache", s, m], self._handed_back(s, m)
        if dy is None:
            dy = loss_backward(cache[-1], self.loss, self.precision.scale)
        caches = with_weights(layers, cache[: len(layers)], self._params(s))
        dx, found = how(layers, dy, caches, input_grad=s > 0)
        return images_last(dx) if s else None, found

    def _weights_as_written(self, s, m):
        """The parameters' gradients from delta."""
        delta, cache = self.values["delta", s, m], self.values["cache", s, m]
        return backward_weights(self.layers[s], delta, cache[: len(self.layers[s])])

    def _add_grads(self, action, values):
        """Add parameters' gradients to those of the stage."""
        grads = self._grads(action)
        check_grads(values, [grad.shape for grad in grads])
        add(zip(grads, values, strict=True))

    def _handed_back(self, s, m):
        return None if s == len(self.layers) - 1 else self._own("dy", s, m)

    def _params_of(self, s):
        """A stage's parameters for kernels; kernels for GPUs need contiguous arrays."""
        params = self._params(s)
        if self.device.kind == "cpu":
            return params
        return [array_module(param).ascontiguousarray(param) for param in params]

    def _written_to(self, values):
        """Arrays to which kernels write gradients, and pairs (gradient, array to be added to it afterwards).

        The first result is written directly, so nothing need be added.
        """
        places, more = [], []
        for value in values:
            views = self._views(self._begin(value), value[1])
            if value in self.unwritten and all(view.flags.c_contiguous for view in views):
                self.unwritten.remove(value)
                places += views
            else:
                views = self._views(self._flat(value), value[1])
                places += [None] * len(views)
                more += views
        terms = parts_of(array_module(self.flat).empty(sum(view.size for view in more), self.dtype), more)
        rest = iter(terms)
        places = [next(rest) if place is None else place for place in places]
        return places, list(zip(more, terms, strict=True))

    def _params(self, s):
        params = self._views(self._flat(("params", s)), s)
        return half_weights(params) if self.mixed else params

    def _grads(self, action):
        return self._views(self._flat(action.target), action.stage)


def add(pairs):
    """For pairs of a gradient and a term, add the term to the gradient."""
    for grad, term in pairs:
        grad += term
