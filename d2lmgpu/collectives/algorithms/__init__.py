"""The allreduces of this package by name."""

from .doubling import halving_doubling, recursive_doubling, tree
from .hierarchical import hierarchical
from .naive import naive
from .ring import bidirectional_ring, ring
from .sharded import sharded


def none(k, n):
    """The empty schedule."""
    return []


ALGORITHMS = {
    "naive": naive,
    "none": none,
    "sharded": sharded,
    "tree": tree,
    "recursive_doubling": recursive_doubling,
    "halving_doubling": halving_doubling,
    "ring": ring,
    "bidirectional_ring": bidirectional_ring,
    "hierarchical": hierarchical,
}
"""Functions of the number of devices k and the number of elements n that return a schedule."""
