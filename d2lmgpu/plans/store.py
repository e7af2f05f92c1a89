"""What one device has while a plan is executed, and what each action does there.

Everything here runs on the device, with plain arrays, in the device's turn.
"""

from ..devices import array_module
from ..devices.records import timed
from ..devices.transfer import copy_between
from ..language.compute import axes_in_memory, backward, forward, input_backward, weight_backward
from ..language.plan import all_of, shapes_of
from ..language.sizes import arrays_in, memory_of, output_shapes
from ..language.split import splits_of, units_of_outputs, views
from ..timing import span


class Store:
    """A device's part of a plan. ``flat[s]``: the parameters of stage s, a flat array on the host.

    ``extents``: by gradients the elements (start, stop) that the device has of them.
    """

    def __init__(self, plan, number, device, flat, optimizer, extents, loss):
        self.plan, self.device, self.optimizer, self.extents, self.loss = plan, device, optimizer, extents, loss
        self.values, self.joined, self.own, self.state = {}, {}, {}, {}  # joined: flat arrays of y and dy
        self.parts = {part.stage: part for part in plan.layout[number]}
        self.splits, self.units = splits_of(plan.network, plan.stages), units_of_outputs(plan.network, plan.stages)
        self.shapes = [shapes_of(stage, plan.network) for stage in plan.stages]
        shapes = output_shapes(plan.network, plan.stages)
        self.widths, self.images = [shape[0] for shape in shapes], [shape[1:] for shape in shapes]  # of y, all units
        self.layers = [plan.network[stage.first : stage.stop] for stage in plan.stages]
        self.X, self.y, self.examples = {}, {}, []
        self.draws = None
        self.sums = {}  # of each micro-batch that ends here: the loss, and for how many examples the output is right
        self.random = [sum(layer.random for layer in plan.network[: stage.first]) for stage in plan.stages]  # before it
        self.dtype = flat[0].dtype
        for s, part in self.parts.items():
            own = self.own[s] = self._new(part.params[1] - part.params[0])
            own[...] = array_module(own).asarray(flat[s][slice(*part.params)])
            self.state[s] = [self._zeros(part.state[1] - part.state[0]) for _ in range(optimizer.states)]

    def clear(self):
        """Forget what is of one step alone."""
        for values in self.values, self.joined, self.X, self.y, self.sums:
            values.clear()

    def do(self, action, *numbers):
        """F, B, I, W, update, keep or free."""
        getattr(self, f"_{action.what}")(action, *numbers)

    def arrive(self, value, source, record):
        """A copy of what ``source``, another `Store`, has sent; its result, a mark of its end, makes an event."""
        message, order = source.message(value)
        copy = self.device.empty(message.shape, message.dtype)
        timed(record, copy_between, copy, self.device, message, source.device)
        self.accept(value, copy, order)
        return self.device.mark()

    def message(self, value):
        """What is sent of a value: its elements as one run of bytes, and the order of its axes in there."""
        order = axes_in_memory(self.values[value])
        return self.values[value].transpose(order), order

    def accept(self, value, message, order):
        """A value has come, as `message` of another store gives it."""
        self.values[value] = message.transpose(sorted(range(len(order)), key=order.__getitem__))

    def extent(self, value):
        """The elements (start, stop) of what transfers of parameters or gradients are about here."""
        s = value[1]
        if value[0] == "grads":
            return self.extents[value]
        return self.parts[s].params if self._always(s) else all_of(self.plan.stages[s])

    def prepare(self, value):
        """Before transfers of a value: the array is there that they are about, with what the device has of it."""
        if value[0] in ("y", "dy"):
            self._join(value)
        else:
            self._flat(value)

    def exchanged(self, value):
        """The flat array that transfers are about."""
        return self.joined[value] if value[0] in ("y", "dy") else self._flat(value)

    def _always(self, s):
        """Whether it has between steps all that it needs of the stage's parameters."""
        part = self.parts.get(s)
        return part is not None and (self.splits[s] is not None or part.params == all_of(self.plan.stages[s]))

    def _flat(self, value):
        """The flat array of params or grads; it comes into being when it is asked for."""
        kind, s = value[:2]
        if kind == "params" and self._always(s):
            return self.own[s]
        if value not in self.values:
            start, stop = self.extent(value)
            self.values[value] = self._zeros(stop - start) if kind == "grads" else self._new(stop)
            if kind == "params" and s in self.own:
                self.values[value][slice(*self.parts[s].params)] = self.own[s]
        return self.values[value]

    def _join(self, value):
        """The whole of a y or dy is there, unit by unit, zero where the device has nothing."""
        if value in self.joined:
            return
        _, s, m = value
        own = self.values.get(value)
        width = 0 if own is None else own.shape[1]
        whole = self.device.empty((self.widths[s], self.examples[m], *self.images[s]), self.dtype)
        if width < self.widths[s]:
            whole.fill(0)
        if width:
            whole[slice(*self._place(value, own))] = own.swapaxes(0, 1)
        self.values[value] = whole.swapaxes(0, 1)
        self.joined[value] = whole.reshape(-1)

    def _F(self, action):  # noqa: N802
        _, s, m = action[:3]
        x = self.X[m] if s == 0 else self._own("y", s - 1, m, s, "rows")
        is_last = s == len(self.layers) - 1
        targets = self.y[m] if is_last else None
        with span("forward"):
            y, cache = forward(self.layers[s], x, self._params(s), targets, self.loss, self._draws(s, m))
        if is_last:
            self.sums[m] = y
        else:
            self._set("y", s, m, y)
        self._set("cache", s, m, cache)

    def _draws(self, s, m):
        """What a stage's random layers draw from: it depends on examples and units, wherever they are."""
        if self.draws is None:
            return None
        columns = self.splits[s] is not None and self.splits[s].what == "columns"
        units = (*self.splits[s].units_of(self.parts[s].params), self.splits[s].units) if columns else None
        return self.draws._replace(first=sum(self.examples[:m]), layer=self.random[s], units=units)

    def _B(self, action):  # noqa: N802
        _, s, m = action[:3]
        with span("backward"):
            dx = backward(*self._backward_inputs(s, m), self._grads(action), self.loss)
        if s:
            self._set("dy", s - 1, m, dx)

    def _I(self, action):  # noqa: N802
        _, s, m = action[:3]
        with span("backward"):
            dx, delta = input_backward(*self._backward_inputs(s, m), None, self.loss)
        if s:
            self._set("dy", s - 1, m, dx)
        self._set("delta", s, m, delta)

    def _W(self, action):  # noqa: N802
        _, s, m = action[:3]
        with span("backward"):
            weight_backward(self.layers[s], self.values["delta", s, m], self.values["cache", s, m], self._grads(action))

    def _update(self, action, step, lr, batch_size):
        s, part = action.stage, self.parts[action.stage]
        first = self.extents["grads", s][0]
        params = self.own[s][slice(*(edge - part.params[0] for edge in part.state))]
        grads = self._flat(("grads", s))[slice(*(edge - first for edge in part.state))]
        self.optimizer.update([params], [grads], *([array] for array in self.state[s]), step, lr, batch_size)

    def _keep(self, action):
        arrays = []
        for value in action.target, action.value:
            start = self.extent(value)[0]
            arrays.append(self._flat(value)[slice(*(edge - start for edge in action.bounds))])
        arrays[0] += arrays[1]

    def _free(self, action):
        self.values.pop(action.value, None)
        self.joined.pop(action.value, None)

    def _backward_inputs(self, s, m):
        dy = None if s == len(self.layers) - 1 else self._own("dy", s, m, s, "columns")
        return self.layers[s], dy, self.values["cache", s, m], self._params(s), s == 0

    def _own(self, name, of, m, s, split):
        """A y or dy of stage ``of``; where stage s has that ``split`` its own units, of which there may be more."""
        value = self.values.get((name, of, m))
        if value is None:  # the device has no units of the stage, and needs nothing
            value = self._new((self.examples[m], 0, *self.images[of]))
        if self.splits[s] is None or self.splits[s].what != split or value.shape[1] < self.widths[of]:
            return value
        return value[:, slice(*self._places(of, s))]

    def _place(self, key, value):
        """Where in the whole y or dy its ``value`` is, (start, stop) of the width."""
        name, of, _ = key
        if value.shape[1] == self.widths[of]:
            return 0, self.widths[of]
        return self._places(of, of if name == "y" else of + 1)

    def _places(self, of, s):
        """Where in the width of y of stage ``of`` this device's units of stage s are."""
        each = self.widths[of] // self.units[of]
        return tuple(each * unit for unit in self.splits[s].units_of(self.parts[s].params))

    def _params(self, s):
        return self._views(self._flat(("params", s)), s)

    def _grads(self, action):
        return self._views(self._flat(action.target), action.stage)

    def _views(self, flat, s):
        split = self.splits[s]
        return views(flat, split, self.shapes[s], None if split is None else self.parts[s].params)

    def _new(self, shape):
        return self.device.empty(shape, self.dtype)

    def _zeros(self, size):
        array = self._new(size)
        array.fill(0)
        return array

    def _set(self, name, s, m, value):
        self.values[name, s, m] = value
        self.joined.pop((name, s, m), None)  # of what was made before
        if self.device.accounting is not None:
            for array in arrays_in(value):
                if memory_of(array).nbytes:
                    self.device.accounting.enter(array)
