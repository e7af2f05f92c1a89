"""When values exist on devices: a value is freed when no later step reads it.

A value exists on a device from the step that first writes it there to the last step that reads it. There are special
cases:

    parameters that the layout gives a device always exist; other parameters are freed once the device has computed
        with them, even if they will be sent again: so ZeRO-3 gathers them for forward, and again for backward
    a cache is freed if forward is computed again before backward
    a value that is last read by another device stays during one more computation of its own device, so that a
        slightly late reader delays no other device
"""

import bisect
import collections
from typing import NamedTuple

import numpy as np

from ..plan import full_range

NEVER = 0


class LiveRange(NamedTuple):
    """The value is on the device from step ``begin`` to step ``end``, both included; steps are counted from 1.

    ``moved``: the first step in which the device takes part in a transfer of it, or `NEVER`.
    """

    device: int
    value: tuple
    begin: int
    end: int
    moved: int


def live_ranges(plan, columns):
    """A list of `LiveRange`, sorted by their ends; ``columns``: the plan's steps as `check_plan` returns them."""
    return _Lives(plan, columns).lives


class _Lives:
    """Goes through the plan's steps, and adds a `LiveRange` to ``lives`` when it ends."""

    def __init__(self, plan, columns):
        self.plan, self.lives = plan, []
        # By value, for each device: the steps in which it begins, ends, is sent last, used last and moved first.
        self.rows = collections.defaultdict(lambda: np.zeros((5, plan.k), np.int32))
        self.own = np.zeros((len(plan.stages), plan.k, 2), np.int64)  # the elements of parameters that it always has
        for device, parts in enumerate(plan.layout):
            for part in parts:
                stage = plan.stages[part.stage]  # a split stage is computed with this part alone
                self.own[part.stage, device] = full_range(stage) if stage.split else part.params
        self.computing = [[] for _ in plan.layout]  # by device: the steps in which it computes for a micro-batch
        for number, (computes, _) in enumerate(columns, 1):
            for compute in computes:
                if compute.micro_batch is not None:
                    self.computing[compute.device].append(number)
        for number, (computes, moves) in enumerate(columns, 1):
            for each in moves:
                some = each.start < each.stop
                read = some if each.value[0] != "params" else some & ~self._is_own(each)
                # A transfer to another value is on the same device, which so uses the value; otherwise, it is sent.
                self._read(each.value, each.source[read], number, is_sent=each.target == each.value)
                self._write(each.target, each.destination[some], number, again=each.op == "copy")
                for value, devices in (each.value, each.source), (each.target, each.destination):
                    begin, *_, moved = self.rows[value]
                    moved[devices[(begin[devices] != NEVER) & (moved[devices] == NEVER)]] = number
            for compute in computes:
                self._compute(compute, number)
        for value, (begin, *_) in self.rows.items():
            self._close(value, np.flatnonzero(begin))
        self.lives.sort(key=lambda life: (life.end, life.device))

    def _compute(self, compute, number):
        device = np.array([compute.device])
        reads, makes, adds = compute.uses
        if compute.what == "update":  # of parameters that the device always has
            reads, makes = [compute.grads], ()
        for value in filter(self.rows.__contains__, reads):  # a value that was never written is not there
            self._read(value, device, number)
        for value in makes:
            self._write(value, device, number, again=True)
        for value in adds:
            self._write(value, device, number)

    def _is_own(self, each):
        """Whether the transferred parameters are ones that their source always has."""
        first, last = self.own[each.value[1]].T[:, each.source]
        return (first <= each.start) & (each.stop <= last)

    def _read(self, value, devices, number, is_sent=False):
        """Note that devices send or use the value. It never began where they always have it, as with parameters."""
        begin, end, sent, used, _ = self.rows[value]
        end[devices[begin[devices] != NEVER]] = number
        (sent if is_sent else used)[devices] = number

    def _write(self, value, devices, number, again=False):
        """Note that devices write the value; ``again``: the result does not depend on the old contents."""
        if value[0] in ("y", "dy") and not 0 <= value[1] < len(self.plan.stages) - 1:
            return  # before the first stage, or after the last
        begin, end, _, used, _ = self.rows[value]
        if value[0] == "params":
            devices = devices[(self.own[value[1], devices] != full_range(self.plan.stages[value[1]])).any(axis=1)]
        if again:
            over = (begin[devices] != NEVER) & (used[devices] != 0) & (end[devices] < number)
            self._close(value, devices[over])
        begin[devices] = np.where(begin[devices] == NEVER, number, begin[devices])
        end[devices] = number

    def _close(self, value, devices):
        begin, end, sent, used, moved = self.rows[value]
        for device in np.unique(devices).tolist():
            last = int(end[device])
            if value[0] in ("y", "dy") and sent[device] == last:
                later = bisect.bisect_right(self.computing[device], last)
                last = self.computing[device][later] if later < len(self.computing[device]) else last
            self.lives.append(LiveRange(device, value, int(begin[device]), last, int(moved[device])))
            begin[device] = used[device] = moved[device] = NEVER
