"""Collectives, while a plan is proved: the schedule's transfers add and copy rows of what is known.

For each member that is a table with a row for each piece. params: its version; grads: how often each micro-batch is in
it; y and dy: see abstract_values.py. What a schedule makes of the same tables is found once, since most micro-batches
are alike.
"""

import hashlib

import numpy as np

from .abstract_values import GONE, Counts, Wrong, added, known


class Exchanges:
    """All collectives of a plan. ``units``: its `UnitTables`."""

    def __init__(self, units):
        self.units, self._done = units, {}

    def do(self, members, action):
        """The collective among these `AbstractState`. Raises `Wrong`."""
        {"params": self._params, "grads": self._grads}.get(action.value, self._add_up)(members, action)

    def _params(self, members, action):
        s = action.stage
        for member in members:
            member.gather(s)
        tables = [member.params[s].whole[:, None] for member in members]
        for member, before, after in zip(members, tables, self._carried(members, action, tables), strict=True):
            member.params[s].used = not ((before == GONE) & (after != GONE)).any()  # now they are used by others
            member.params[s].whole = after[:, 0].copy()

    def _grads(self, members, action):
        s, flats = action.stage, [member.grads[action.stage] for member in members]
        name = "part" if members[0].plan.stages[s].split else "whole"
        for member, flat in zip(members, flats, strict=True):
            if getattr(flat, name) is None:
                raise Wrong(f"device {member.number} has no grads to exchange")
            if name == "part" and member.parts[s].grads != members[0].parts[s].grads:
                raise Wrong("the devices have different parts of the stage")
            flat.used = True  # by others
        counts = [getattr(flat, name) for flat in flats]
        columns = sorted({m for of in counts for m in of.columns})
        first = members[0].piece(s, members[0].parts[s].grads).start if name == "part" else 0
        tables = self._carried(members, action, [of.over(columns) for of in counts], first)
        for flat, table in zip(flats, tables, strict=True):
            setattr(flat, name, Counts(columns, table))

    def _add_up(self, members, action):
        for member in members:
            if action.key not in member.values:
                raise Wrong(f"device {member.number} has no {action.value} to exchange")
        values = [member.values[action.key] for member in members]
        tables = self.units.tables([value.counts for value in values], action.stage)
        for member, value, before, after in zip(
            members, values, tables, self._carried(members, action, tables), strict=True
        ):
            member.memory.gather(action.key)
            value.used = np.array_equal(before, after)  # what came is to be used
            value.counts = known(after)

    def _carried(self, members, action, tables, first=0):
        """The members' tables after the schedule, not to be changed. ``first``: the number of their first row."""
        digest = hashlib.sha256(b"".join(table.tobytes() for table in tables)).digest()
        key = id(action.schedule), action.value, action.stage, action.group, first, tables[0].shape, digest
        if key not in self._done:
            self._done[key] = self._carry(members, action, tables, first)
        after, sent = self._done[key]
        for member, count in zip(members, sent, strict=True):
            member.memory.send_in_collective(action, count)
        return after

    def _carry(self, members, action, tables, first):
        is_flat = action.value in ("params", "grads")
        rows = {edge: i for i, edge in enumerate(members[0].cuts[action.stage])} if is_flat else None
        rows, what = (rows, "elements") if is_flat else (self.units.rows[action.stage], "units")
        after, sent = [table.copy() for table in tables], [0] * len(tables)
        for number, step in enumerate(action.schedule, 1):
            messages = []
            for t in step:
                part = slice(rows[t.start] - first, rows[t.stop] - first)
                if part.start < 0 or part.stop > len(after[0]):
                    raise Wrong(f"step {number}: elements {t.start} to {t.stop} are not of the devices' part")
                message = after[t.source][part].copy()
                if action.value == "params" and (message == GONE).any():
                    device = members[t.source].number
                    raise Wrong(f"step {number}: device {device} does not have elements {t.start} to {t.stop}")
                messages.append((part, message))
                sent[t.source] += t.size
            for t, (part, message) in zip(step, messages, strict=True):
                if t.op == "add" and action.value == "params":
                    raise Wrong(f"step {number}: parameters are copied, not added")
                there = after[t.destination][part]
                result = added(there, message) if t.op == "add" else message
                if (there == result).all():
                    device = members[t.destination].number
                    raise Wrong(f"step {number} sends device {device} what it has: {what} {t.start} to {t.stop}")
                there[...] = result
        return after, sent
