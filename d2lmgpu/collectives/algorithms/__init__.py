"""The allreduces of this package by name."""

from .doubling import halving_doubling, recursive_doubling, tree
from .hierarchical import hierarchical
from .naive import naive
from .ring import bidirectional_ring, ring
from .sharded import sharded


def none(k, n):
    """The empty schedule."""
    return []


_ALL = naive, none, sharded, tree, recursive_doubling, halving_doubling, ring, bidirectional_ring, hierarchical
ALGORITHMS = {algorithm.__name__: algorithm for algorithm in _ALL}
"""Functions of the number of devices k and the number of elements n that return a schedule."""
