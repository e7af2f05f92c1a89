"""What each action of a plan does on one device: by the kernels, in the way that language/ways.py finds, or as written.

Everything here runs on the device, with plain arrays, in the device's turn.
"""

import numpy as np

from ..devices import array_module, parts_of
from ..kernels.stages import Idle, images_last, to_the_end, with_shapes
from ..language.compute import backward, forward, input_backward, weight_backward
from ..language.ways import INNER, KEPT, SCRATCH, WRITTEN
from ..networks import half_weights
from ..networks.compute import kernels_for
from ..parallel.loss_scale import LossScale, are_finite
from ..parallel.precision import FullPrecision
from ..timing import span
from .values import Values


class Store(Values):
    """A device's part of a plan, as `Values`, which see for the arguments; and ``ways``, the plan's `Ways`.

    ``mixed``: in mixed precision, for which the plan's network rounds what layers are given (networks/mixed.py). Then
    weights are rounded where they are used, and ``precision`` is a loss scale.
    """

    def __init__(self, plan, number, device, flat, optimizer, extents, loss, ways, mixed):
        super().__init__(plan, number, device, flat, optimizer, extents, loss)
        self.mixed, self.accepted = mixed, True
        self.precision = LossScale() if mixed else FullPrecision([], plan.network)
        self.steps = 0  # updates of the optimiser
        none = self._new(0)
        self.kernels = kernels_for(none, [none])
        self.ways = {(s, m): way for (i, s, m), way in ways.of.items() if i == number}
        self.runs = {(s, m): run for (i, s, m), run in ways.runs.items() if i == number}
        self.papers = [{} for _ in plan.stages]  # scratch papers
        self.idle = Idle(2 * len(self.ways))  # passes that nothing uses

    def do(self, action, *numbers):
        """F, B, I, W, update, keep or free."""
        with self.precision.quiet():
            getattr(self, f"_{action.what}")(action, *numbers)

    def _F(self, action):  # noqa: N802
        _, s, m = action[:3]
        way = self._way(s, m)
        if way == INNER:
            return
        x = self.minibatch.X[m] if s == 0 else self._own("y", s - 1, m, s, "rows")
        if way == SCRATCH:
            self._compute_run(s, m, x)
            return
        y, cache = (self._forward if way == KEPT else self._forward_as_written)(s, m, x)
        if way == self.ways[s, m] or self._has_no_units(s):
            self._set("cache", s, m, cache)
        else:  # it is of no examples, and counts as no memory
            self.values["cache", s, m] = cache
        if s == len(self.layers) - 1:
            self.minibatch.sums[m] = y
        else:
            self._set("y", s, m, y)

    def _way(self, s, m):
        """How this is computed: as written where there are no kernels, no examples, or no units of the stage."""
        is_empty = not self.minibatch.examples[m] or self._has_no_units(s)
        return WRITTEN if self.kernels is None or is_empty else self.ways[s, m]

    def _has_no_units(self, s):
        return self.splits[s] is not None and not self.own[s].size

    def _compute_run(self, s, m, x):
        """Forward to the loss, and back, for some of the examples at a time."""
        layers = sum((self.layers[i] for i in range(s, len(self.layers))), ())
        params = [param for i in range(s, len(self.layers)) for param in self._params_of(i)]
        grads, more = self._written_to(self.runs[s, m])
        dx = None
        if s:
            dx = self.values["dy", s - 1, m] = self._new((*x.shape[1:], len(x)))
            dx = array_module(dx).moveaxis(dx, -1, 0)
        loss, layers = self.loss.for_kernels(self.minibatch.y[m]), with_shapes(layers, params)
        parts = self.kernels.in_parts(
            x,
            self.minibatch.y[m],
            params,
            layers,
            grads,
            scale=self.precision.scale,
            draws=self._draws(s, m),
            loss=loss,
            dx=dx,
        )
        self.minibatch.sums[m] = to_the_end(parts)
        _add(more)

    def _forward(self, s, m, x):
        """By kernels: y, and the cache."""
        params, is_last = self._params_of(s), s == len(self.layers) - 1
        targets = self.minibatch.y[m] if is_last else None
        loss = self.loss.for_kernels(targets) if is_last else None
        key = s, x.shape
        cache = self.idle.take(key)
        if cache is None:
            layers = with_shapes(self.layers[s], params)
            cache = self.kernels.Pass(
                layers, params, x.shape[1:], self.dtype, len(x), s > 0, is_last, loss, self.papers[s]
            )
        return cache.forward(x, params, targets, self._draws(s, m)), cache

    def _forward_as_written(self, s, m, x):
        targets = self.minibatch.y[m] if s == len(self.layers) - 1 else None
        with span("forward"):
            y, cache = forward(self.layers[s], x, self._params(s), targets, self.loss, self._draws(s, m))
            return y if targets is not None else images_last(y), cache

    def _draws(self, s, m):
        """What a stage's random layers draw from: it depends on examples and units, wherever they are."""
        if self.minibatch.draws is None:
            return None
        columns = self.splits[s] is not None and self.splits[s].what == "columns"
        units = (*self.splits[s].units_of(self.parts[s].params), self.splits[s].units) if columns else None
        return self.minibatch.draws._replace(first=sum(self.minibatch.examples[:m]), layer=self.random[s], units=units)

    def _B(self, action):  # noqa: N802
        _, s, m = action[:3]
        way = self._way(s, m)
        if way in (SCRATCH, INNER):
            return
        if way == KEPT:
            grads, more = self._written_to([action.target])
            dy = self._handed_back(s, m)
            dx = self.values["cache", s, m].backward(self._params_of(s), grads, dy, self.precision.scale)
            _add(more)
        else:
            with span("backward"):
                dx = backward(*self._backward_inputs(s, m), self._grads(action), self.loss, self.precision.scale)
                dx = images_last(dx) if s else None
        if s:
            self._set("dy", s - 1, m, dx)

    def _I(self, action):  # noqa: N802
        _, s, m = action[:3]
        with span("backward"):
            dx, delta = input_backward(*self._backward_inputs(s, m), None, self.loss, self.precision.scale)
        if s:
            self._set("dy", s - 1, m, images_last(dx))
        self._set("delta", s, m, delta)

    def _W(self, action):  # noqa: N802
        _, s, m = action[:3]
        with span("backward"):
            weight_backward(self.layers[s], self.values["delta", s, m], self.values["cache", s, m], self._grads(action))

    def _update(self, action, lr, batch_size):
        if self.accepted:
            s, part = action.stage, self.parts[action.stage]
            params = self.own[s][slice(*(edge - part.params[0] for edge in part.state))]
            state = ([array] for array in self.state[s])
            self.optimizer.update([params], [self._final(s)], *state, self.steps + 1, lr, batch_size * self.used)

    def _final(self, s):
        """The elements of a stage's gradients with which the device updates its own."""
        first = self.extents["grads", s][0]
        return self._flat(("grads", s))[slice(*(edge - first for edge in self.parts[s].state))]

    def begin(self, minibatch):
        """A step with this `Minibatch` begins."""
        super().begin(minibatch)
        self.used = self.precision.scale

    def clear(self):
        """A step ends: forget what is of it alone."""
        super().clear()
        self.steps += self.accepted

    def finite(self):
        """In mixed precision: a row with a 1 if all final gradients are finite."""
        updated = [s for s, part in self.parts.items() if part.state[0] < part.state[1]]
        return [float(are_finite(map(self._final, updated)))]

    def agree(self, rows):
        """All devices' rows are in this array: only if all gradients are finite, there is an update."""
        self.accepted = self.precision.adapt(rows.raw.view(np.float64).all())

    def _keep(self, action):
        arrays = []
        for value in action.target, action.value:
            start = self.extent(value)[0]
            arrays.append(self._flat(value)[slice(*(edge - start for edge in action.bounds))])
        arrays[0] += arrays[1]

    def _free(self, action):
        value = self.values.pop(action.value, None)
        self.unwritten.discard(action.value)
        if hasattr(value, "backward") and self.device.accounting is None:
            self.idle.give_back((action.stage, value.shape), value)

    def _backward_inputs(self, s, m):
        return self.layers[s], self._handed_back(s, m), self.values["cache", s, m], self._params(s), s == 0

    def _handed_back(self, s, m):
        return None if s == len(self.layers) - 1 else self._own("dy", s, m, s, "columns")

    def _params_of(self, s):
        """A stage's parameters for kernels, which on GPUs read elements that follow each other."""
        params = self._params(s)
        if self.device.kind == "cpu":
            return params
        return [array_module(param).ascontiguousarray(param) for param in params]

    def _written_to(self, values):
        """Arrays for kernels to write gradients to, and pairs of gradients and what is to be added to them then.

        The first that is written to gradients needs no addition.
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
        if more:
            terms = iter(parts_of(array_module(more[0]).empty(sum(view.size for view in more), self.dtype), more))
            more = [(view, next(terms)) for view in more]
            rest = iter(term for _, term in more)
            places = [next(rest) if place is None else place for place in places]
        return places, more

    def _params(self, s):
        params = self._views(self._flat(("params", s)), s)
        return half_weights(params) if self.mixed else params

    def _grads(self, action):
        return self._views(self._flat(action.target), action.stage)


def _add(pairs):
    for grad, term in pairs:
        grad += term
