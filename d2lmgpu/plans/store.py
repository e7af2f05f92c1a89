"""What each action of a plan does on one device. All of it runs on the device, in its queue, with plain arrays."""

import numpy as np

from ..devices import array_module, parts_of
from ..kernels.stages import to_the_end
from ..language.plan import COMPUTES
from ..language.ways import EMPTY, INNER, KEPT, SCRATCH
from ..layers import track_statistics
from ..networks.as_written import weight_backward
from ..parallel.loss_scale import are_finite
from .computing import Computing, add


class Store(Computing):
    """A device's part of a plan: a `Computing`, with the same arguments, that does the plan's actions."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.accepted = True
        self.steps = 0  # updates of the optimiser; in mixed precision not every step has one
        self.half_way = {}  # after M and S: generators that do the rest

    def do(self, action, *more):
        """Do an action: F, B, I, W, M, S, update, keep or free."""
        with self.precision.quiet():
            if action.what in COMPUTES and self._way(*action[1:3]) == EMPTY:
                self._do_nothing(*action[:3], action.target)
            else:
                getattr(self, f"_{action.what}")(action, *more)

    def _do_nothing(self, what, s, m, target):
        """Do a computation that has no examples or units: only make the values that it should leave."""
        if what in "MS":
            self._flat(("moments" if what == "M" else "sums", s))
        if what in "BW":
            self._flat(target)
        if what == "F":
            self._make_nothing("y", s, s, m)
        if what in "BI" and s:
            self._make_nothing("dy", s - 1, s, m)

    def _make_nothing(self, name, of, s, m):
        """Make the result of stage s without examples or units: an empty or zero y or dy of stage ``of``, or loss 0."""
        if of == len(self.layers) - 1:
            self.minibatch.sums[m] = array_module(self.flat).zeros(2, self.dtype)
            return
        examples, whole = self.minibatch.examples[m], "rows" if name == "y" else "columns"
        is_whole = not examples or self.splits[s].what == whole
        self.values[name, of, m] = self._new((self.widths[of] if is_whole else 0, *self.images[of], examples))
        self.values[name, of, m].fill(0)

    def _F(self, action, final=()):  # noqa: N802
        _, s, m = action[:3]
        way = self._way(s, m)
        if way == SCRATCH:
            self._compute_run(s, m, self._input(s, m), final)
        elif way != INNER and s == len(self.layers) - 1:
            self.minibatch.sums[m] = self._outputs(s, m, way)
        elif way != INNER:
            self._set("y", s, m, self._outputs(s, m, way))

    def _outputs(self, s, m, way):
        if ("M", s, m) in self.half_way:
            parts, sync = self.half_way.pop(("M", s, m))
            self._take_norms("moments", s, sync)
            return to_the_end(parts)
        parts, sync = self._forward(s, m, way)
        y = to_the_end(parts)
        self._add_norms("moments", s, sync)
        return y

    def _M(self, action):  # noqa: N802
        _, s, m = action[:3]
        parts, sync = self.half_way["M", s, m] = self._forward(s, m, self._way(s, m))
        next(parts)
        self._add_norms("moments", s, sync)

    def _B(self, action):  # noqa: N802
        _, s, m = action[:3]
        way = self._way(s, m)
        if way in (SCRATCH, INNER):
            return
        if ("S", s, m) in self.half_way:
            parts, sync, places, more = self.half_way.pop(("S", s, m))
            self._take_norms("sums", s, sync)
        else:
            places, more = self._written_to([action.target]) if way == KEPT else (self._grads(action), [])
            parts, _ = self._backward(s, m, way, places)
        dx = to_the_end(parts)
        add(zip(self._grads(action), places, strict=True) if more is None else more)
        if s:
            self._set("dy", s - 1, m, dx)

    def _S(self, action):  # noqa: N802
        _, s, m = action[:3]
        places, more = self._places_of_half(action)
        parts, sync = self._backward(s, m, self._way(s, m), places)
        next(parts)
        self.half_way["S", s, m] = parts, sync, places, more
        self._set("delta", s, m, places)
        self._add_norms("sums", s, sync)

    def _places_of_half(self, action):
        """Arrays to which a pass that pauses writes gradients, and pairs to be added afterwards; None: all arrays."""
        params = self._params(action.stage)
        dtype = self.dtype_of(("grads", action.stage))
        return parts_of(self._zeros(sum(param.size for param in params), dtype), params), None

    def _I(self, action):  # noqa: N802
        _, s, m = action[:3]
        dx = to_the_end(self._back_as_written(s, m, None))
        if s:
            self._set("dy", s - 1, m, dx)

    def _W(self, action):  # noqa: N802
        _, s, m = action[:3]
        weight_backward(self.layers[s], self.values["delta", s, m], self.values["cache", s, m], self._grads(action))

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
        """Update the running statistics, when all moments are final."""
        for s, running in self.running.items():
            of_each = zip(running[::2], running[1::2], self.norm_views(("moments", s)), strict=True)
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
