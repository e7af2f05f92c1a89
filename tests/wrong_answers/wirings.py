"""Wrong answers to the exercises of notebook 6b. A docstring is a part of what the check should say."""

from d2lmgpu.collectives import (
    ALGORITHMS,
    Transfer,
    all_gather,
    chunk_bounds,
    place,
    reduce_scatter,
    ring,
    ring_along,
    together,
)
from d2lmgpu.collectives.wires import torus

_TORUS = torus(4, 4)
_ROWS = [[4 * row + column for column in range(4)] for row in range(4)]
_COLUMNS = [list(column) for column in zip(*_ROWS, strict=True)]


def torus_allreduce__no_answer(k, n):
    """it returned nothing. Write torus_allreduce"""


def torus_allreduce__rows_alone(k, n):
    """the shares of devices 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14 and 15 are missing"""
    return together(*(place(ring(4, n), row) for row in _ROWS))


def torus_allreduce__in_the_order_of_numbers(k, n):
    """right, but no wire leads from device 3 to device 4"""
    return ring(k, n)


def torus_allreduce__on_a_switch(k, n):
    """send only where network.direct[source, destination] is true"""
    return ALGORITHMS["halving_doubling"](k, n)


def torus_allreduce__the_ring_itself(k, n):
    """right, but it takes 3.06 ms simulated, in which a wire is busy 49% of the time on average"""
    return ring_along(_TORUS, both_ways=True)(k, n)


def torus_allreduce__rows_then_columns(k, n):
    """rows and columns can work at the same time"""
    bounds = chunk_bounds(n, 4)
    collect = together(*(place(reduce_scatter(4, n), row) for row in _ROWS))
    between = [place(ring(4, b - a), column, a) for column, (a, b) in zip(_COLUMNS, bounds, strict=True)]
    give_back = together(*(place(all_gather(4, n), row) for row in _ROWS))
    return collect + together(*between) + give_back


def torus_allreduce__whole_arrays_in_rows(k, n):
    """the ring in both directions takes 3.06"""
    return together(*(place(ring(4, n), row) for row in _ROWS)) + together(*(place(ring(4, n), c) for c in _COLUMNS))


def torus_allreduce__one_list_of_transfers(k, n):
    """a schedule is a list of steps"""
    return [transfer for step in ring(k, n) for transfer in step]


def line_allreduce__no_answer(k, n):
    """it returned nothing. Write line_allreduce"""


def line_allreduce__over_the_broken_wire(k, n):
    """right, but no wire leads from device 7 to device 0"""
    return ring(k, n)


def line_allreduce__to_an_end_and_back(k, n):
    """cut the array into many chunks"""
    collect = [[Transfer(i, i - 1, 0, n, "add")] for i in range(k - 1, 0, -1)]
    return collect + [[Transfer(i, i + 1, 0, n, "copy")] for i in range(k - 1)]


def line_allreduce__to_the_end_alone(k, n):
    """begin with one chunk: it collects all shares on its way to one device"""
    return [[Transfer(i, i - 1, 0, n, "add")] for i in range(k - 1, 0, -1)]


def line_allreduce__adds_on_the_way_back(k, n):
    """counted"""
    collect = [[Transfer(i, i - 1, 0, n, "add")] for i in range(k - 1, 0, -1)]
    return collect + [[Transfer(i, i + 1, 0, n, "add")] for i in range(k - 1)]


def line_allreduce__all_there_then_all_back(k, n):
    """no schedule can beat 6.402, and 1.4 times that is enough"""
    chunks = chunk_bounds(n, 128)
    collect = [[[Transfer(i, i - 1, *chunk, "add")] for i in range(k - 1, 0, -1)] for chunk in chunks]
    give_back = [[[Transfer(i, i + 1, *chunk, "copy")] for i in range(k - 1)] for chunk in chunks]
    late = [together(*([[]] * number + steps for number, steps in enumerate(way))) for way in (collect, give_back)]
    return late[0] + late[1]
