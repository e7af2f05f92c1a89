"""How a device computes a stage of a plan: with kernels, in the way that language/ways.py finds, or layer by layer.

Everything here runs on the device, as work in its queue, with plain arrays. Forward and backward are generators. They
pause where devices may add up their sums for batch norm.
"""

import itertools

from ..devices import array_module, parts_of
from ..kernels.stages import Idle, images_last, timed, to_the_end, with_shapes
from ..language.ways import EMPTY, KEPT, WRITTEN
from ..layers import make_sync_statistics
from ..networks import half_weights
from ..networks.as_written import backward_in_parts, forward_in_parts, loss_backward, loss_forward
from ..networks.compute import kernels_for
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

    def way(self, s, m, examples):
        """How to compute this: as written if there are no kernels, and not at all if there are no examples or units."""
        if not examples or (self.splits[s] is not None and not self.own[s].size):
            return EMPTY
        return WRITTEN if self.kernels is None else self.ways[s, m]

    def _way(self, s, m):
        return self.way(s, m, self.minibatch.examples[m])

    def _forward(self, s, m, way):
        """A generator that returns y, and the `SyncStatistics` that it uses."""
        return (self._by_kernels if way == KEPT else self._as_written)(s, m, self._input(s, m))

    def _input(self, s, m):
        return self.minibatch.X[m] if s == 0 else self._own("y", s - 1, m, s, "rows")

    def _add_norms(self, kind, s, sync):
        """Add a micro-batch's moments or sums to those of the stage."""
        if sync:
            for whole, own in zip(self.norm_views((kind, s)), sync, strict=True):
                whole += getattr(own, kind)

    def _take_norms(self, kind, s, sync):
        """Replace a micro-batch's moments or sums by those over all micro-batches."""
        for whole, own in zip(self.norm_views((kind, s)), sync, strict=True):
            getattr(own, kind)[...] = whole

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
        sync = self._sync_of_run(s, m)
        ready = self._teller(stages, final) if final and not more else None
        how = {"ready": ready, "sync_statistics": sum(sync, []), "draws": self._draws(s, m), "loss": loss, "dx": dx}
        sums = to_the_end(self._run_in_parts(s, m, x, params, layers, grads, **how))
        self.minibatch.sums[m] = sums.astype(x.dtype)
        for i, own in zip(stages, sync, strict=True):
            self._add_norms("moments", i, own)
        add(more)

    def _sync_of_run(self, s, m):
        """The results of `_new_sync` for the stages of a run that begins with stage s."""
        return [self._new_sync(i) for i in range(s, len(self.layers))]

    def _new_sync(self, s):
        """A `SyncStatistics` for each batch norm layer of a stage."""
        return make_sync_statistics(self.channels[s], array_module(self.flat))

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
        return cache.forward(x, params, targets, self._draws(s, m)), cache.sync

    def _pass(self, s, m, x, params, loss):
        """A `Pass` that is not in use, or a new one."""
        return self.idle.take((s, x.shape)) or self.kernels.Pass(*self._of_pass(s, x, params, loss))

    def _of_pass(self, s, x, params, loss):
        """The arguments of a new `Pass`."""
        layers, is_last = with_shapes(self.layers[s], params), s == len(self.layers) - 1
        return layers, params, x.shape[1:], self.dtype, len(x), s > 0, is_last, loss, self.papers[s]

    def _as_written(self, s, m, x):
        """`_forward` with the layers as they are written."""
        sync = self._new_sync(s)
        return self._parts_as_written(s, m, x, sync), sync

    def _parts_as_written(self, s, m, x, sync):
        parts = forward_in_parts(self.layers[s], x, self._params(s), sync, self._draws(s, m))
        y, cache = yield from timed("forward", parts)
        is_last = s == len(self.layers) - 1
        if is_last:
            y, end = loss_forward(y, self.minibatch.y[m], self.loss)
            cache.append(end)
        cache.append(sync)
        self._set("cache", s, m, cache)
        return y if is_last else images_last(y)

    def _draws(self, s, m):
        """The `Draws` for a stage's random layers. They depend on the examples and units, not on the device."""
        if self.minibatch.draws is None:
            return None
        columns = self.splits[s] is not None and self.splits[s].what == "columns"
        units = (*self.splits[s].units_of(self.parts[s].params), self.splits[s].units) if columns else None
        return self.minibatch.draws._replace(first=sum(self.minibatch.examples[:m]), layer=self.random[s], units=units)

    def _backward(self, s, m, way, grads):
        """A generator that adds gradients to ``grads`` and returns dx; and the `SyncStatistics` that it uses."""
        cache = self.values["cache", s, m]
        if way == KEPT:
            dy = self._handed_back(s, m)
            return cache.backward(self._params_of(s), grads, dy, self.precision.scale), cache.sync
        return self._back_as_written(s, m, grads, cache[-1]), cache[-1]

    def _back_as_written(self, s, m, grads, sync=()):
        """A generator that returns dx. Without ``grads``, it keeps the data that W needs."""
        (*caches, _), dy = self.values["cache", s, m], self._handed_back(s, m)
        if dy is None:
            dy = loss_backward(caches.pop(), self.loss, self.precision.scale)
        arguments = self.layers[s], dy, caches, self._params(s), grads, sync
        dx, delta = yield from timed("backward", backward_in_parts(*arguments, input_grad=s > 0))
        if grads is None:
            self._set("delta", s, m, delta)
        return images_last(dx) if s else None

    def _handed_back(self, s, m):
        return None if s == len(self.layers) - 1 else self._own("dy", s, m, s, "columns")

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
