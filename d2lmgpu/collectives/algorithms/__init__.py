"""The allreduces of this package by name: `train`, the command and the tests find in `ALGORITHMS` what there is."""

from .bidirectional_ring import bidirectional_ring
from .halving_doubling import halving_doubling
from .hierarchical import hierarchical
from .naive import naive
from .recursive_doubling import recursive_doubling
from .ring import ring
from .sharded import sharded
from .tree import tree


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
