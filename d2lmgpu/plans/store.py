"""What one device has while a plan is executed, and what each action does there.

Everything here runs on the device, with plain arrays, in the device's turn.
"""

from ..devices import array_module
from ..devices.records import timed
from ..devices.transfer import copy_between
from ..language.compute import axes_in_memory, backward, count_right, forward, input_backward, weight_backward
from ..language.plan import OF_MICRO_BATCHES, all_of, shapes_of
from ..language.sizes import arrays_in, memory_of, output_shapes
from ..language.split import splits_of, units_of_outputs, views
from ..timing import span


class Store:
    """A device's part of a plan. ``flat[s]``: the parameters of stage s, a flat array on the host."""

    def __init__(self, plan, number, device, flat, optimizer):
        self.plan, self.device, self.optimizer = plan, device, optimizer
        self.values, self.gathered, self.state = {}, {}, {}  # gathered: flat arrays of y and dy by key
        self.whole, self.part = ({"params": {}, "grads": {}} for _ in range(2))  # flat arrays by stage
        self.parts = {part.stage: part for part in plan.layout[number]}
        self.splits, self.units = splits_of(plan.network, plan.stages), units_of_outputs(plan.network, plan.stages)
        self.shapes = [shapes_of(stage, plan.network) for stage in plan.stages]
        self.widths = [shape[0] for shape in output_shapes(plan.network, plan.stages)]  # of y, all units
        self.layers = [plan.network[stage.first : stage.stop] for stage in plan.stages]
        self.X, self.y, self.losses = {}, {}, {}
        self.correct = {}  # of each micro-batch that ends here: for how many examples the largest logit is the label
        self.dtype = flat[0].dtype
        for s, part in self.parts.items():
            is_whole = part.params == all_of(plan.stages[s]) and self.splits[s] is None
            own = self._new(part.params[1] - part.params[0])
            own[...] = array_module(own).asarray(flat[s][slice(*part.params)])
            (self.whole if is_whole else self.part)["params"][s] = own
            self.state[s] = [self._zeros(part.state[1] - part.state[0]) for _ in range(optimizer.states)]

    def do(self, action, *numbers):
        """F, B, I, W, update or free."""
        getattr(self, f"_{action.what}")(action, *numbers)

    def arrive(self, key, source, record):
        """A copy of what ``source``, another `Store`, has sent; its result, a mark of its end, makes an event."""
        message, order = source.message(key)
        copy = self.device.empty(message.shape, message.dtype)
        timed(record, copy_between, copy, self.device, message, source.device)
        self.accept(key, copy, order)
        return self.device.mark()

    def message(self, key):
        """What is sent of a value: its elements as one run of bytes, and the order of its axes in there."""
        order = axes_in_memory(self.values[key])
        return self.values[key].transpose(order), order

    def accept(self, key, message, order):
        """A value has come, as `message` of another store gives it."""
        self.values[key] = message.transpose(sorted(range(len(order)), key=order.__getitem__))

    def gather(self, s):
        """Before a collective of params: the whole array is there, with what this device holds in its place."""
        if s not in self.whole["params"]:
            whole = self.whole["params"][s] = self._new(self.plan.stages[s].params)
            if s in self.parts:
                whole[slice(*self.parts[s].params)] = self.part["params"][s]

    def put_together(self, key):
        """Before a collective of y or dy: the whole array is there, unit by unit, zero where the device has nothing."""
        if key in self.gathered:
            return
        value, s = self.values[key], key[1]
        whole = self.device.empty((self.widths[s], len(value), *value.shape[2:]), value.dtype)
        if value.shape[1] < self.widths[s]:
            whole.fill(0)
        whole[slice(*self._place(key, value))] = value.swapaxes(0, 1)
        self.values[key] = whole.swapaxes(0, 1)
        self.gathered[key] = whole.reshape(-1)

    def exchanged(self, action):
        """The flat array that a collective is about."""
        if action.value in ("y", "dy"):
            return self.gathered[action.key]
        return self._computed_with(action.stage)[action.value][action.stage]

    def own_params(self, s):
        """The parameters that the layout gives this device."""
        return (self.part if s in self.part["params"] else self.whole)["params"][s]

    def _F(self, action):  # noqa: N802
        _, s, m = action[:3]
        x = self.X[m] if s == 0 else self._own("y", s - 1, m, s, "rows")
        is_last = s == len(self.layers) - 1
        with span("forward"):
            y, cache = forward(self.layers[s], x, self._params(s), self.y[m] if is_last else None)
        if is_last:
            self.losses[m] = y
            self.correct[m] = count_right(cache)
        else:
            self._keep("y", s, m, y)
        self._keep("cache", s, m, cache)

    def _B(self, action):  # noqa: N802
        _, s, m = action[:3]
        with span("backward"):
            dx = backward(*self._backward_inputs(s, m), self._grads(s))
        if s:
            self._keep("dy", s - 1, m, dx)

    def _I(self, action):  # noqa: N802
        _, s, m = action[:3]
        with span("backward"):
            dx, delta = input_backward(*self._backward_inputs(s, m))
        if s:
            self._keep("dy", s - 1, m, dx)
        self._keep("delta", s, m, delta)

    def _W(self, action):  # noqa: N802
        _, s, m = action[:3]
        with span("backward"):
            weight_backward(self.layers[s], self.values["delta", s, m], self.values["cache", s, m], self._grads(s))

    def _update(self, action, step, lr, batch_size):
        s = action.stage
        arrays = self._updated("params", s), self._updated("grads", s), *self.state[s]
        self.optimizer.update(*([array] for array in arrays), step, lr, batch_size)

    def _updated(self, name, s):
        """Of params or grads, of the part or else of the whole array, the elements that this device updates."""
        part, own = self.parts[s], self.part[name].get(s)
        flat, first = (self.whole[name][s], 0) if own is None else (own, getattr(part, name)[0])
        return flat[slice(*(edge - first for edge in part.state))]

    def _free(self, action):
        s, name = action.stage, action.value
        if name in OF_MICRO_BATCHES:
            del self.values[action.key]
            self.gathered.pop(action.key, None)
            return
        if action.part is None:
            self.part[name].pop(s, None)
        elif name == "grads":
            kept = self.whole[name][s][slice(*action.part)]
            if s not in self.part[name]:
                self.part[name][s] = self._zeros(kept.size)
            self.part[name][s] += kept
        self.whole[name].pop(s, None)

    def _backward_inputs(self, s, m):
        dy = None if s == len(self.layers) - 1 else self._own("dy", s, m, s, "columns")
        return self.layers[s], dy, self.values["cache", s, m], self._params(s), s == 0

    def _own(self, name, of, m, s, split):
        """A y or dy of stage ``of``; where stage s has that ``split`` its own units, of which there may be more."""
        value = self.values[name, of, m]
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

    def _computed_with(self, s):
        """The flat arrays with which stage s is computed: whole ones, or of a split stage the device's part."""
        return self.whole if self.splits[s] is None else self.part

    def _params(self, s):
        return self._views(self._computed_with(s)["params"][s], s)

    def _grads(self, s):
        held = self._computed_with(s)
        if s not in held["grads"]:
            held["grads"][s] = self._zeros(held["params"][s].size)
        return self._views(held["grads"][s], s)

    def _views(self, flat, s):
        split = self.splits[s]
        return views(flat, split, self.shapes[s], None if split is None else self.parts[s].params)

    def _new(self, size):
        return self.device.empty(size, self.dtype)

    def _zeros(self, size):
        array = self._new(size)
        array.fill(0)
        return array

    def _keep(self, name, s, m, value):
        self.values[name, s, m] = value
        if self.device.accounting is not None:
            for array in arrays_in(value):
                if memory_of(array).nbytes:
                    self.device.accounting.enter(array)
