"""Replay what all devices hold during a plan: transfers as in collectives/prove.py, computations by rules.py.

Sets take the place of numbers. Their meaning depends on the value:

    params                  OLD or NEW: before or after the update
    grads                   which micro-batches' contributions are in the sum
    dy                      which shares are in the sum: if the stage that makes it is split, there is one for each
                            device's part of it; otherwise, the whole value is the only share
    y                       the whole value is the only share

Every value that a computation reads must be right: the sum of all shares, each once. So the computation's results are
the same as those of one device that does everything, and a mistake is found where a wrong value is first used.
"""

import collections
import itertools

import numpy as np

from ...collectives.actions import Transfer, value_name
from ...collectives.columns import InvalidStep
from ...collectives.diagnosis import diagnosis, follow
from ...collectives.prove import SUMMED, TWICE, Replay
from ..plan import PlanError
from ..stages import splits_of
from .check import size_of
from .memory import joined_values
from .rules import NEW, OLD, Rules


class PlanReplay(Rules, Replay):
    """The replay of a ``plan``; ``columns``: its steps as `check_plan` returns them.

    `Replay` (collectives/prove.py) has the tables ``held`` and ``fresh``, and replays transfers; `Rules` has what each
    computation reads and makes. This class adds what plans have beside schedules: parameters that stay, arrays that
    are made again, and the end of each value.
    """

    def __init__(self, plan, columns):
        self.plan, self.columns, self.splits = plan, columns, splits_of(plan.network, plan.stages)
        self.parts = [{part.stage: part for part in parts} for parts in plan.layout]
        self.edges = _edges_of(plan, columns, self.parts, self.splits)
        super().__init__(plan.k, lambda value: self.edges[_kind_of(value)])
        self.borders = [  # between devices' parts of each stage
            sorted({stage.params, *(edge for own in self.parts if s in own for edge in own[s].params)})
            for s, stage in enumerate(plan.stages)
        ]
        self.kept_on_device = set()  # (cache or delta, device, stage, micro-batch)
        self.joined = joined_values(plan, columns)
        # By value: whether a device's computations have used it.
        self.used = collections.defaultdict(lambda: np.zeros(plan.k, bool))
        self.ends = _last_mentioned(columns)
        # By stage, (k, pieces): which pieces of the parameters devices hold between steps.
        self.persistent = [np.zeros_like(self.sums(("params", s)), bool) for s in range(len(plan.stages))]
        for device, own in enumerate(self.parts):
            for s, part in own.items():
                self.persistent[s][device, self.pieces(("params", s), part.params)] = True
        for s, places in enumerate(self.persistent):
            self.sums(("params", s))[places] = OLD
            missing = ~places.any(axis=0)
            if missing.any():
                element = self.cuts(("params", s))[np.argmax(missing)]
                raise PlanError(f"the layout: element {element} of the parameters of stage {s} is held by no device")

    def write(self, transfers, number, pieces, sums):
        used = self.used[transfers.target][transfers.destination[number]]
        if used.any() and transfers.target in self.joined:  # caches share this array
            t = transfers.transfer(number[np.argmax(used)])
            raise InvalidStep(f"{t}: device {t.destination} has computed with {value_name(t.target or t.value)}")
        if transfers.op == "copy":
            for device in np.unique(transfers.destination[number[used]]).tolist():
                self._forget(transfers.target, device)
        super().write(transfers, number, pieces, sums)

    def _forget(self, value, device):
        """Drop a value with which a device has computed, since it is brought or made again (live_ranges.py)."""
        gone = ~self.persistent[value[1]][device] if value[0] == "params" else slice(None)
        self.sums(value)[device, gone], self.fresh[value][device, gone] = None, 0
        self.used[value][device] = False

    def pieces(self, value, bounds):
        """The pieces that make up elements (start, stop), or all, as a slice."""
        return slice(None) if bounds is None else slice(*np.searchsorted(self.cuts(value), bounds).tolist())

    def run(self):
        """Replay all steps. Raises PlanError, whose message begins with the step, or with "at the end"."""
        for computes, moves in self.columns:
            try:
                self.step(moves, computes)
            except InvalidStep as wrong:
                raise PlanError(f"step {self.number}: {wrong}") from None
        for s, places in enumerate(self.persistent):
            old = places & np.not_equal(self.sums(("params", s)), NEW).astype(bool)
            if old.any():
                device, piece = np.argwhere(old)[0].tolist()
                a, b = self.cuts(("params", s))[piece : piece + 2]
                raise PlanError(f"at the end: device {device}, elements {a} to {b} of params of stage {s}: not updated")
        self.number += 1
        for kind, device, s, m in sorted(self.kept_on_device):
            if kind == "delta" or s == len(self.plan.stages) - 1:
                self.waste(f"{kind} of stage {s}, micro-batch {m}, of device {device}: nobody uses it")
        updated = {(c.device, c.stage) for computes, _ in self.columns for c in computes if c.what == "update"}
        for device, own in enumerate(self.parts):
            for s, part in own.items():
                if part.state[0] < part.state[1] and (device, s) not in updated:
                    raise PlanError(f"at the end: device {device} holds state of stage {s}, and has not updated it")

    def step(self, moves, computes=()):
        """Replay the next step: everything is read before anything is written."""
        self.number += 1
        arriving = [(each, self.read(each)) for each in moves]
        making = [(compute, *made) for compute in computes for made in self.computed(compute)]
        for (compute, value, _, _), each in itertools.product(making, moves):
            if value == each.target and (each.destination == compute.device).any():
                raise InvalidStep(f"{compute}: in the same step transfers write {value_name(value)}")
        for each, what in arriving:
            self.write(each, *what)
        for made in making:
            self._put(*made)
        for value in self.held.keys() & self.ends[self.number - 1]:
            self._drop(value)

    def _put(self, compute, value, some, sums):
        """Enter what a computation has made."""
        table, fresh, device = self.sums(value), self.fresh[value], compute.device
        if value[0] in ("y", "dy"):
            if fresh[device, some].any():
                self.waste(f"{compute}: {value_name(value)} is there already, and nobody has used it")
            self._forget(value, device)  # the computation makes a new array
        table[device, some], fresh[device, some] = sums, -self.number

    def _drop(self, value):
        """Forget a value that no later step is about, and note what nobody has used of it."""
        unread = self.fresh[value] != 0
        if value[0] == "params":
            unread &= ~self.persistent[value[1]]
        if unread.any():
            device, piece = np.argwhere(unread)[0].tolist()
            self.waste(f"{value_name(value)} of device {device}: nobody uses it", abs(self.fresh[value][device, piece]))
        if value[0] != "params":
            del self.held[value], self.fresh[value]

    def use(self, device, value, bounds=None):
        """Let the device read the value, or these elements of it. Raises `InvalidStep` unless they are right."""
        table, some = self.sums(value), self.pieces(value, bounds)
        wrong = np.not_equal(table[device, some], self._all_shares(value)).astype(bool)
        if wrong.any():
            raise InvalidStep(self._what_is_wrong(device, value, (some.start or 0) + int(np.argmax(wrong))))
        self.used[value][device] = True
        fresh = self.fresh[value][device]
        fresh[some] = 0
        fresh[fresh < 0] = 0

    def _all_shares(self, value):
        """The entry for a right value in the table of sums."""
        kind, s = value[:2]
        if kind == "params":
            return OLD
        if kind in SUMMED:
            return (1 << self.plan.micro_batches) - 1
        is_sum = kind == "dy" and self.splits[s + 1] is not None
        return (1 << len(self.borders[s + 1]) - 1) - 1 if is_sum else 1

    def _what_is_wrong(self, device, value, piece):
        kind, s = value[:2]
        found, cuts, where = self.sums(value)[device, piece], self.cuts(value).tolist(), ""
        if len(cuts) > 2:
            units = "units" if kind in ("y", "dy") else "elements"
            where = f", {units} {cuts[piece]} to {cuts[piece + 1]}"
        if kind in SUMMED:
            steps, everything = self.plan.steps[: self.number - 1], {*range(self.plan.micro_batches)}
            found = follow(steps, {}, cuts[piece], lambda action: self._is_about(action, kind, s))
            what = diagnosis(found, everything, (device, value), "contribution", "micro-batch")
            return f"{value_name(value)}{where}: {what}"
        if kind == "params" and found is not None:
            return f"{value_name(value)}{where}: they are updated already"
        if found is None:
            return f"{value_name(value)}{where and where + ','} {'are' if kind == 'params' else 'is'} not there"
        return f"{value_name(value)}{where}: a share {'was added twice' if found == TWICE else 'is missing'}"

    def _is_about(self, action, kind, s):
        """Whether an action adds to the stage's gradients."""
        if isinstance(action, Transfer):
            return (action.target or action.value)[:2] == (kind, s)
        return any(value[:2] == (kind, s) for value in action.uses[2])


def _kind_of(value):
    """The group of values that are cut alike: a stage's params and grads, or its y and dy."""
    return "units" if value[0] in ("y", "dy") else "elements", value[1]


def _edges_of(plan, columns, parts, splits):
    """The elements or units at which values are cut, by `_kind_of`."""
    values = [value for s in range(len(plan.stages)) for value in (("params", s), ("y", s, 0))]
    edges = {_kind_of(value): {0, size_of(plan, value)} for value in values}
    for s, part in itertools.chain(*(own.items() for own in parts)):
        edges["elements", s] |= {*part.params, *part.state}
        if splits[s] is not None:
            edges["units", s] |= {*splits[s].units_of(part.params)}
    for each in itertools.chain(*(moves for _, moves in columns)):
        edges[_kind_of(each.value)].update(each.start.tolist(), each.stop.tolist())
    return {kind: np.array(sorted(found), np.int64) for kind, found in edges.items()}


def _last_mentioned(columns):
    """For each step, the values that no later step is about."""
    later, ends = set(), []
    for computes, moves in reversed(columns):
        mentioned = {value for each in moves for value in (each.value, each.target)}
        mentioned.update(*itertools.chain.from_iterable(compute.uses for compute in computes))
        ends.append(mentioned - later)
        later |= mentioned
    return ends[::-1]
