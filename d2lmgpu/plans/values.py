"""The values that one device has while a plan is executed: what is there between steps, and what comes and goes.

    params, grads    flat arrays, of which layers have views; with exact sums grads are int64 (exact.py)
    y, dy            arrays (units, ..., N): images are last, so that units are runs of memory; a part of the units has
                     only these
    moments, sums    flat float64 arrays, of which batch norm's `SyncStatistics` are views
    cache, delta     whatever forward, or I, gives

Everything here runs on the device, with plain arrays, in the device's turn.
"""

import itertools

import numpy as np

from ..devices import array_module
from ..devices.records import timed
from ..devices.transfer import copy_between
from ..language.plan import all_of, norms_of, shapes_of
from ..language.sizes import output_shapes, owned_arrays
from ..language.split import ROWS, norm_part, norm_views, splits_of, units_of_outputs, views


class Minibatch:
    """What a device gets for a step, and what comes of it.

    ``examples``: how many each micro-batch has; ``draws``: of the whole minibatch. By micro-batch: plain arrays, ``X``
    of those that begin here, targets ``y`` of those that end here, and their ``sums``: the loss, and for how many
    examples the output is right.
    """

    def __init__(self, examples, draws):
        self.examples, self.draws, self.X, self.y, self.sums = examples, draws, {}, {}, {}


class Values:
    """A device's values in a plan. ``flat[s]``: the parameters of stage s, a flat array on the host.

    ``extents``: by gradients the elements (start, stop) that the device has of them. ``computed``: the stages that it
    computes, of whose batch norm layers it has ``channels[s]`` of each, and ``running[s]``: running means and
    variances, as of `init_statistics`.

    ``flat`` is what it holds of parameters, in one array, of which ``own[s]`` are parts; so is ``flat_state``, for each
    of the optimiser's states. ``fixed``: arrays for gradients that are to be the same in each step. ``spare``: arrays
    of stages for parameters and gradients, which nothing uses, and the next step takes again.
    """

    def __init__(self, plan, number, device, flat, optimizer, extents, loss, computed):
        self.plan, self.device, self.optimizer, self.extents, self.loss = plan, device, optimizer, extents, loss
        self.values, self.fixed, self.spare = {}, {}, {}
        self.unwritten = set()  # gradients that are not zeros yet, as they should be
        self.parts = {part.stage: part for part in sorted(plan.layout[number])}
        self.splits, self.units = splits_of(plan.network, plan.stages), units_of_outputs(plan.network, plan.stages)
        self.shapes = [shapes_of(stage, plan.network) for stage in plan.stages]
        shapes = output_shapes(plan.network, plan.stages)
        self.widths, self.images = [shape[0] for shape in shapes], [shape[1:] for shape in shapes]  # of y, all units
        self.layers = [plan.network[stage.first : stage.stop] for stage in plan.stages]
        self.random = [sum(layer.random for layer in plan.network[: stage.first]) for stage in plan.stages]  # before it
        self.dtype = flat[0].dtype
        self.flat, self.own = self._in_one_piece("params")
        self.set_params(flat)
        states = [self._in_one_piece("state") for _ in range(optimizer.states)]
        self.flat_state = [whole for whole, _ in states]
        self.state = {s: [own[s] for _, own in states] for s in self.parts}
        self.norms = [norms_of(stage, plan.network) for stage in plan.stages]
        self.channels, self.running = {}, {}
        for s in sorted(computed):
            self.channels[s] = [len(range(*self.channels_of(s).indices(C))) for C in self.norms[s]]
            if self.channels[s]:
                self.running[s] = [self._new(C) for C in self.channels[s] for _ in ("mean", "variance")]
                for number, array in enumerate(self.running[s]):
                    array.fill(number % 2)

    def _in_one_piece(self, name):
        """An array of zeros for what the device holds of "params" or "state", and by stage the parts of it."""
        bounds = [getattr(part, name) for part in self.parts.values()]
        ends = list(itertools.accumulate((stop - start for start, stop in bounds), initial=0))
        whole = self._zeros(ends[-1])
        return whole, {s: whole[a:b] for s, (a, b) in zip(self.parts, itertools.pairwise(ends), strict=True)}

    def set_params(self, flat):
        """Take parameters: for each stage a flat array on the host, of which the device holds a part."""
        for s, part in self.parts.items():
            self.own[s][...] = array_module(self.own[s]).asarray(flat[s][slice(*part.params)])

    def dtype_of(self, value):
        """That of a value which transfers are about."""
        kind = value[0]
        return np.dtype(np.float64 if kind in ROWS else np.int64 if kind == "grads" and self.is_exact else self.dtype)

    def forget(self):
        """Forget what is of one step alone."""
        self.minibatch = None
        for values in self.values, self.unwritten:
            values.clear()

    def arrive(self, value, source, record):
        """A copy of what ``source``, another `Store`, has sent; its result, a mark of its end, makes an event."""
        copy = self.expect(value)
        timed(record, copy_between, copy, self.device, source.exchanged(value), source.device)
        return self.device.mark()

    def expect(self, value):
        """A new flat array for a y or dy that comes from another device, all of it."""
        _, s, m = value
        self.values[value] = self._new((self.widths[s], *self.images[s], self.minibatch.examples[m]))
        return self.exchanged(value)

    def extent(self, value):
        """The elements (start, stop) of what transfers of a value are about here, unless it is a y or dy."""
        kind, s = value[:2]
        if kind == "grads":
            return self.extents[value]
        if kind in ROWS:
            part = self.parts[s].params if s in self.parts else None
            return norm_part(kind, self.norms[s], self.splits[s], part)
        return self.parts[s].params if self._always(s) else all_of(self.plan.stages[s])

    def elements(self, value, bounds):
        """Elements (start, stop) of a stage's parameters or gradients, as far as the device has them."""
        first = self.extent(value)[0]
        return self._flat(value)[slice(*(edge - first for edge in bounds))]

    def prepare(self, value):
        """Before transfers of a value: the array is there that they are about, with what the device has of it."""
        if value[0] in ("y", "dy"):
            self._join(value)
        else:
            self._flat(value)

    def exchanged(self, value):
        """The flat array that transfers are about."""
        return self.values[value].reshape(-1) if value[0] in ("y", "dy") else self._flat(value)

    def channels_of(self, s):
        """Of a stage's batch norm layers the channels that are the device's, a slice."""
        return slice(None) if self.splits[s] is None else slice(*self.splits[s].units_of(self.parts[s].params))

    def norm_views(self, value):
        """Of moments or sums the part of each batch norm layer, (3, C) or (2, C)."""
        return norm_views(self._flat(value), ROWS[value[0]], self.norms[value[1]], self.splits[value[1]])

    def _always(self, s):
        """Whether it has between steps all that it needs of the stage's parameters."""
        part = self.parts.get(s)
        return part is not None and (self.splits[s] is not None or part.params == all_of(self.plan.stages[s]))

    def _flat(self, value):
        """The flat array of params or grads; it comes into being when it is asked for."""
        flat = self._begin(value)
        if value in self.unwritten:
            flat.fill(0)
            self.unwritten.remove(value)
        return flat

    def _begin(self, value):
        """As `_flat`, but gradients need not be zeros yet."""
        kind, s = value[:2]
        if kind == "params" and self._always(s):
            return self.own[s]
        if value not in self.values:
            start, stop = self.extent(value)
            new = self.fixed.get(value)
            if new is None:
                new = self.spare.pop(value[:2], None)  # fresh memory is zeroed by the system, page by page
            if new is None or new.size != stop - start:
                new = self._new(stop - start, self.dtype_of(value))
            self.values[value] = new
            if kind != "params":
                self.unwritten.add(value)
            elif s in self.own:
                self.values[value][slice(*self.parts[s].params)] = self.own[s]
        return self.values[value]

    def _join(self, value):
        """The whole of a y or dy is there, unit by unit, zero where the device has nothing."""
        name, s, m = value
        own = self.values.get(value)
        width = 0 if own is None else len(own)
        if width == self.widths[s]:
            return
        whole = self.values[value] = self._new((self.widths[s], *self.images[s], self.minibatch.examples[m]))
        whole.fill(0)
        if width:
            whole[slice(*self._places(s, s if name == "y" else s + 1))] = own

    def _own(self, name, of, m, s, split):
        """A y or dy of stage ``of`` (N, ...); where stage s has that ``split`` its own units, if there are more."""
        value = self.values.get((name, of, m))
        if value is None:  # the device has no units of the stage, and needs nothing
            value = self._new((0, *self.images[of], self.minibatch.examples[m]))
        if self.splits[s] is not None and self.splits[s].what == split and len(value) == self.widths[of]:
            value = value[slice(*self._places(of, s))]
        return array_module(value).moveaxis(value, -1, 0)

    def _places(self, of, s):
        """Where in the width of y of stage ``of`` this device's units of stage s are."""
        each = self.widths[of] // self.units[of]
        return tuple(each * unit for unit in self.splits[s].units_of(self.parts[s].params))

    def _views(self, flat, s):
        split = self.splits[s]
        return views(flat, split, self.shapes[s], None if split is None else self.parts[s].params)

    def _new(self, shape, dtype=None):
        return self.device.empty(shape, dtype or self.dtype)

    def _zeros(self, size, dtype=None):
        array = self._new(size, dtype)
        array.fill(0)
        return array

    def _set(self, name, s, m, value):
        self.values[name, s, m] = value
        if self.device.accounting is not None:
            for array in owned_arrays(value, self.papers[s]):
                if array.nbytes:
                    self.device.accounting.enter(array)
