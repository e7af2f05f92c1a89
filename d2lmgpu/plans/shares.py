"""What is known of y and dy where stages are split, while a plan is proved: which units a device has, of whose shares.

Of each such value there is a table of *counts*, with a row for each run of units that are always together. Of parts it
has one column, and 1 where units are there. Of shares it has a column for each piece of the parameters that make up
the sum: how often that piece's product is in it. What has 1 everywhere is whole, and needs no table: None.

Tables are never changed.
"""

import numpy as np

from .split import splits_of, units_of_outputs
from .symbols import Wrong


class Shares:
    """All tables of a ``plan``. ``cuts[s]``: where the parameters of stage s are cut into pieces."""

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
