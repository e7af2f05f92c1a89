"""The values that one device holds while a plan is executed: some are permanent, others come and go.

    params, grads    flat arrays with views for the layers
    y, dy            arrays (units, ..., N): images come last, so that each unit is contiguous in memory; a device with
                     only some of the units holds only these
    cache, delta     what forward keeps for backward, and what I keeps for W

Everything here runs on the device, as work in its queue, with plain arrays.
"""

import itertools

import numpy as np

from ..devices import array_module
from ..devices.records import timed
from ..devices.transfer import copy_between
from ..language.plan import all_of, norms_of, shapes_of
from ..language.sizes import output_shapes
from ..language.split import splits_of, units_of_outputs, views
from .owned import owned_arrays


class Minibatch:
    """A device's input for a step, and its results.

    ``examples``: how many examples each micro-batch has. ``draws``: the `Draws` of the whole minibatch. The rest are
    dicts of plain arrays by micro-batch: images ``X`` if it begins on this device; targets ``y`` if it ends here, and
    then its ``sums``, the loss and the number of examples with a correct output.
    """

    def __init__(self, examples, draws):
        self.examples, self.draws, self.X, self.y, self.sums = examples, draws, {}, {}, {}


class Values:
    """A device's values in a plan. ``flat[s]``: the parameters of stage s, in one flat array on the host.

    ``extents``: for each value of gradients, the elements (start, stop) that the device has. ``computed``: the stages
    that the device computes. For each such stage, ``channels[s]`` lists how many channels of each batch norm layer it
    has, ``running[s]`` its running means and variances, in the order of `init_statistics`, and ``moments[s]`` the
    layers' moments (3, C), over the micro-batches of a step.

    The attribute ``flat`` is one array with all of the device's parameters; ``own[s]`` is the part of it for stage s.
    ``flat_state`` has such an array for each of the optimiser's states. ``fixed``: arrays for values that need the same
    array in each step. ``spare``: arrays for stages' parameters and gradients that are free to be used again.
    """

    def __init__(self, plan, number, device, flat, optimizer, extents, loss, computed):
        self.plan, self.device, self.optimizer, self.extents, self.loss = plan, device, optimizer, extents, loss
        self.values, self.fixed, self.spare = {}, {}, {}
        self.unwritten = set()  # gradients that should be zero, but have not been set to zero yet
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
        self.channels, self.running, self.moments = {}, {}, {}
        for s in sorted(computed):
            self.channels[s] = [len(range(*self.channels_of(s).indices(C))) for C in self.norms[s]]
            if self.channels[s]:
                self.running[s] = [self._new(C) for C in self.channels[s] for _ in ("mean", "variance")]
                for number, array in enumerate(self.running[s]):
                    array.fill(number % 2)
                self.moments[s] = [self._new((3, C), np.float64) for C in self.channels[s]]

    def _in_one_piece(self, name):
        """An array of zeros for the device's "params" or "state", and its parts by stage."""
        bounds = [getattr(part, name) for part in self.parts.values()]
        ends = list(itertools.accumulate((stop - start for start, stop in bounds), initial=0))
        whole = self._zeros(ends[-1])
        return whole, {s: whole[a:b] for s, (a, b) in zip(self.parts, itertools.pairwise(ends), strict=True)}

    def set_params(self, flat):
        """Set the device's part of the parameters, from a flat host array for each stage."""
        for s, part in self.parts.items():
            self.own[s][...] = array_module(self.own[s]).asarray(flat[s][slice(*part.params)])

    def forget(self):
        """Forget everything that belongs only to one step."""
        self.minibatch = None
        for values in self.values, self.unwritten:
            values.clear()

    def arrive(self, value, source, record):
        """Copy a value from ``source``, the sender's `Store`; return a mark of the copy's end, which makes an event."""
        copy = self.expect(value)
        timed(record, copy_between, copy, self.device, source.exchanged(value), source.device)
        return self.device.mark()

    def expect(self, value):
        """Make an array for a whole y or dy from another device; return it in flat form."""
        _, s, m = value
        self.values[value] = self._new((self.widths[s], *self.images[s], self.minibatch.examples[m]))
        return self.exchanged(value)

    def extent(self, value):
        """The elements (start, stop) of a value, other than y or dy, that take part in this device's transfers."""
        kind, s = value[:2]
        if kind == "grads":
            return self.extents[value]
        return self.parts[s].params if self._always(s) else all_of(self.plan.stages[s])

    def elements(self, value, bounds):
        """Elements (start, stop) of a stage's parameters or gradients, as far as the device has them."""
        first = self.extent(value)[0]
        return self._flat(value)[slice(*(edge - first for edge in bounds))]

    def prepare(self, value):
        """Prepare transfers of a value: create its array, with the device's part filled in."""
        if value[0] in ("y", "dy"):
            self._join(value)
        else:
            self._flat(value)

    def exchanged(self, value):
        """The flat array that transfers of a value use."""
        return self.values[value].reshape(-1) if value[0] in ("y", "dy") else self._flat(value)

    def channels_of(self, s):
        """The device's channels in a stage's batch norm layers, a slice."""
        return slice(None) if self.splits[s] is None else slice(*self.splits[s].units_of(self.parts[s].params))

    def _always(self, s):
        """Whether the device holds all parameters that it needs for the stage even between steps."""
        part = self.parts.get(s)
        return part is not None and (self.splits[s] is not None or part.params == all_of(self.plan.stages[s]))

    def _flat(self, value):
        """The flat array of params or grads; it is created when it is first used."""
        flat = self._begin(value)
        if value in self.unwritten:
            flat.fill(0)
            self.unwritten.remove(value)
        return flat

    def _begin(self, value):
        """Like `_flat`, but new gradients need not be set to zero yet."""
        kind, s = value[:2]
        if kind == "params" and self._always(s):
            return self.own[s]
        if value not in self.values:
            start, stop = self.extent(value)
            new = self.fixed.get(value)
            if new is None:
                new = self.spare.pop(value[:2], None)  # new memory is slow: the system zeroes each page
            if new is None or new.size != stop - start:
                new = self._new(stop - start)
            self.values[value] = new
            if kind != "params":
                self.unwritten.add(value)
            elif s in self.own:
                self.values[value][slice(*self.parts[s].params)] = self.own[s]
        return self.values[value]

    def _join(self, value):
        """Create a whole y or dy, with the device's own units in their places and zeros elsewhere."""
        _, s, m = value
        own = self.values.get(value)
        width = 0 if own is None else len(own)
        if width == self.widths[s]:
            return
        whole = self.values[value] = self._new((self.widths[s], *self.images[s], self.minibatch.examples[m]))
        whole.fill(0)
        if width:
            whole[slice(*self._places(s))] = own

    def _own(self, name, s, m):
        """A y or dy of stage s (N, ...); of dy, only the device's own units if the stage is split."""
        value = self.values.get((name, s, m))
        if value is None:  # the device has no units of the stage and needs nothing
            value = self._new((0, *self.images[s], self.minibatch.examples[m]))
        if name == "dy" and self.splits[s] is not None and len(value) == self.widths[s]:
            value = value[slice(*self._places(s))]
        return array_module(value).moveaxis(value, -1, 0)

    def _places(self, s):
        """Where the device's units of stage s are in its y: (start, stop) along the first axis."""
        each = self.widths[s] // self.units[s]
        return tuple(each * unit for unit in self.splits[s].units_of(self.parts[s].params))

    def _views(self, flat, s):
        return views(flat, self.splits[s], self.shapes[s])

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
