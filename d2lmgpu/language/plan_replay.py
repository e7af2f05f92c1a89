"""What all devices hold while a plan is replayed: the rules of computations, beside those of transfers (replay.py).

Instead of numbers there are sets. What they say depends on the value:

    params      OLD or NEW: before or after the update
    grads       which micro-batches' contributions are in the sum
    y, dy       which shares are in the sum: where a stage is split so that it makes shares, one for each device's
                part of it; else there is one alone, the whole

Whatever a computation reads must be right: the sum of all shares, each once. So what it makes is what one device would
make that does everything, and a mistake is found where it is used first.
"""

import itertools

import numpy as np

from .actions import name_of
from .edges import edges_of, kind_of, last_mentioned
from .follow import diagnosis, follow
from .memory import joined_values
from .moves import Wrong
from .plan import Compute
from .replay import TWICE, Replay
from .split import splits_of

OLD, NEW = 1, 2


class PlanReplay(Replay):
    """Of a ``plan``, of whose steps ``columns`` are what `check_plan` gives."""

    def __init__(self, plan, columns):
        self.plan, self.columns, self.splits = plan, columns, splits_of(plan.network, plan.stages)
        self.parts = [{part.stage: part for part in parts} for parts in plan.layout]
        self.edges = edges_of(plan, columns, self.parts, self.splits)
        super().__init__(plan.k, lambda value: self.edges[kind_of(value)])
        self.borders = [  # between devices' parts of each stage
            sorted({stage.params, *(edge for own in self.parts if s in own for edge in own[s].params)})
            for s, stage in enumerate(plan.stages)
        ]
        self.kept_on_device = set()  # (cache or delta, device, stage, micro-batch)
        self.updated = set()  # (device, stage)
        self.used, self.nobody = {}, np.zeros(plan.k, bool)  # by value: whether a device's computations have used it
        self.joined = joined_values(plan, columns)
        self.persistent = [self._persistent(s) for s in range(len(plan.stages))]
        for s, places in enumerate(self.persistent):
            self.sums(("params", s))[places] = OLD
        self.ends = last_mentioned(columns)

    def _persistent(self, s):
        """Which devices hold which pieces of a stage's parameters between steps, (k, pieces)."""
        value = "params", s
        places = np.zeros((self.k, len(self.cuts(value)) - 1), bool)
        for device, own in enumerate(self.parts):
            if s in own:
                places[device, self.pieces(value, own[s].params)] = True
        lacking = ~places.any(axis=0)
        if lacking.any():
            element = self.cuts(value)[np.argmax(lacking)]
            raise Wrong(f"the layout: element {element} of the parameters of stage {s} is held by no device")
        return places

    def write(self, moves, number, pieces, sums):
        """As of `Replay`."""
        used = self.used.get(moves.target, self.nobody)[moves.destination[number]]
        if used.any() and moves.target in self.joined:  # caches have this very array
            t = moves.transfer(number[np.argmax(used)])
            raise Wrong(f"{t}: device {t.destination} has computed with {name_of(t.target or t.value)} already")
        if moves.op == "copy":
            for device in np.unique(moves.destination[number[used]]).tolist():
                self._forget(moves.target, device)
        super().write(moves, number, pieces, sums)

    def _forget(self, value, device):
        """What a device has computed with is gone when it is brought or made again (lives.py)."""
        gone = ~self.persistent[value[1]][device] if value[0] == "params" else slice(None)
        self.sums(value)[device, gone], self.fresh[value][device, gone] = None, 0
        if value in self.used:
            self.used[value][device] = False

    def pieces(self, value, bounds):
        """The pieces that elements (start, stop) are, as a slice."""
        return slice(*np.searchsorted(self.cuts(value), bounds).tolist())

    def run(self):
        """Replay all steps. Raises `Wrong`, which begins with the number of the step."""
        for computes, moves in self.columns:
            try:
                self.step(moves, computes)
            except Wrong as wrong:
                raise Wrong(f"step {self.number}: {wrong}") from None
        for s, places in enumerate(self.persistent):
            old = places & np.not_equal(self.sums(("params", s)), NEW).astype(bool)
            if old.any():
                device, piece = np.argwhere(old)[0].tolist()
                a, b = self.cuts(("params", s))[piece : piece + 2]
                raise Wrong(f"at the end: device {device}, elements {a} to {b} of params of stage {s}: not updated")
        for kind, device, s, m in sorted(self.kept_on_device):
            if kind == "delta" or s == len(self.plan.stages) - 1:
                self.waste(f"{kind} of stage {s}, micro-batch {m}, of device {device}: nobody uses it")
        for device, own in enumerate(self.parts):
            for s, part in own.items():
                if part.state[0] < part.state[1] and (device, s) not in self.updated:
                    raise Wrong(f"at the end: device {device} holds state of stage {s}, and has not updated it")

    def step(self, moves, computes=()):
        """The next step: whatever is read is read before anything is written."""
        self.number += 1
        arriving = [(each, self.read(each)) for each in moves]
        making = [(compute, *made) for compute in computes for made in self._computed(compute)]
        for (compute, value, _, _), each in itertools.product(making, moves):
            if value == each.target and (each.destination == compute.device).any():
                raise Wrong(f"{compute}: in the same step transfers write {name_of(value)}")
        for each, what in arriving:
            self.write(each, *what)
        for made in making:
            self._keep(*made)
        for value in self.held.keys() & self.ends.get(self.number, ()):
            self._end(value)

    def _keep(self, compute, value, some, sums):
        table, fresh, device = self.sums(value), self.fresh[value], compute.device
        if value[0] in ("y", "dy"):
            if fresh[device, some].any():
                self.waste(f"{compute}: {name_of(value)} is there already, and nobody has used it")
            self._forget(value, device)  # it makes a new array
        table[device, some], fresh[device, some] = sums, -self.number

    def _end(self, value):
        """No later step is about the value: what is wasted of it?"""
        unread = self.fresh[value] != 0
        if value[0] == "params":
            unread &= ~self.persistent[value[1]]
        if unread.any():
            device, piece = np.argwhere(unread)[0].tolist()
            self.waste(f"{name_of(value)} of device {device}: nobody uses it", abs(self.fresh[value][device, piece]))
        if value[0] != "params":
            del self.held[value], self.fresh[value]

    # What computations read, and make: (value, pieces, sums) each.

    def _computed(self, compute):
        try:
            yield from getattr(self, f"_{compute.what}")(*compute[1:4], compute.grads)
        except Wrong as wrong:
            raise Wrong(f"{compute}: {wrong}") from None

    def _F(self, device, s, m, _):  # noqa: N802
        self._use_params(device, s)
        if s:
            self._use(device, ("y", s - 1, m), *self._own_units(device, s, "rows", s - 1))
        start, stop = self._own(device, s)
        has_none = start == stop and self.plan.stages[s].params > 0
        self._set_aside("cache", device, s, m, alone=has_none or s == len(self.plan.stages) - 1)
        if s < len(self.plan.stages) - 1:
            yield self._made(device, ("y", s, m), s, "columns", "rows")

    def _B(self, device, s, m, grads):  # noqa: N802
        yield from self._I(device, s, m, grads)
        yield from self._W(device, s, m, grads)

    def _I(self, device, s, m, _):  # noqa: N802
        self._use_params(device, s)
        self._use_kept("cache", device, s, m)
        if s < len(self.plan.stages) - 1:
            self._use(device, ("dy", s, m), *self._own_units(device, s, "columns", s))
        self._set_aside("delta", device, s, m, alone=True)
        if s:
            yield self._made(device, ("dy", s - 1, m), s, "rows", "columns")

    def _W(self, device, s, m, grads):  # noqa: N802
        for kind in "cache", "delta":
            self._use_kept(kind, device, s, m)
            self.kept_on_device.remove((kind, device, s, m))
        some = self.pieces(grads, self._own(device, s))
        there = self.sums(grads)[device, some]
        there = np.where(np.equal(there, None).astype(bool), 0, there)
        if (there & 1 << m).any():
            raise Wrong("the gradients contain this micro-batch's contribution already")
        yield grads, some, there | 1 << m

    def _update(self, device, s, m, grads):
        part = self.parts[device].get(s)
        if part is None or part.state[0] == part.state[1]:
            raise Wrong("the layout gives this device nothing of this stage to update")
        self._use(device, ("params", s), part.state)
        self._use(device, grads, part.state)
        self.updated.add((device, s))
        yield ("params", s), self.pieces(grads, part.state), NEW

    def _own(self, device, s):
        """The elements of the stage with which the device computes: all, but of a split stage its own part."""
        if self.splits[s] is None:
            return 0, self.plan.stages[s].params
        if s not in self.parts[device]:
            raise Wrong("the layout gives this device no part of this stage")
        return self.parts[device][s].params

    def _own_units(self, device, s, split, of):
        """Where stage s is ``split`` so, the units of y of stage ``of`` that are about the device's part, in a list."""
        return [self.splits[s].units_of(self._own(device, s))] if self.plan.stages[s].split == split else []

    def _made(self, device, value, s, part, share):
        """What stage s makes of a y or dy: where it is split so, the device's ``part`` of it, or its ``share``."""
        units = self._own_units(device, s, part, value[1])
        some = self.pieces(value, units[0]) if units else slice(None)
        if self.plan.stages[s].split != share:
            return value, some, 1
        first, last = map(self.borders[s].index, self._own(device, s))
        return value, some, (1 << last) - (1 << first)

    def _use_params(self, device, s):
        self._use(device, ("params", s), self._own(device, s))

    def _set_aside(self, kind, device, s, m, alone):
        """A cache or delta is made, ``alone`` or with a y: for that a forward may be computed again."""
        if alone and (kind, device, s, m) in self.kept_on_device:
            self.waste(f"device {device}: {kind} of stage {s}, micro-batch {m}, is made again, and nobody has used it")
        self.kept_on_device.add((kind, device, s, m))

    def _use_kept(self, kind, device, s, m):
        if (kind, device, s, m) not in self.kept_on_device:
            raise Wrong(f"{kind} of stage {s}, micro-batch {m}, is not there")

    def _use(self, device, value, bounds=None):
        """The device reads the value, or these elements of it, and finds it right, or `Wrong` is raised."""
        table, some = self.sums(value), slice(None) if bounds is None else self.pieces(value, bounds)
        wrong = np.not_equal(table[device, some], self._all_shares(value)).astype(bool)
        if wrong.any():
            raise Wrong(self._what_is_wrong(device, value, (some.start or 0) + int(np.argmax(wrong))))
        self.used.setdefault(value, np.zeros(self.k, bool))[device] = True
        fresh = self.fresh[value][device]
        fresh[some] = 0
        fresh[fresh < 0] = 0

    def _all_shares(self, value):
        """What a right value's sums are."""
        kind, s = value[:2]
        if kind == "params":
            return OLD
        if kind == "grads":
            return (1 << self.plan.micro_batches) - 1
        made_by, share = (s, "rows") if kind == "y" else (s + 1, "columns")
        return (1 << len(self.borders[made_by]) - 1) - 1 if self.plan.stages[made_by].split == share else 1

    def _what_is_wrong(self, device, value, piece):
        kind, s = value[:2]
        found, cuts, where = self.sums(value)[device, piece], self.cuts(value).tolist(), ""
        if len(cuts) > 2:
            units = "elements" if kind in ("params", "grads") else "units"
            where = f", {units} {cuts[piece]} to {cuts[piece + 1]}"
        if kind == "grads":
            steps, everything = self.plan.steps[: self.number - 1], {*range(self.plan.micro_batches)}
            found = follow(steps, {}, cuts[piece], lambda action: _is_about_grads(action, s))
            return f"{name_of(value)}{where}: {diagnosis(found, everything, (device, value), _contributions)}"
        if kind == "params" and found is not None:
            return f"{name_of(value)}{where}: they are updated already"
        if found is None:
            return f"{name_of(value)}{where and where + ','} {'are' if kind == 'params' else 'is'} not there"
        return f"{name_of(value)}{where}: a share {'was added twice' if found == TWICE else 'is lacking'}"


def _is_about_grads(action, s):
    if isinstance(action, Compute):
        return action.stage == s and action.what in "BW"
    return (action.target or action.value)[:2] == ("grads", s)


def _contributions(micro_batches):
    names = ", ".join(map(str, micro_batches))
    many = len(micro_batches) > 1
    return f"the contribution{'s' if many else ''} of micro-batch {names} {'are' if many else 'is'}"
