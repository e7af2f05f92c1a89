"""Cutting a network into stages.

A stage begins with a layer that has parameters (the first stage with the first layer), and goes on to where the next
one begins: a convolution with its ReLU and pooling, for example. So a network has at most as many stages as layers
with parameters: LeNet four.
"""

import itertools

from ..language.plan import stage_of
from ..networks import layer_rows

BUCKET = 2**16
"""Elements of gradients that are exchanged together, at least: 256 kB of float32."""

SLACK = 1 / 8
"""By how much more than the largest layer's parameters a stage may have that is to need little memory."""


def blocks(network, begins=lambda layer: layer.shapes):
    """Where a stage may begin: the numbers of the layers that have parameters, with 0 for the first of them."""
    return [0, *[i for i, layer in enumerate(network) if begins(layer)][1:]]


def cut(network, count, costs=None):
    """The network in ``count`` stages, of which the most expensive is as cheap as can be.

    ``costs``: a number for each layer, the multiplications unless given.

    Raises ValueError if there are more stages than layers with parameters.
    """
    starts = blocks(network)
    if count > len(starts):
        raise ValueError(
            f"{count} stages of a network with {len(starts)} layers that have parameters; each stage needs one"
        )
    if costs is None:
        costs = [products for *_, products in layer_rows(network)]
    before, edges = [0, *itertools.accumulate(costs)], [*starts, len(network)]
    # by (stages, the edge where they end): the cost of the most expensive, and the edge where the last begins
    cheapest = {(1, stop): (before[edges[stop]], 0) for stop in range(1, len(edges))}
    for stages in range(2, count + 1):
        for stop in range(stages, len(edges)):
            cheapest[stages, stop] = min(
                (max(cheapest[stages - 1, start][0], before[edges[stop]] - before[edges[start]]), start)
                for start in range(stages - 1, stop)
            )
    found, stop = [], len(edges) - 1
    for stages in range(count, 0, -1):
        start = cheapest[stages, stop][1]
        found.append(stage_of(network, edges[start], edges[stop]))
        stop = start
    return tuple(reversed(found))


def in_buckets(network):
    """The network in stages of `BUCKET` parameters at least, from its end on; the first has the rest."""
    edges = [len(network)]
    for start in reversed(blocks(network)[1:]):
        if stage_of(network, start, edges[-1]).params >= BUCKET:
            edges.append(start)
    return _between(edges, network)


def by_largest(network):
    """The network in few stages, from its end on, of which none has many more parameters than its largest layer."""
    starts, edges = [*blocks(network), len(network)], [len(network)]
    largest = max(stage_of(network, *each).params for each in itertools.pairwise(starts))
    for start, stop in reversed(list(itertools.pairwise(starts))):
        if stage_of(network, start, edges[-1]).params > (1 + SLACK) * largest:
            edges.append(stop)
    return _between(edges, network)


def _between(edges, network):
    """The stages between the edges, which descend, and 0."""
    return tuple(stage_of(network, a, b) for b, a in itertools.pairwise([*edges, 0]))[::-1]
