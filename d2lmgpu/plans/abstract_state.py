"""The abstract state of one device while a plan is proved: what it holds, and what each kind of action does to that.

All raise `Wrong` where an action does what it must not; `prove` adds where that was.
"""

import numpy as np

from ..language.plan import OF_MICRO_BATCHES, all_of
from .abstract_values import GONE, Counts, Flat, Value, Wrong
from .memory import FLAT_KINDS


class AbstractState:
    """Device ``number`` of the plan. ``cuts[s]``: where the parameters of stage s are cut into pieces.

    ``units``: the plan's `UnitTables`.
    """

    def __init__(self, plan, number, cuts, units, memory):
        self.plan, self.number, self.cuts, self.units, self.memory = plan, number, cuts, units, memory
        self.values = {}  # (name, stage, micro_batch): Value
        self.contributed = set()  # (stage, micro_batch)
        self.parts = {part.stage: part for part in plan.layout[number]}
        self.params, self.grads = ([Flat() for _ in cuts] for _ in range(2))
        for s, part in self.parts.items():
            params, versions = self.params[s], np.zeros(len(cuts[s]) - 1, int)
            if part.params == all_of(plan.stages[s]) and not plan.stages[s].split:
                params.whole = versions
            else:
                params.part = versions[self.piece(s, part.params)]

    def piece(self, stage, bounds):
        """The pieces that elements (start, stop) are, as a slice."""
        start, stop = (self.cuts[stage].index(edge) for edge in bounds)
        return slice(start, stop)

    def flat(self, value, s):
        """The stage's params or grads, a `Flat`."""
        return (self.params if value == "params" else self.grads)[s]

    def do(self, action):
        """Any action but a collective."""
        {"F": self.forward, "B": self.backward, "I": self.backward, "W": self.weights, "update": self.update}.get(
            action.what, getattr(self, action.what, None)
        )(action)

    # What is computed:

    def forward(self, action):
        _, s, m = action[:3]
        version = self._params(s)
        if s:
            self._use("y", s - 1, m, by=s if self.plan.stages[s].split == "rows" else None)
        if s < len(self.plan.stages) - 1:
            self._make("y", s, m, counts=self._made(s, back=False))
        self._make("cache", s, m, version)

    def backward(self, action):
        what, s, m = action[:3]
        version = self._params(s)
        cache = self._use("cache", s, m)
        if cache.version != version:
            raise Wrong("its parameters have changed since the forward of this micro-batch")
        if s < len(self.plan.stages) - 1:
            self._use("dy", s, m, by=s if self.plan.stages[s].split == "columns" else None)
        if s:
            self._make("dy", s - 1, m, counts=self._made(s, back=True))
        if what == "I":
            self._make("delta", s, m)
        else:
            self._contribute(s, m)

    def weights(self, action):
        _, s, m = action[:3]
        self._use("cache", s, m)
        self._use("delta", s, m)
        self._contribute(s, m)

    def update(self, action):
        s = action.stage
        if s not in self.parts or not np.diff(self.parts[s].state):
            raise Wrong("the layout gives this device nothing of this stage to update")
        params, grads = self.params[s], self.grads[s]
        if params.whole is not None and params.part is not None:
            raise Wrong("its part of the parameters is to be updated, and the gathered ones are not freed")
        if grads.whole is not None and self.parts[s].grads != all_of(self.plan.stages[s]):
            raise Wrong("gradients that are not its own, by the layout, are not freed")
        held, rows = self._updated("params", s)
        versions = held[rows]
        if (versions == GONE).any():
            raise Wrong("parameters that it updates are not there")
        if versions.any():
            raise Wrong("the parameters are updated already")
        counts, rows = self._updated("grads", s)
        fault = counts.rows(rows).fault(self.plan.micro_batches)
        if fault is not None:
            m, found = fault
            raise Wrong(f"the contribution of micro-batch {m} is {f'counted {found} times' if found else 'lacking'}")
        versions[:] = 1
        grads.used = params.used = True

    def _updated(self, value, s):
        """What is known of params or grads, of the whole or else of the part, and the rows of it that it updates."""
        flat, part = self.flat(value, s), self.parts[s]
        held, bounds = flat.whole, all_of(self.plan.stages[s])
        if held is None:
            held, bounds = flat.part, getattr(part, value)
        if held is None or not bounds[0] <= part.state[0] <= part.state[1] <= bounds[1]:
            raise Wrong(f"{FLAT_KINDS[value]} that it needs are not there")
        pieces, first = self.piece(s, part.state), self.piece(s, bounds).start
        return held, slice(pieces.start - first, pieces.stop - first)

    # What is moved:

    def send(self, action):
        self._use(*action.key)
        self.memory.send(action)

    def receive(self, action):
        self._make(*action.key, is_message=True)

    def free(self, action):
        if action.value in OF_MICRO_BATCHES:
            value = self._there(*action.key)
            if not value.used:
                raise Wrong("it has not been used: it was made for nothing")
            del self.values[action.key]
            self.memory.drop(action.key)
            return
        flat = self.flat(action.value, action.stage)
        if flat.whole is None and flat.part is None:
            raise Wrong("there is nothing to free")
        if not flat.used:
            raise Wrong(f"the {action.value} have not been used: they came or were made for nothing")
        if action.part is not None:
            self._keep_part(flat, action)
        elif flat.part is not None:
            self.memory.change(action.value, -np.diff(getattr(self.parts[action.stage], action.value))[0])
            flat.part = None
        if flat.whole is not None:
            self.memory.change(action.value, -self.plan.stages[action.stage].params)
            flat.whole = None

    def _keep_part(self, flat, action):
        """Before the whole array is freed: its elements ``action.part`` are kept, or added to what is."""
        if flat.whole is None:
            raise Wrong("there is nothing to free but what is kept")
        pieces = self.piece(action.stage, action.part)
        own = self.parts.get(action.stage)
        if (
            own is None
            or action.part != getattr(own, action.value)
            or action.part == all_of(self.plan.stages[action.stage])
        ):
            raise Wrong(f"{action.part} is not the part that the layout gives this device")
        if action.value == "params":
            if (flat.part != flat.whole[pieces]).any():
                raise Wrong("the part that it keeps is not the same as in the whole")
        elif flat.part is None:
            flat.part = flat.whole.rows(pieces)
            self.memory.change("grads", action.part[1] - action.part[0])
            self.memory.look()
        else:
            flat.part = flat.part.plus(flat.whole.rows(pieces))

    def gather(self, s):
        """Before a collective of params: the whole array is there, with what this device holds in its place."""
        params = self.params[s]
        if params.whole is None:
            params.whole = np.full(len(self.cuts[s]) - 1, GONE)
            if params.part is not None:
                params.whole[self.piece(s, self.parts[s].params)] = params.part
            self.memory.change("params", self.plan.stages[s].params)

    # The end:

    def left(self):
        """What is wrong at the end of the step, or None."""
        for name, s, m in self.values:
            return f"{name} of stage {s}, micro-batch {m}, is never freed"
        for s in range(len(self.plan.stages)):
            if self.grads[s].whole is not None or self.grads[s].part is not None:
                return f"grads of stage {s} are never freed"
            params, own = self.params[s], self.parts.get(s)
            if params.whole is not None and (params.part is not None or own is None):
                return f"parameters of stage {s} that were gathered are never freed"
            if own is not None:
                if params.whole is None and params.part is None:
                    return f"parameters of stage {s} are lacking"
                if ((params.part if params.whole is None else params.whole) != 1).any():
                    return f"parameters of stage {s} are not updated"
        return None

    def _params(self, s):
        """The version of the stage's parameters, all of which must be there, or all of the device's part."""
        params = self.params[s]
        versions = params.part if self.plan.stages[s].split else params.whole
        if versions is None or (versions == GONE).any():
            raise Wrong("the stage's parameters are not all there")
        if len(versions) and (versions != versions[0]).any():
            raise Wrong("some of the stage's parameters are updated and some are not")
        params.used = True
        return int(versions[0]) if len(versions) else 0

    def _made(self, s, back):
        """What is there of what stage s makes, y or dy of the stage before."""
        return self.units.made(s, self.parts[s].params, back) if self.plan.stages[s].split else None

    def _there(self, name, s, m):
        value = self.values.get((name, s, m))
        if value is None:
            raise Wrong(f"{name} of stage {s}, micro-batch {m}, is not there")
        return value

    def _use(self, name, s, m, by=None):
        """The value is used: all of it, or what is the device's own by its part of stage ``by``."""
        value = self._there(name, s, m)
        if value.counts is not None:
            lacks = self.units.lacks(
                value.counts, s, *([] if by is None else [self.units.own(s, by, self.parts[by].params)])
            )
            if lacks:
                raise Wrong(f"{name} of stage {s}, micro-batch {m}: {lacks}")
        value.used = True
        return value

    def _make(self, name, s, m, version=None, is_message=False, counts=None):
        if (name, s, m) in self.values:
            raise Wrong(f"{name} of stage {s}, micro-batch {m}, is there already")
        self.values[name, s, m] = Value(version, counts)
        self.memory.add((name, s, m), is_message)

    def _contribute(self, s, m):
        """The gradients of the stage's elements that it has, of one micro-batch, are added to what there is."""
        stage, grads = self.plan.stages[s], self.grads[s]
        if (s, m) in self.contributed:
            raise Wrong("the gradients contain this micro-batch's contribution already")
        self.contributed.add((s, m))
        bounds = self.parts[s].params if stage.split else all_of(stage)
        if bounds[0] == bounds[1]:
            return
        name = "part" if stage.split else "whole"
        before, pieces = getattr(grads, name), self.piece(s, bounds)
        counts = Counts.of_one(m, pieces.stop - pieces.start)
        if before is None:
            self.memory.change("grads", bounds[1] - bounds[0])
        elif m in before.columns:
            raise Wrong("the gradients contain this micro-batch's contribution already")
        else:
            counts = before.plus(counts)
        setattr(grads, name, counts)
        grads.used = False
