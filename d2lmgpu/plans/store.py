"""What each action of a plan does on one device. All of it runs on the device, in its queue, with plain arrays."""

import numpy as np

from ..devices import array_module
from ..language.plan import COMPUTES
from ..language.ways import EMPTY, INNER, KEPT, SCRATCH
from ..layers import track_statistics
from ..networks.plain import backward_inputs
from ..parallel.loss_scale import are_finite
from .computing import Computing, add


class Store(Computing):
    """A device's part of a plan: a `Computing`, with the same arguments, that does the plan's actions."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.accepted = True
        self.steps = 0  # updates of the optimiser; in mixed precision not every step has one

    def do(self, action, *more):
        """Do an action: F, B, I, W, update, keep or free."""
        with self.precision.quiet():
            if action.what in COMPUTES and self._way(*action[1:3]) == EMPTY:
                self._do_nothing(*action[:3], action.target)
            else:
                getattr(self, f"_{action.what}")(action, *more)

    def _do_nothing(self, what, s, m, target):
        """Do a computation that has no examples or units: only make the values that it should leave."""
        if what in "BW":
            self._flat(target)
        if what == "F":
            self._make_nothing("y", s, m)
        if what in "BI" and s:
            self._make_nothing("dy", s - 1, m)

    def _make_nothing(self, name, s, m):
        """Make the result of a computation without examples or units: an empty y, a dy of zeros, or loss 0."""
        if s == len(self.layers) - 1:
            self.minibatch.sums[m] = array_module(self.flat).zeros(2, self.dtype)
            return
        examples = self.minibatch.examples[m]
        is_whole = not examples or name == "dy"
        self.values[name, s, m] = self._new((self.widths[s] if is_whole else 0, *self.images[s], examples))
        self.values[name, s, m].fill(0)

    def _F(self, action, final=()):  # noqa: N802
        _, s, m = action[:3]
        way = self._way(s, m)
        if way == SCRATCH:
            self._compute_run(s, m, self._input(s, m), final)
        elif way != INNER and s == len(self.layers) - 1:
            self.minibatch.sums[m] = self._forward(s, m, way)
        elif way != INNER:
            self._set("y", s, m, self._forward(s, m, way))

    def _B(self, action):  # noqa: N802
        _, s, m = action[:3]
        way = self._way(s, m)
        if way in (SCRATCH, INNER):
            return
        if way == KEPT:
            places, more = self._written_to([action.target])
            dx = self._backward(s, m, places)
            add(more)
        else:
            dx, values = self._back_as_written(s, m)
            self._add_grads(action, values)
        if s:
            self._set("dy", s - 1, m, dx)

    def _I(self, action):  # noqa: N802
        _, s, m = action[:3]
        dx, delta = self._back_as_written(s, m, backward_inputs)
        self._set("delta", s, m, delta)
        if s:
            self._set("dy", s - 1, m, dx)

    def _W(self, action):  # noqa: N802
        self._add_grads(action, self._weights_as_written(*action[1:3]))

    def _update(self, action, lr, batch_size):
        s, part = action.stage, self.parts[action.stage]
        params = self.own[s][slice(*(edge - part.params[0] for edge in part.state))]
        self._optimize(params, self._final(s), self.state[s], lr, batch_size)

    def _optimize(self, params, grads, state, lr, batch_size):
        """Do a step of the optimiser for the elements that the device updates."""
        if self.accepted:
            arrays = [params], [grads], *([array] for array in state)
            self.optimizer.update(*arrays, self.steps + 1, lr, batch_size * self.used)

    def _final(self, s):
        """The elements of a stage's gradients that the device uses for its updates."""
        return self.elements(("grads", s), self.parts[s].state)

    def clear(self):
        """End a step: forget all data that belong only to it."""
        self.track()
        self.forget()
        self.steps += self.accepted

    def track(self):
        """Update the running statistics, when all micro-batches have gone forward."""
        for s, running in self.running.items():
            of_each = zip(running[::2], running[1::2], self.moments[s], strict=True)
            for mean, variance, moments in of_each:
                self._track(mean, variance, moments)

    def _track(self, mean, variance, moments):
        track_statistics(mean, variance, moments)

    def finite(self):
        """A row with 1 if all final gradients are finite, and otherwise 0."""
        return [float(are_finite(self._all_final()))]

    def _all_final(self):
        """The final gradients of each stage in which the device updates something."""
        return [self._final(s) for s, part in self.parts.items() if part.state[0] < part.state[1]]

    def agree(self, rows):
        """In mixed precision, decide from all devices' ``rows`` whether to update: only if all gradients are finite."""
        if self.mixed:
            self.accepted = self.precision.adapt(rows.raw.view(np.float64).all())

    def _keep(self, action):
        kept = self.elements(action.target, action.bounds)
        kept += self.elements(action.value, action.bounds)

    def _free(self, action):
        value = self.values.pop(action.value, None)
        self.unwritten.discard(action.value)
        if self.device.accounting is not None:
            return
        if hasattr(value, "backward"):
            self.idle.give_back((action.stage, value.shape), value)
        elif action.value[0] in ("params", "grads") and value is not None:
            self.spare[action.value[:2]] = value
