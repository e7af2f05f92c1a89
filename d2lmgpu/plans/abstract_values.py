"""What stands for a device's values while a plan is proved, in the place of numbers.

Of y and dy where stages are split it is a table of *counts*, with a row for each run of units that are always together.
Of a part of y or dy the table has one column, with 1 where units are there. Of a share of a sum it has a column for
each piece of the parameters that make up the sum: how often that piece's product is in it. What has 1 everywhere is
whole, and needs no table: None. Tables are never changed.
"""

import numpy as np

from ..language.split import splits_of, units_of_outputs

GONE = -1
"""The version of parameters that a device does not hold; 0 before the update, 1 after it."""

MOST = 100
"""Counts are bytes: what is in a sum more often is counted as so often."""


class Wrong(Exception):
    """What is wrong with an action."""


class Value:
    """A y, dy, cache or delta: whether it was ever used, and the version of the parameters that it was made with.

    ``counts``: of a y or dy the table that says what is there.
    """

    def __init__(self, version=None, counts=None):
        self.used, self.version, self.counts = False, version, counts


class Flat:
    """Params or grads of a stage: the ``whole`` array, a ``part`` in an array of its own, both, or neither.

    Both say something of each piece: params an array of versions, grads `Counts`. The part has the elements that the
    layout gives the device. ``used``: whether what arrived or was made last has been used since.
    """

    def __init__(self):
        self.whole = self.part = None
        self.used = True


def added(a, b):
    """The sum of two tables of counts."""
    return np.minimum(a + b, MOST)


class Counts:
    """How often each micro-batch's contribution is in each piece of the gradients.

    ``table``: a row for each piece, a column for each micro-batch of ``columns``, which ascend; the contributions of
    others are in none. Never changed.
    """

    def __init__(self, columns, table):
        self.columns, self.table = columns, table

    @classmethod
    def of_one(cls, m, pieces):
        """One contribution of micro-batch ``m`` to each of so many pieces."""
        return cls([m], np.ones((pieces, 1), np.uint8))

    def rows(self, pieces):
        """Those of some pieces, a slice."""
        return Counts(self.columns, self.table[pieces])

    def over(self, columns):
        """The table with these columns, all of its own among them."""
        if columns == self.columns:
            return self.table
        table = np.zeros((len(self.table), len(columns)), np.uint8)
        table[:, np.searchsorted(columns, self.columns)] = self.table
        return table

    def plus(self, other):
        """The sum."""
        columns = sorted({*self.columns, *other.columns})
        return Counts(columns, added(self.over(columns), other.over(columns)))

    def fault(self, micro_batches):
        """The first of so many micro-batches that is not there just once, and how often it is; None if all are."""
        faults = (self.over(list(range(micro_batches))) != 1).any(axis=0)
        if not faults.any():
            return None
        m = int(np.argmax(faults))
        found = self.over(list(range(micro_batches)))[:, m]
        return m, int(found[found != 1][0])


class UnitTables:
    """The tables of y and dy of a ``plan``. ``cuts[s]``: where the parameters of stage s are cut into pieces."""

    def __init__(self, plan, cuts):
        self.splits, self.cuts = splits_of(plan.network, plan.stages), cuts
        self.units = units_of_outputs(plan.network, plan.stages)
        edges = [{0, units or 0} for units in self.units]
        for parts in plan.layout:
            for part in parts:
                split = self.splits[part.stage]
                if split is not None:
                    edges[part.stage - (split.what == "rows")] |= {*split.units_of(part.params)}
        exchanges = (a for todo in plan.actions for a in todo if a.what == "collective" and a.value in ("y", "dy"))
        for action in {(id(a.schedule), a.stage): a for a in exchanges}.values():
            edges[action.stage] |= {edge for step in action.schedule for t in step for edge in (t.start, t.stop)}
        self.rows = [{edge: i for i, edge in enumerate(sorted(found))} for found in edges]
        self._made = {}

    def made(self, s, part, back):
        """The counts of what stage s makes with its elements ``part``: of y, or ``back`` of dy of the stage before."""
        if self.splits[s] is None:
            return None
        key = s, part, back
        if key not in self._made:
            split, of = self.splits[s], s - back
            if (split.what == "rows") == back:  # a part: its own units are there
                counts = np.zeros((len(self.rows[of]) - 1, 1), np.uint8)
                counts[self.own(of, s, part)] = 1
            else:  # a share: its own pieces of the parameters are in it
                counts = np.zeros((len(self.rows[of]) - 1, len(self.cuts[s]) - 1), np.uint8)
                start, stop = (self.cuts[s].index(edge) for edge in part)
                counts[:, start:stop] = 1
            self._made[key] = known(counts)
        return self._made[key]

    def own(self, of, s, part):
        """The rows, a slice, of the units of y of stage ``of`` that elements ``part`` of stage s are about."""
        return slice(*(self.rows[of][edge] for edge in self.splits[s].units_of(part)))

    def lacks(self, counts, of, rows=slice(None)):
        """What is wrong with these rows of the counts, in words; None if all are there once."""
        if counts is None or (counts[rows] == 1).all():
            return None
        first = int(np.argmax((counts[rows] != 1).any(axis=1)))
        found = int(counts[rows][first][counts[rows][first] != 1][0])
        a, b = list(self.rows[of])[(rows.start or 0) + first :][:2]
        return f"of units {a} to {b} {f'a share was added {found} times' if found else 'something is lacking'}"

    def tables(self, counts, of):
        """The members' counts of y or dy of stage ``of`` before a collective, all as tables of the same columns."""
        columns = {table.shape[1] for table in counts if table is not None} or {1}
        if len(columns) > 1:
            raise Wrong("some devices have parts of it and some have shares")
        whole = np.ones((len(self.rows[of]) - 1, columns.pop()), np.uint8)
        return [whole if table is None else table for table in counts]


def known(counts):
    """The counts; None if everything is there once."""
    return None if (counts == 1).all() else counts
