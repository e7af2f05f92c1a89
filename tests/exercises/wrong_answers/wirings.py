"""Wrong answers to the exercises of notebook 6b. A docstring is a part of what the check should say."""

from d2lmgpu.collectives import (
    Transfer,
    all_gather,
    chunk_bounds,
    in_parallel,
    place,
    reduce_scatter,
    ring,
)

_ROWS = [[4 * row + column for column in range(4)] for row in range(4)]
_COLUMNS = [list(column) for column in zip(*_ROWS, strict=True)]


def torus_allreduce__rows_alone(k, n):
    """the shares of devices 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14 and 15 are missing"""
    return in_parallel(*(place(ring(4, n), row) for row in _ROWS))


def torus_allreduce__in_the_order_of_numbers(k, n):
    """right, but no wire leads from device 3 to device 4"""
    return ring(k, n)


def torus_allreduce__rows_then_columns(k, n):
    """rows and columns can work at the same time"""
    bounds = chunk_bounds(n, 4)
    collect = in_parallel(*(place(reduce_scatter(4, n), row) for row in _ROWS))
    between = [place(ring(4, b - a), column, a) for column, (a, b) in zip(_COLUMNS, bounds, strict=True)]
    give_back = in_parallel(*(place(all_gather(4, n), row) for row in _ROWS))
    return collect + in_parallel(*between) + give_back


def line_allreduce__over_the_broken_wire(k, n):
    """right, but no wire leads from device 7 to device 0"""
    return ring(k, n)


def line_allreduce__to_an_end_and_back(k, n):
    """cut the array into many chunks"""
    collect = [[Transfer(i, i - 1, 0, n, "add")] for i in range(k - 1, 0, -1)]
    return collect + [[Transfer(i, i + 1, 0, n, "copy")] for i in range(k - 1)]


def line_allreduce__adds_on_the_way_back(k, n):
    """counted"""
    collect = [[Transfer(i, i - 1, 0, n, "add")] for i in range(k - 1, 0, -1)]
    return collect + [[Transfer(i, i + 1, 0, n, "add")] for i in range(k - 1)]
