"""What one device holds while a plan is executed: values that are permanent, and others that come and go.

    params, grads    flat arrays with views for the layers
    y, dy            arrays (units, ..., N), in which each unit is contiguous; some devices hold only some of the units
    cache, delta     what forward keeps for backward, and what I keeps for W

What computes with them is in compute.py. Everything here runs on the device, as work in its queue, with plain arrays.
"""

import itertools

import numpy as np

from ...base.free_list import FreeList
from ...devices import DeviceArray, array_module
from ...devices.transfer import copy_between
from ...layers import zero_moments
from ...networks import half_weights
from ...networks.compute import kernels_for
from ...networks.mixed import LossScale
from ..plan import COMPUTES, full_range, norms_of, shapes_of
from ..proof.sizes import owned_arrays, stage_output_shapes
from ..stages import in_shapes, splits_of, units_of_outputs, views
from .modes import EMPTY, REFERENCE


class Store:
    """A device's values in a plan. ``flat[s]``: the parameters of stage s, in one flat array on the host.

    ``extents``: for each value of gradients, the elements (start, stop) that the device has. ``modes``: the plan's
    `ExecutionModes`. ``mixed``: use mixed precision; its network rounds the inputs of layers (networks/mixed.py),
    weights are rounded where they are used, and ``precision`` is a loss scale.

    The attribute ``flat`` is one array with all of the device's parameters; ``own[s]`` is the part of it for stage s,
    and ``state[s]`` such parts of the optimiser's states. For each stage that the device computes, ``channels[s]``
    lists how many channels of each batch norm layer it has, ``running[s]`` its running means and variances, in the
    order of `init_statistics`, and ``moments[s]`` the layers' moments (3, C), over the micro-batches of a step.
    ``fixed``: arrays for values that need the same array in each step. ``spare``: arrays for stages' parameters and
    gradients that are free to be used again: new memory is slow, as the system zeroes each page.
    """

    def __init__(self, plan, number, device, flat, optimizer, extents, loss, modes, mixed):
        self.plan, self.device, self.optimizer, self.extents, self.loss = plan, device, optimizer, extents, loss
        network, stages = plan.network, plan.stages
        self.parts = {part.stage: part for part in sorted(plan.layout[number])}
        self.splits, self.units = splits_of(network, stages), units_of_outputs(network, stages)
        self.shapes, self.norms = ([find(stage, network) for stage in stages] for find in (shapes_of, norms_of))
        shapes = stage_output_shapes(network, stages)
        self.widths, self.images = [shape[0] for shape in shapes], [shape[1:] for shape in shapes]  # of y, all units
        self.layers = [network[stage.first : stage.stop] for stage in stages]
        self.random = [sum(layer.random for layer in network[: stage.first]) for stage in stages]  # before it
        self.dtype = flat[0].dtype
        self.flat, self.own = self._in_one_piece("params")
        self.set_params(flat)
        states = [self._in_one_piece("state")[1] for _ in range(optimizer.states)]
        self.state = {s: [own[s] for own in states] for s in self.parts}
        self.steps = 0  # updates of the optimiser; in mixed precision not every step has one
        self.mixed, self.precision, self.accepted = mixed, LossScale(mixed), True
        self.modes = {(s, m): mode for (i, s, m), mode in modes.of.items() if i == number}
        self.runs = {(s, m): run for (i, s, m), run in modes.runs.items() if i == number}
        none = self.new(0)
        self.kernels = kernels_for(none, [none])
        self.scratch = [{} for _ in stages]  # scratch memory
        self.idle = FreeList(2 * len(self.modes))  # passes that are not in use
        self.channels, self.running, self.moments = {}, {}, {}
        for s in sorted({s for s, _ in self.modes}):
            self.channels[s] = [len(range(*self.channels_of(s).indices(C))) for C in self.norms[s]]
            self.running[s] = [self.new(C) for C in self.channels[s] for _ in ("mean", "variance")]
            for i, array in enumerate(self.running[s]):
                array.fill(i % 2)
            self.moments[s] = [self.new((3, C), np.float64) for C in self.channels[s]]
        self.values, self.fixed, self.spare = {}, {}, {}
        self.unwritten = set()  # gradients that should be zero, but have not been set to zero yet

    def _in_one_piece(self, name):
        """An array of zeros for the device's "params" or "state", and its parts by stage."""
        bounds = [getattr(part, name) for part in self.parts.values()]
        ends = list(itertools.accumulate((stop - start for start, stop in bounds), initial=0))
        whole = self.new(ends[-1])
        whole.fill(0)
        return whole, {s: whole[a:b] for s, (a, b) in zip(self.parts, itertools.pairwise(ends), strict=True)}

    def new(self, shape, dtype=None):
        """A new array, which is not initialised."""
        return self.device.empty(shape, dtype or self.dtype)

    def set_params(self, flat):
        """Set the device's part of the parameters, from a flat host array for each stage."""
        for s, part in self.parts.items():
            self.own[s][...] = array_module(self.own[s]).asarray(flat[s][slice(*part.params)])

    def set(self, name, s, m, value):
        """Set a y, dy, cache or delta; a device with a memory limit counts it."""
        self.values[name, s, m] = value
        if self.device.accounting is not None:
            for array in owned_arrays(value, self.scratch[s]):
                if array.nbytes:
                    self.device.accounting.enter(array)

    def copy(self):
        """Two lists for a device with all parameters: these, and the running statistics, in the network's order."""
        params = in_shapes(self.flat, [shape for own in self.shapes for shape in own])
        running = [array for s in sorted(self.running) for array in self.running[s]]
        return [[DeviceArray(array, self.device) for array in arrays] for arrays in (params, running)]

    # For computations:

    def mode_of(self, action, examples=None):
        """The mode (modes.py) of a computation for a micro-batch; None for all other actions.

        ``examples``: how many examples each micro-batch has, by default those of the present minibatch.
        """
        if action.what not in COMPUTES:
            return None
        s, m = action.stage, action.micro_batch
        has_no_units = self.splits[s] is not None and not self.own[s].size
        if has_no_units or not (examples or self.minibatch.examples)[m]:
            return EMPTY
        return REFERENCE if self.kernels is None else self.modes[s, m]

    def is_last(self, s):
        """Whether the stage ends with the loss."""
        return s == len(self.layers) - 1

    def x(self, s, m):
        """The input of a stage (N, ...)."""
        return self.minibatch.X[m] if s == 0 else self._in_or_out("y", s - 1, m)

    def dy(self, s, m):
        """The gradient of a stage's output (N, ...); None if the stage ends with the loss."""
        return None if self.is_last(s) else self._in_or_out("dy", s, m)

    def _in_or_out(self, name, s, m):
        """A y or dy of stage s (N, ...); of dy, only the device's own units if the stage is split."""
        value = self.values.get((name, s, m))
        if value is None:  # the device has no units of the stage and needs nothing
            value = self.new((0, *self.images[s], self.minibatch.examples[m]))
        if name == "dy" and self.splits[s] is not None and len(value) == self.widths[s]:
            value = value[slice(*self._places(s))]
        return array_module(value).moveaxis(value, -1, 0)

    def params(self, s):
        """A stage's parameters, as its layers use them."""
        params = self.views(self.flat_of(("params", s)), s)
        return half_weights(params) if self.mixed else params

    def views(self, flat, s):
        """Views of a flat array, in the shapes of the stage's parameters."""
        return views(flat, self.splits[s], self.shapes[s])

    def new_moments(self, s):
        """An array for the moments of each batch norm layer of a stage."""
        return zero_moments(self.channels[s], array_module(self.flat))

    def draws(self, s, m):
        """The `Draws` for a stage's random layers. They depend on the examples and units, not on the device."""
        if self.minibatch.draws is None:
            return None
        split = self.splits[s]
        units = None if split is None else (*split.units_of(self.parts[s].params), split.units)
        return self.minibatch.draws._replace(first=sum(self.minibatch.examples[:m]), layer=self.random[s], units=units)

    def final(self, s):
        """The elements of a stage's gradients that the device uses for its updates."""
        return self.elements(("grads", s), self.parts[s].state)

    def elements(self, value, bounds):
        """Elements (start, stop) of a stage's parameters or gradients, as far as the device has them."""
        first = self.extent(value)[0]
        return self.flat_of(value)[slice(*(edge - first for edge in bounds))]

    def flat_of(self, value):
        """The flat array of params or grads; it is created when it is first used."""
        flat = self.room_for(value)
        if value in self.unwritten:
            flat.fill(0)
            self.unwritten.remove(value)
        return flat

    def room_for(self, value):
        """Like `flat_of`, but new gradients need not be set to zero yet."""
        kind, s = value[:2]
        if kind == "params" and self._always(s):
            return self.own[s]
        if value not in self.values:
            start, stop = self.extent(value)
            new = self.fixed[value] if value in self.fixed else self.spare.pop(value[:2], None)
            if new is None or new.size != stop - start:
                new = self.new(stop - start)
            self.values[value] = new
            if kind != "params":
                self.unwritten.add(value)
            elif s in self.own:
                new[slice(*self.parts[s].params)] = self.own[s]
        return self.values[value]

    # For transfers:

    def arrive(self, value, source):
        """Copy a value from ``source``, the sender's `Store`; return a mark of the copy's end, which makes an event."""
        copy = self.expect(value)
        copy_between(copy, self.device, source.exchanged(value), source.device)
        return self.device.mark()

    def expect(self, value):
        """Make an array for a whole y or dy from another device; return it in flat form."""
        self.values[value] = self._whole(value)
        return self.exchanged(value)

    def prepare(self, value):
        """Create a value's whole array for transfers, with the device's part filled in, and zeros elsewhere."""
        if value[0] not in ("y", "dy"):
            self.flat_of(value)
            return
        own, s = self.values.get(value), value[1]
        if own is None or len(own) < self.widths[s]:
            whole = self.values[value] = self._whole(value)
            whole.fill(0)
            if own is not None:
                whole[slice(*self._places(s))] = own

    def exchanged(self, value):
        """The flat array that transfers of a value use."""
        return self.values[value].reshape(-1) if value[0] in ("y", "dy") else self.flat_of(value)

    def extent(self, value):
        """The elements (start, stop) of a value, other than y or dy, that take part in this device's transfers."""
        kind, s = value[:2]
        if kind == "grads":
            return self.extents[value]
        return self.parts[s].params if self._always(s) else full_range(self.plan.stages[s])

    def channels_of(self, s):
        """The device's channels in a stage's batch norm layers, a slice."""
        return slice(None) if self.splits[s] is None else slice(*self.splits[s].units_of(self.parts[s].params))

    def _always(self, s):
        """Whether the device holds all parameters that it needs for the stage even between steps."""
        part = self.parts.get(s)
        return part is not None and (self.splits[s] is not None or part.params == full_range(self.plan.stages[s]))

    def _whole(self, value):
        """A new array for a y or dy with all its units."""
        return self.new((self.widths[value[1]], *self.images[value[1]], self.minibatch.examples[value[2]]))

    def _places(self, s):
        """Where the device's units of stage s are in its y: (start, stop) along the first axis."""
        each = self.widths[s] // self.units[s]
        return tuple(each * unit for unit in self.splits[s].units_of(self.parts[s].params))
