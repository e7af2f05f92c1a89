"""How much memory a plan takes: what each device holds in each step, by kind, and the most that it comes to.

Which values live when, lives.py says; here are their bytes. Left out is what a computation needs only while it goes on.
"""

import itertools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .lives import lives_of
from .objective import CLASSES
from .plan import all_of, norms_of, synchronised_stages
from .sizes import examples_in_each, stage_sizes
from .split import ROWS, held_units, units_of_outputs
from .ways import KEPT, Ways

NORM_ITEMSIZE = 8
"""Bytes of a number of moments and sums, which are float64 whatever the parameters are."""

KINDS = ("parameters", "gradients", "state", "examples", "activations", "messages")
"""Parameters: with batch norm's running statistics. Gradients: with moments and sums. State: the optimiser's.
Examples: with their labels. Activations: y, dy, caches and deltas that were made here.

Messages: y and dy that came from other devices, or in which transfers put parts and shares together.
"""


class Held(NamedTuple):
    """What one device holds, in bytes: ``between`` steps, at its ``peak``, which consists of ``peak_of`` (by kind).

    ``line``: pairs (step, bytes that it holds from the begin of that step on).
    """

    between: int
    peak: int
    peak_of: dict
    line: list


def held_in_steps(plan, columns, batch_size, states, dtype, objective=CLASSES, kernels=True):
    """For each device its `Held`, for ``batch_size`` examples and an optimiser with ``states`` arrays."""
    facts, ways, events = Facts(plan, columns), Ways(plan, columns, kernels), []
    memories = [
        _Memory(plan, device, batch_size, states, np.dtype(dtype), objective, facts, ways) for device in range(plan.k)
    ]
    for life in lives_of(plan, columns):
        device, value, begin, end = life
        if ways.is_nothing(device, value):
            continue
        begin = ways.early.get((device, value, begin), begin)
        join = next((number for number in facts.joined.get((device, value), ()) if begin <= number <= end), None)
        order = 1 if value[0] in ("cache", "delta") else 0  # these may hold what else begins to live in this step
        events.append((begin, order, memories[device].begin, (value, begin, end, join)))
        if join is not None:
            events.append((join, 2, memories[device].join, (value, join, end)))
    for *_, happen, what in sorted(events, key=lambda event: event[:2]):
        happen(*what)
    return [memory.held(len(columns)) for memory in memories]


def bytes_sent(plan, columns, batch_size, dtype):
    """For each device the bytes that it sends."""
    bytes_of, sent = unit_bytes(plan, batch_size, dtype), np.zeros(plan.k, np.int64)
    for each in itertools.chain(*(moves for _, moves in columns)):
        np.add.at(sent, each.source, bytes_of(each.value) * each.size * (each.source != each.destination))
    return sent.tolist()


def unit_bytes(plan, batch_size, dtype):
    """A function of a value: the bytes of one of its elements, or of a unit of y or dy for all its examples."""
    dtype, units = np.dtype(dtype), units_of_outputs(plan.network, plan.stages)
    sizes, examples = stage_sizes(plan.network, plan.stages, dtype), examples_in_each(batch_size, plan.micro_batches)

    def bytes_of(value):
        kind, s, *m = value
        if kind in ("y", "dy"):
            return sizes[s].whole(examples[m[0]]) // (units[s] or 1)
        return NORM_ITEMSIZE if kind in ROWS else dtype.itemsize

    return bytes_of


def joined_values(plan, columns):
    """Those y and dy that are moved in parts or shares. All others are handed on whole, as they lie in memory."""
    units, found = units_of_outputs(plan.network, plan.stages), set()
    for each in itertools.chain(*(moves for _, moves in columns)):
        if each.value[0] in ("y", "dy"):
            whole = (each.start == 0) & (each.stop == (units[each.value[1]] or 1))
            if each.op != "copy" or not whole.all():
                found.add(each.value)
    return found


class Facts:
    """Of a plan's transfers what memory depends on.

    ``joined``: by (device, y or dy) the steps in which it takes part in transfers of parts or shares. ``moved``: those
    that come first by a transfer. ``extents``: by gradients the first and last element, of each device.
    """

    def __init__(self, plan, columns):
        self.plan, self.joined, self.moved, self.extents = plan, {}, set(), {}
        joined, made, self.synchronised = joined_values(plan, columns), set(), synchronised_stages(columns)
        for number, (computes, moves) in enumerate(columns, 1):
            for each in moves:
                if each.value[0] in ("y", "dy"):
                    self._note_units(each, number, each.value in joined, made)
                elif each.target[0] == "grads":
                    self._note_elements(each.target, each.destination, each.start, each.stop)
            for compute in computes:
                what, device, s, m, _ = compute
                made.add((device, ("y", s, m) if what == "F" else ("dy", s - 1, m)))
                if what in "BW":
                    self._note_elements(compute.grads, [device], *self.computed_with(device, s))

    def _note_units(self, each, number, joined, made):
        self.moved |= {(device, each.value) for device in each.destination.tolist()} - made
        if joined:
            for device in {*each.source.tolist(), *each.destination.tolist()}:
                self.joined.setdefault((device, each.value), []).append(number)

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


@dataclass
class _Piece:
    """An array of a value, or of several, which lives from step ``begin`` to ``end``, from 1, both included."""

    kind: str
    nbytes: int
    begin: int
    end: int


class _Memory:
    """Of one device; values `begin` to live and are put together (`join`), step by step, and then all is `held`."""

    def __init__(self, plan, device, batch_size, states, dtype, objective, facts, ways):
        self.plan, self.device, self.itemsize, self.facts, self.ways = plan, device, dtype.itemsize, facts, ways
        self.units = held_units(plan, device)
        self.sizes = stage_sizes(plan.network, plan.stages, dtype, self.units, objective)
        self.examples = examples_in_each(batch_size, plan.micro_batches)
        self.pieces, self.of, self.joined = [], {}, {}  # all, those of each value, and by step what was joined last
        self.always = dict.fromkeys(KINDS, 0)
        for part in plan.layout[device]:
            self.always["parameters"] += self.itemsize * (part.params[1] - part.params[0])
            self.always["state"] += states * self.itemsize * (part.state[1] - part.state[0])
        for s in {s for s, _ in ways.computed[device]}:
            moments = self._norm_numbers("moments", s)
            self.always["parameters"] += self.itemsize * moments // ROWS["moments"] * 2  # running means and variances
        for stage, m in ways.computed[device]:
            if stage == 0:
                self.always["examples"] += self.sizes[0].x(self.examples[m])
            if stage == len(plan.stages) - 1:
                self.always["examples"] += objective.zeros(1).nbytes * self.examples[m]

    def begin(self, value, begin, end, join):
        """A value begins to live; ``join``: the step in which it is put together, unless it is whole, or None."""
        nbytes, shared = self._own_and_shared(value)
        if join is not None and nbytes != self._whole(value):
            end = join - 1
        own = _Piece(self._kind_of(value), nbytes, begin, end)
        self.pieces.append(own)
        self.of[value] = [own, *self.of.get(shared, ())]
        for piece in self.of[value]:
            piece.end = max(piece.end, end)

    def join(self, value, begin, end):
        """Parts are put together in an array of the whole; then what was there before is gone."""
        before, whole = self.of[value][0], self._whole(value)
        if before.nbytes != whole:
            self.of[value] = [_Piece("messages", whole, begin, end)]
            self.pieces += self.of[value]
            self.joined[begin] = before

    def held(self, count):
        """The `Held` of ``count`` steps."""
        table = np.zeros((count + 2, len(KINDS)), np.int64)  # bytes, by step and kind
        table[0] = list(self.always.values())
        for piece in self.pieces:
            kind = KINDS.index(piece.kind)
            table[piece.begin, kind] += piece.nbytes
            table[piece.end + 1, kind] -= piece.nbytes
        table = table.cumsum(axis=0)
        total = table.sum(axis=1)
        line = [(number, int(total[number])) for number in np.flatnonzero(np.diff(total, prepend=-1)).tolist()]
        for number, before in self.joined.items():
            if before.end < number:
                table[number, KINDS.index(before.kind)] += before.nbytes  # while it is copied
        most = table[table.sum(axis=1).argmax()].tolist()
        between = int(total[0]) - self.always["examples"]
        return Held(between, sum(most), dict(zip(KINDS, most, strict=True)), line)

    def _norm_numbers(self, kind, s):
        """How many numbers the device has of a stage's moments or sums."""
        channels, units = norms_of(self.plan.stages[s], self.plan.network), self.units[s]
        return ROWS[kind] * (sum(channels) if units is None else len(channels) * units)

    def _whole(self, value):
        return self.sizes[value[1]].whole(self.examples[value[2]])

    def _kind_of(self, value):
        if value[0] not in ("y", "dy", "cache", "delta"):
            return "parameters" if value[0] == "params" else "gradients"
        return "messages" if (self.device, value) in self.facts.moved else "activations"

    def _own_and_shared(self, value):
        """The bytes of its own array, and the value whose array it has as well, or None."""
        kind, s, *m = value
        if kind == "params":
            return self.itemsize * self.plan.stages[s].params, None
        if kind == "grads":
            start, stop = self.facts.extents[value]
            return self.itemsize * max(0, int(stop[self.device] - start[self.device])), None
        if kind in ROWS:
            return NORM_ITEMSIZE * self._norm_numbers(kind, s), None
        if kind in ("cache", "delta") and self.units[s] == 0:
            return 0, None
        if (self.device, value) in self.facts.moved:
            return self._whole(value), None
        sizes, N = self.sizes[s], self.examples[m[0]]
        if kind == "delta" and s in self.facts.synchronised:
            start, stop = self.facts.computed_with(self.device, s)
            return self.itemsize * (stop - start), None
        if kind == "delta":
            return sizes.delta(N), ("dy", s, *m) if sizes.delta_has_dy else None
        if kind == "cache" and self.ways.of[(self.device, s, *m)] == KEPT and sizes.kept is not None:
            return sizes.kept(N), None
        if kind == "cache":
            return sizes.cache(N), ("y", s - 1, *m) if sizes.cache_has_x and s else None
        return (sizes.y if kind == "y" else sizes.dy)(N), None
