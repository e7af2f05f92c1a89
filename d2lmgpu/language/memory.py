"""How much memory a plan takes: what each device holds in each step, by kind, and the peak.

lives.py says when values exist; this module counts their bytes, but not temporary memory within a computation.
"""

import itertools
from typing import NamedTuple

import numpy as np

from .lives import lives_of
from .plan import all_of, norms_of
from .sizes import examples_in_each, stage_sizes
from .split import held_units, units_of_outputs
from .ways import KEPT, Ways

WIDE_ITEMSIZE = 8
"""Bytes per number in batch norm's moments, which are always float64."""

KINDS = ("parameters", "gradients", "state", "examples", "activations", "messages")
"""The kinds of memory. Parameters include batch norm's running statistics and moments, and examples include
their labels. State is the optimiser's. Activations are y, dy, caches and deltas that were made on the
device.

Messages are y and dy that came from other devices, or in which transfers put parts and shares together.
"""

OF_VALUES = {"params": "parameters", "grads": "gradients"}
"""The memory kind of each value; all others are activations, unless they came from other devices."""


class Held(NamedTuple):
    """What one device holds, in bytes: ``between`` steps, and at its ``peak``, which ``peak_of`` divides by kind.

    ``line``: pairs (step, bytes that it holds from the beginning of that step on).
    """

    between: int
    peak: int
    peak_of: dict
    line: list


def held_in_steps(plan, columns, batch_size, states, dtype, target_bytes=8, kernels=True):
    """The `Held` of each device, for ``batch_size`` examples and an optimiser with ``states`` arrays.

    ``target_bytes``: the bytes of an example's target.
    """
    facts, ways = Facts(plan, columns), Ways(plan, columns, kernels)
    memories = [
        _Memory(plan, device, len(columns), batch_size, states, np.dtype(dtype), target_bytes, facts, ways)
        for device in range(plan.k)
    ]
    lives = [life for life in lives_of(plan, columns) if not ways.is_nothing(life.device, life.value)]
    lives = [life._replace(begin=ways.early.get(life[:3], life.begin)) for life in lives]
    for device, *life in sorted(lives, key=lambda life: life.begin):
        memories[device].begin(*life)
    return [memory.held() for memory in memories]


def unit_bytes(plan, batch_size, dtype):
    """A function of a value: the bytes of one of its elements, or, for y and dy, of one unit for all its examples."""
    dtype, units = np.dtype(dtype), units_of_outputs(plan.network, plan.stages)
    sizes, examples = stage_sizes(plan.network, plan.stages, dtype), examples_in_each(batch_size, plan.micro_batches)

    def bytes_of(value):
        kind, s, *m = value
        if kind in ("y", "dy"):
            return sizes[s].whole(examples[m[0]]) // (units[s] or 1)
        return dtype.itemsize

    return bytes_of


def joined_values(plan, columns):
    """The y and dy that are sent in parts or shares. All others are sent whole, with their memory layout."""
    units, found = units_of_outputs(plan.network, plan.stages), set()
    for each in itertools.chain(*(moves for _, moves in columns)):
        if each.value[0] in ("y", "dy"):
            whole = (each.start == 0) & (each.stop == (units[each.value[1]] or 1))
            if each.op != "copy" or not whole.all():
                found.add(each.value)
    return found


class Facts:
    """The facts about a plan on which memory depends: `joined_values`, and the extents of gradients.

    ``extents``: for each value of gradients, two arrays: the start and the stop of each device's elements.
    """

    def __init__(self, plan, columns):
        self.plan, self.extents = plan, {}
        self.joined = joined_values(plan, columns)
        for computes, moves in columns:
            for each in moves:
                if each.target[0] == "grads":
                    self._note_elements(each.target, each.destination, each.start, each.stop)
            for compute in computes:
                if compute.what in "BW":
                    device, s = compute[1:3]
                    self._note_elements(compute.grads, [device], *self.computed_with(device, s))

    def _note_elements(self, value, devices, start, stop):
        if value not in self.extents:
            k, n = self.plan.k, self.plan.stages[value[1]].params
            self.extents[value] = np.full(k, n), np.zeros(k, np.int64)
        np.minimum.at(self.extents[value][0], devices, start)
        np.maximum.at(self.extents[value][1], devices, stop)

    def computed_with(self, device, s):
        """The elements (start, stop) of a stage's parameters with which the device computes."""
        if self.plan.stages[s].split is None:
            return all_of(self.plan.stages[s])
        return next(part.params for part in self.plan.layout[device] if part.stage == s)


class _Memory:
    """One device's memory: values `begin` to exist, one after the other, and at the end `held` adds them up."""

    def __init__(self, plan, device, count, batch_size, states, dtype, target_bytes, facts, ways):
        self.plan, self.device, self.itemsize, self.facts, self.ways = plan, device, dtype.itemsize, facts, ways
        self.units = held_units(plan, device)
        self.sizes = stage_sizes(plan.network, plan.stages, dtype, self.units)
        self.examples = examples_in_each(batch_size, plan.micro_batches)
        self.always, self.last = dict.fromkeys(KINDS, 0), {}  # by value, the arguments with which it was added last
        for part in plan.layout[device]:
            self.always["parameters"] += self.itemsize * (part.params[1] - part.params[0])
            self.always["state"] += states * self.itemsize * (part.state[1] - part.state[0])
        for s in {s for s, _ in ways.computed[device]}:
            channels = self._norm_channels(s)
            self.always["parameters"] += channels * (2 * self.itemsize + 3 * WIDE_ITEMSIZE)  # statistics and moments
        for stage, m in ways.computed[device]:
            if stage == 0:
                self.always["examples"] += self.sizes[0].x(self.examples[m])
            if stage == len(plan.stages) - 1:
                self.always["examples"] += target_bytes * self.examples[m]
        self.changes = np.zeros((count + 2, len(KINDS)), np.int64)  # in bytes, by step and kind
        self.changes[0] = list(self.always.values())

    def begin(self, value, begin, end, moved):
        """Let a value begin to exist, possibly in parts, which are joined into a whole array when it is ``moved``."""
        came = value[0] in ("y", "dy") and moved == begin
        nbytes, shared = (self._whole(value), None) if came else self._own_and_shared(value)
        kind = "messages" if came else OF_VALUES.get(value[0], "activations")
        if value in self.facts.joined and moved and nbytes != self._whole(value):
            self._add(value, kind, nbytes, begin, moved)  # until it is copied
            kind, nbytes, begin = "messages", self._whole(value), moved
        self._add(value, kind, nbytes, begin, end)
        if shared in self.last:
            kind, nbytes, first, last = self.last[shared]
            if first < begin and last < end:
                self._add(shared, kind, nbytes, last + 1, end)
                self.last[shared] = kind, nbytes, first, end

    def _add(self, value, kind, nbytes, begin, end):
        """Add an array that exists from step ``begin`` (from 1) to ``end``, both included."""
        self.changes[begin, KINDS.index(kind)] += nbytes
        self.changes[end + 1, KINDS.index(kind)] -= nbytes
        self.last[value] = kind, nbytes, begin, end

    def held(self):
        """The `Held` of all that has begun."""
        table = self.changes.cumsum(axis=0)
        total = table.sum(axis=1)
        line = [(number, int(total[number])) for number in np.flatnonzero(np.diff(total, prepend=-1)).tolist()]
        most = table[total.argmax()].tolist()
        between = int(total[0]) - self.always["examples"]
        return Held(between, sum(most), dict(zip(KINDS, most, strict=True)), line)

    def _norm_channels(self, s):
        """How many channels the device has of a stage's batch norm layers."""
        channels, units = norms_of(self.plan.stages[s], self.plan.network), self.units[s]
        return sum(channels) if units is None else len(channels) * units

    def _whole(self, value):
        return self.sizes[value[1]].whole(self.examples[value[2]])

    def _own_and_shared(self, value):
        """The bytes of the value's own array, and another value whose array it also has, or None."""
        kind, s, *m = value
        if kind == "params":
            return self.itemsize * self.plan.stages[s].params, None
        if kind == "grads":
            start, stop = self.facts.extents[value]
            return self.itemsize * max(0, int(stop[self.device] - start[self.device])), None
        if kind in ("cache", "delta") and self.units[s] == 0:
            return 0, None
        sizes, N = self.sizes[s], self.examples[m[0]]
        if kind == "delta":
            return sizes.delta(N), ("dy", s, *m) if sizes.delta_has_dy else None
        if kind == "cache" and self.ways.of[(self.device, s, *m)] == KEPT:
            return sizes.kept(N), None
        if kind == "cache":
            return sizes.cache(N), ("y", s - 1, *m) if sizes.cache_has_x and s else None
        return (sizes.y if kind == "y" else sizes.whole)(N), None
