"""How much memory a plan takes: what each device holds in each step, by kind, and the most that it comes to.

Which values live when, lives.py says; here are their bytes. Left out is what a computation needs only while it goes on.
"""

import itertools
from dataclasses import dataclass, field

import numpy as np

from .lives import lives_of
from .objective import CLASSES
from .plan import all_of, norms_of, synchronised_stages
from .sizes import examples_in_each, stage_sizes
from .split import ROWS, held_units, norm_part, splits_of, units_of_outputs
from .ways import KEPT, Ways

NORM_ITEMSIZE = 8
"""Bytes of a number of moments and sums, which are float64 whatever the parameters are."""

KINDS = ("parameters", "gradients", "state", "examples", "activations", "messages")
"""Parameters: with batch norm's running statistics. Gradients: with moments and sums. State: the optimiser's.
Examples: with their labels. Activations: y, dy, caches and deltas that were made here.

Messages: y and dy that came from other devices, or in which transfers put parts and shares together.
"""


@dataclass
class Held:
    """What one device holds, in bytes: ``between`` steps, at its ``peak``, which consists of ``peak_of`` (by kind).

    ``line``: pairs (step, bytes that it holds from the begin of that step on).
    """

    between: int
    peak: int = 0
    peak_of: dict = field(default_factory=dict, repr=False)
    line: list = field(default_factory=list, repr=False)


def held_in_steps(plan, columns, batch_size, states, dtype, objective=CLASSES, kernels=True):
    """For each device its `Held`, for ``batch_size`` examples and an optimiser with ``states`` arrays."""
    facts, ways = Facts(plan, columns), Ways(plan, columns, kernels)
    events = [[] for _ in range(plan.k)]
    for device, value, begin, end in lives_of(plan, columns):
        if ways.is_nothing(device, value):
            continue
        begin = ways.early.get((device, value, begin), begin)
        later = value[0] in ("cache", "delta")  # these may hold what else begins to live in this step
        events[device] += [(begin, BEGINS + later, value), (end, ENDS, value)]
        joined = (number for number in facts.joined.get((device, value), ()) if begin <= number <= end)
        events[device] += [(number, JOINS, value) for number in joined]
    memories = [
        _Memory(plan, device, batch_size, states, np.dtype(dtype), objective, facts, ways) for device in range(plan.k)
    ]
    return [memory.go(sorted(own, key=lambda e: e[:2])) for memory, own in zip(memories, events, strict=True)]


BEGINS, JOINS, ENDS = 1, 3, 4
"""Kinds of events within a step, in their order: a value begins to live, is put together, ends."""


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


class _Memory:
    """Of one device; `go` through its events."""

    def __init__(self, plan, device, batch_size, states, dtype, objective, facts, ways):
        self.plan, self.device, self.itemsize, self.facts, self.ways = plan, device, dtype.itemsize, facts, ways
        self.synchronised = facts.synchronised
        self.units = held_units(plan, device)
        self.sizes = stage_sizes(plan.network, plan.stages, dtype, self.units, objective)
        self.target = objective.zeros(1).nbytes
        self.examples = examples_in_each(batch_size, plan.micro_batches)
        self.pieces = {}  # of each value: the pieces of memory that it has, (piece, bytes)
        self.counts = {}  # of each piece: [how many values have it, bytes, kind]
        self.used = dict.fromkeys(KINDS, 0)
        for part in plan.layout[device]:
            self.used["parameters"] += self.itemsize * (part.params[1] - part.params[0])
            self.used["state"] += states * self.itemsize * (part.state[1] - part.state[0])
        for s in {s for s, _ in ways.computed[device]}:
            moments = self._norm_numbers("moments", s)
            self.used["parameters"] += self.itemsize * moments // ROWS["moments"] * 2  # running means and variances
        self.held = Held(sum(self.used.values()))

    def go(self, events):
        """The `Held`; ``events``: (step, kind, value), in their order."""
        for stage, m in self.ways.computed[self.device]:
            if stage == 0:
                self.used["examples"] += self.sizes[0].x(self.examples[m])
            if stage == len(self.plan.stages) - 1:
                self.used["examples"] += self.target * self.examples[m]
        self._look(0)
        for number, kind, value in events:
            if kind == ENDS:
                self._let_go(self.pieces.pop(value))
            elif kind == JOINS:
                self._join(value, number)
            else:
                self.pieces[value] = self._pieces_of(value)
                self._hold(value, self._kind_of(value))
            self._look(number + (kind == ENDS))
        return self.held

    def _look(self, number):
        total, held = sum(self.used.values()), self.held
        if total > held.peak:
            held.peak, held.peak_of = total, dict(self.used)
        if held.line and held.line[-1][0] == number:
            held.line.pop()
        held.line.append((number, total))

    def _join(self, value, number):
        """Parts are put together in an array of the whole; then what was there before is gone."""
        if self.pieces[value][0][1] == self._whole(value):
            return
        before, self.pieces[value] = self.pieces[value], [(("joined", *value), self._whole(value))]
        self._hold(value, "messages")
        self._look(number)
        self._let_go(before)

    def _norm_numbers(self, kind, s):
        """How many numbers the device has of a stage's moments or sums."""
        parts = [part.params for part in self.plan.layout[self.device] if part.stage == s]
        split = splits_of(self.plan.network, self.plan.stages)[s]
        start, stop = norm_part(kind, norms_of(self.plan.stages[s], self.plan.network), split, *parts[:1])
        return stop - start

    def _whole(self, value):
        return self.sizes[value[1]].whole(self.examples[value[2]])

    def _kind_of(self, value):
        if value[0] not in ("y", "dy", "cache", "delta"):
            return "parameters" if value[0] == "params" else "gradients"
        return "messages" if (self.device, value) in self.facts.moved else "activations"

    def _hold(self, value, kind):
        for piece, nbytes in self.pieces[value]:
            count, *rest = self.counts.get(piece, (0, nbytes, kind))
            self.counts[piece] = count + 1, *rest
            if not count:
                self.used[rest[1]] += rest[0]

    def _let_go(self, pieces):
        for piece, _ in pieces:
            count, nbytes, kind = self.counts.pop(piece)
            if count > 1:
                self.counts[piece] = count - 1, nbytes, kind
            else:
                self.used[kind] -= nbytes

    def _pieces_of(self, value):
        """Pairs of what is the same for the same memory, and its bytes."""
        name, stage, *m = value
        if name == "params":
            return [(value, self.itemsize * self.plan.stages[stage].params)]
        if name == "grads":
            start, stop = self.facts.extents[value]
            return [(value, self.itemsize * max(0, int(stop[self.device] - start[self.device])))]
        if name in ROWS:
            return [(value, NORM_ITEMSIZE * self._norm_numbers(name, stage))]
        if name in ("cache", "delta") and self.units[stage] == 0:
            return []
        sizes, N = self.sizes[stage], self.examples[m[0]]
        if (self.device, value) in self.facts.moved:
            return [(value, self._whole(value))]
        if name in ("y", "dy"):
            return [(value, (sizes.y if name == "y" else sizes.dy)(N))]
        if name == "delta" and stage in self.synchronised:
            start, stop = self.facts.computed_with(self.device, stage)
            return [(value, self.itemsize * (stop - start))]
        if name == "delta":
            return [(value, sizes.delta(N))] + (self.pieces[("dy", stage, *m)] if sizes.delta_has_dy else [])
        if self.ways.of[(self.device, stage, *m)] == KEPT and sizes.kept is not None:
            return [(value, sizes.kept(N))]  # which shares nothing
        pieces = [(value, sizes.cache(N))]
        if sizes.cache_has_x and stage:
            pieces += self.pieces[("y", stage - 1, *m)]
        return pieces
