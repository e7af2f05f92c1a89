"""Solutions of notebook 6b's exercises."""

import math

import numpy as np

from d2lmgpu.collectives import Transfer, all_gather, chunk_bounds, in_parallel, place, reduce_scatter


def ring_seconds(k, nbytes, latency, bandwidth):
    """Steps, times the time of one."""
    return 2 * (k - 1) * (latency + nbytes / k / bandwidth)


def crossover_bytes(k, latency, bandwidth):
    """From 2(k-1)(α + n/kB) = 2r(α + n/B), with r = ⌈log₂ k⌉."""
    rounds = math.ceil(math.log2(k))
    return latency * bandwidth * (k - 1 - rounds) / (rounds - (k - 1) / k)


def torus_allreduce(k, n):
    """A quarter of the array each for rows first and columns first, one way round and the other, all at once."""

    def ring(elements):  # the library's own, without its name: that is the answer to notebook 6's exercise
        return reduce_scatter(4, elements) + all_gather(4, elements)

    grid, parts = np.arange(k).reshape(4, 4), []
    turned = grid[::-1, ::-1]
    for (start, stop), first in zip(chunk_bounds(n, 4), (grid, grid.T, turned, turned.T), strict=True):
        lines, own = first.tolist(), chunk_bounds(stop - start, 4)
        across = zip(first.T.tolist(), own, strict=True)  # the devices in place i of their lines own chunk i
        collect = [place(reduce_scatter(4, stop - start), line, start) for line in lines]
        add_up = [place(ring(after - before), line, start + before) for line, (before, after) in across]
        give_back = [place(all_gather(4, stop - start), line, start) for line in lines]
        parts.append(in_parallel(*collect) + in_parallel(*add_up) + in_parallel(*give_back))
    return in_parallel(*parts)


def line_allreduce(k, n):
    """Each chunk is added up from both ends to the middle, and goes back; the next one is a step behind it."""

    def one(start, stop):
        ways = [[(i, i + 1), (k - 1 - i, k - 2 - i)] for i in range(k // 2 - 1)] + [[(k // 2, k // 2 - 1)]]
        collect = [[Transfer(a, b, start, stop, "add") for a, b in step] for step in ways]
        return collect + [[Transfer(b, a, start, stop, "copy") for a, b in step] for step in reversed(ways)]

    return in_parallel(*([[]] * late + one(*bounds) for late, bounds in enumerate(chunk_bounds(n, 128))))
