"""Collectives as schedules: a file an algorithm, beside the readers of schedules."""

from .bidirectional_ring import bidirectional_ring
from .execute import check_arrays, execute, needs_staging, run_program
from .halving_doubling import halving_doubling
from .hierarchical import hierarchical
from .naive import naive
from .none import none
from .program import compile_algorithm
from .prove import Proof, ScheduleError, prove
from .recursive_doubling import recursive_doubling
from .ring import all_gather, reduce_scatter, ring
from .schedule import Transfer, chunk_bounds, place, together
from .sharded import sharded
from .simulate import Simulation, simulate
from .tree import broadcast, tree

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
"""Allreduce algorithms by name: functions of the number of devices k and of elements n, which return a schedule."""


def get_algorithm(name):
    """The schedule function of an algorithm; ValueError, with the known names, for an unknown one."""
    if name not in ALGORITHMS:
        raise ValueError(f"allreduce {name!r} is unknown; choose from {', '.join(sorted(ALGORITHMS))}")
    return ALGORITHMS[name]


def get_training_algorithm(name):
    """`get_algorithm`, but ValueError also for "none", with which replicas would drift apart."""
    if name == "none":
        raise ValueError("allreduce 'none' exchanges nothing, so that replicas drift apart; it is for measuring only")
    return get_algorithm(name)


def allreduce(data, algorithm="naive"):
    """Sum arrays over devices, in place: afterwards each of them is the sum of all.

    ``data`` is a list of arrays of one shape and dtype, each on another device.
    ``algorithm`` is a name from `ALGORITHMS`. All devices end with the same
    bits, and with the same bits on every run, since the order of additions is
    fixed by the schedule.

    Raises ValueError if the arrays are not alike, not one a device, or not
    contiguous, or if the algorithm is unknown.
    """
    schedule = get_algorithm(algorithm)
    check_arrays(data)
    run_program(compile_algorithm(schedule, len(data), data[0].size, needs_staging(data)), data)


__all__ = [
    "ALGORITHMS",
    "Proof",
    "ScheduleError",
    "Simulation",
    "Transfer",
    "all_gather",
    "allreduce",
    "bidirectional_ring",
    "broadcast",
    "chunk_bounds",
    "execute",
    "get_algorithm",
    "get_training_algorithm",
    "halving_doubling",
    "hierarchical",
    "naive",
    "none",
    "place",
    "prove",
    "recursive_doubling",
    "reduce_scatter",
    "ring",
    "sharded",
    "simulate",
    "together",
    "tree",
]
