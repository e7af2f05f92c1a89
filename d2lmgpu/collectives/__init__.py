"""Collectives as schedules: a file an algorithm, beside the readers of schedules."""

from .execute import check_arrays, execute
from .naive import naive
from .ring import ring
from .schedule import Transfer, chunk_bounds

ALGORITHMS = {"naive": naive, "ring": ring}
"""Allreduce algorithms by name: functions of the number of devices k and of elements n, which return a schedule."""


def get_algorithm(name):
    """The schedule function of an algorithm; ValueError, with the known names, for an unknown one."""
    if name not in ALGORITHMS:
        raise ValueError(f"allreduce {name!r} is unknown; choose from {', '.join(sorted(ALGORITHMS))}")
    return ALGORITHMS[name]


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
    execute(schedule(len(data), data[0].size), data)


__all__ = ["ALGORITHMS", "Transfer", "allreduce", "chunk_bounds", "execute", "get_algorithm", "naive", "ring"]
