"""How much memory a plan takes: what each device holds in each step, by kind, and the peak.

live_ranges.py says when values exist; this module counts their bytes, but not temporary memory within a computation.
"""

import itertools
from typing import NamedTuple

import numpy as np

from ..execution.modes import CACHED, REFERENCE, ExecutionModes
from ..plan import computed_with, norms_of
from ..stages import held_units, units_of_outputs
from .live_ranges import live_ranges
from .sizes import examples_in_each, stage_sizes

WIDE_ITEMSIZE = 8
"""Bytes per number in batch norm's moments, which are always float64."""

KINDS = ("parameters", "gradients", "state", "examples", "activations", "messages")
"""The kinds of memory. Parameters include batch norm's running statistics and moments, and examples their labels.
State is the optimiser's. Activations are y, dy, caches and deltas that the device has made; messages are y and dy that
came from other devices, or in which transfers put parts and shares together.
"""

OF_VALUES = {"params": "parameters", "grads": "gradients"}
"""The memory kind of each value; all others are activations, unless they came from other devices."""


class MemoryUse(NamedTuple):
    """What one device holds, in bytes: ``between`` steps, and at its ``peak``, which ``peak_of`` divides by kind.

    ``line``: pairs (step, bytes that it holds from the beginning of that step on).
    """

    between: int
    peak: int
    peak_of: dict
    line: list


def held_in_steps(plan, columns, batch_size, states, dtype, target_bytes=8):
    """The `MemoryUse` of each device, for ``batch_size`` examples and an optimiser with ``states`` arrays.

    ``target_bytes``: the bytes of an example's target.
    """
    modes, lives = ExecutionModes(plan, columns), [[] for _ in plan.layout]
    for life in live_ranges(plan, columns):
        if not modes.is_nothing(life.device, life.value):
            lives[life.device].append(life._replace(begin=modes.early.get(life[:3], life.begin)))
    extents, joined = extents_of_grads(plan, columns), joined_values(plan, columns)
    held = []
    for device, own in enumerate(lives):
        memory = _Memory(plan, device, batch_size, np.dtype(dtype), modes, extents, joined)
        always = memory.always(states, target_bytes)
        changes = np.zeros((len(columns) + 2, len(KINDS)), np.int64)  # in bytes, by step and kind
        changes[0] = list(always.values())
        for kind, nbytes, begin, end in memory.arrays(sorted(own, key=lambda life: life.begin)):
            changes[begin, KINDS.index(kind)] += nbytes
            changes[end + 1, KINDS.index(kind)] -= nbytes
        table = changes.cumsum(axis=0)
        total = table.sum(axis=1)
        line = [(number, int(total[number])) for number in np.flatnonzero(np.diff(total, prepend=-1)).tolist()]
        most = table[total.argmax()].tolist()
        between = int(total[0]) - always["examples"]
        held.append(MemoryUse(between, sum(most), dict(zip(KINDS, most, strict=True)), line))
    return held


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


def extents_of_grads(plan, columns):
    """For each value of gradients, two arrays: the start and the stop of each device's elements."""
    extents = {}
    for computes, moves in columns:
        added = [(each.target, each.destination, each.start, each.stop) for each in moves if each.target[0] == "grads"]
        added += [(c.grads, [c.device], *computed_with(plan, c.device, c.stage)) for c in computes if c.what in "BW"]
        for value, devices, start, stop in added:
            if value not in extents:
                extents[value] = np.full(plan.k, plan.stages[value[1]].params), np.zeros(plan.k, np.int64)
            np.minimum.at(extents[value][0], devices, start)
            np.maximum.at(extents[value][1], devices, stop)
    return extents


class _Memory:
    """The arrays of one device."""

    def __init__(self, plan, device, batch_size, dtype, modes, extents, joined):
        self.plan, self.device, self.itemsize = plan, device, dtype.itemsize
        self.modes, self.extents, self.joined = modes, extents, joined
        self.units = held_units(plan, device)
        self.sizes = stage_sizes(plan.network, plan.stages, dtype, self.units)
        self.examples = examples_in_each(batch_size, plan.micro_batches)

    def always(self, states, target_bytes):
        """The bytes, by kind, of what the device holds during the whole step."""
        found, computed = dict.fromkeys(KINDS, 0), self.modes.computed[self.device]
        channels = 0  # of batch norm layers
        for s in {s for s, _ in computed}:
            norms, units = norms_of(self.plan.stages[s], self.plan.network), self.units[s]
            channels += sum(norms) if units is None else len(norms) * units
        found["parameters"] = channels * (2 * self.itemsize + 3 * WIDE_ITEMSIZE)  # statistics and moments
        for part in self.plan.layout[self.device]:
            found["parameters"] += self.itemsize * (part.params[1] - part.params[0])
            found["state"] += states * self.itemsize * (part.state[1] - part.state[0])
        for stage, m in computed:
            if stage == 0:
                found["examples"] += self.sizes[0].x(self.examples[m])
            if stage == len(self.plan.stages) - 1:
                found["examples"] += target_bytes * self.examples[m]
        return found

    def arrays(self, lives):
        """A list of (kind, bytes, first step, last step), steps from 1, for lives in the order in which they begin."""
        found, last = [], {}  # by value, its last array
        for _, value, begin, end, moved in lives:
            is_moved = value[0] in ("y", "dy") and moved
            nbytes, kind = self._own(value), OF_VALUES.get(value[0], "activations")
            if is_moved and moved > begin and value in self.joined and nbytes != self._whole(value):
                found.append((kind, nbytes, begin, moved))  # a part, until it is copied into the whole array
                begin = moved
            if is_moved and moved == begin:
                nbytes, kind = self._whole(value), "messages"
            last[value] = [kind, nbytes, begin, end]
            found.append(last[value])
            shared = last.get(self._shared(value))
            if shared and shared[2] < begin:
                shared[3] = max(shared[3], end)
        return found

    def _whole(self, value):
        return self.sizes[value[1]].whole(self.examples[value[2]])

    def _own(self, value):
        """The bytes of the value as the device makes it, without what it shares."""
        kind, s, *m = value
        if kind == "params":
            return self.itemsize * self.plan.stages[s].params
        if kind == "grads":
            start, stop = self.extents[value]
            return self.itemsize * max(0, int(stop[self.device] - start[self.device]))
        if kind in ("cache", "delta") and self.units[s] == 0:
            return 0
        sizes, N = self.sizes[s], self.examples[m[0]]
        if kind == "cache":
            return (sizes.kept if self.modes.of[(self.device, s, *m)] == CACHED else sizes.cache)(N)
        return {"y": sizes.y, "dy": sizes.whole, "delta": sizes.delta}[kind](N)

    def _shared(self, value):
        """Another value whose array the cache or delta of layers as they are written also has, or None."""
        kind, s, *m = value
        if kind == "delta" and self.sizes[s].delta_has_dy and self.units[s] != 0:
            return ("dy", s, *m)
        is_written = kind == "cache" and self.modes.of[(self.device, s, *m)] == REFERENCE
        return ("y", s - 1, *m) if is_written and self.sizes[s].cache_has_x and self.units[s] != 0 else None
