"""What stands for a device's values while a plan is proved: symbols, of what can be known of them."""

import numpy as np

GONE = -1
"""The version of elements of the parameters that a device does not hold; 0 before the update, 1 after it."""


MOST = 100
"""A count, of what is in a sum, takes a byte: what is there more often is counted as so often."""


class Wrong(Exception):
    """What is wrong with an action."""


class Value:
    """A y, dy, cache or delta: whether it was ever used, and the version of the parameters that it was made with.

    ``counts``: what is there of a y or dy, see shares.py.
    """

    def __init__(self, version=None, counts=None):
        self.used, self.version, self.counts = False, version, counts


class Flat:
    """Params or grads of a stage: the ``whole`` array, a ``part`` in an array of its own, both, or neither.

    Both tell of each piece something: of params an array of versions, of grads `Counts`.
    ``bounds``: the elements of the part. ``used``: whether what came or was made last was used since.
    """

    def __init__(self):
        self.whole = self.part = self.bounds = None
        self.used = True


def added(a, b):
    """The sum of two tables of counts."""
    return np.minimum(a + b, MOST)


class Counts:
    """Of gradients, how often each micro-batch's contribution is in each piece of them.

    ``table``: a row for each piece, a column for each micro-batch of ``columns``, which ascend; of the others there is
    none. Never changed.
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
