"""Cut a network into stages.

A stage begins with a layer that has parameters (the first stage begins with the first layer), and ends where the next
stage begins. For example, a stage may be a convolution with its ReLU and pooling. So a network can be cut into at most
as many stages as it has layers with parameters; for LeNet these are four.
"""

import itertools

from ...base.arguments import plain
from ...networks import layer_rows
from ...networks.checks import check_network, check_trainable
from ..plan import stage_of

BUCKET = 2**16
"""The least number of gradient elements that are exchanged together: 256 kB of float32."""

SLACK = 1 / 8
"""By which fraction a stage that should need little memory may have more parameters than the largest layer."""


def blocks(network, begins=lambda layer: layer.shapes):
    """The numbers of the layers at which a stage may begin: those with parameters, with 0 in place of the first.

    Raises ValueError unless ``network`` is a `Network` that has parameters.
    """
    check_network(network)
    check_trainable(network)
    return [0, *[i for i, layer in enumerate(network) if begins(layer)][1:]]


def cut(network, count, costs=None):
    """The network in ``count`` stages, such that the most expensive stage is as cheap as possible.

    ``costs``: a number for each layer, by default its multiplications.

    Raises ValueError if there are more stages than layers with parameters.
    """
    starts = blocks(network)
    if count > len(starts):
        raise ValueError(
            f"{count} stages for a network with {len(starts)} layers that have parameters; each stage needs one"
        )
    if costs is None:
        costs = [products for *_, products in layer_rows(network)]
    before, edges = [0, *itertools.accumulate(plain(costs))], [*starts, len(network)]
    # {(stages, the edge where they end): (the cost of the most expensive stage, the edge where the last one begins)}
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
    """The network in stages of at least `BUCKET` parameters, counted from the end; the first stage has the rest."""
    edges = [len(network)]
    for start in reversed(blocks(network)[1:]):
        if stage_of(network, start, edges[-1]).params >= BUCKET:
            edges.append(start)
    return _between(edges, network)


def by_largest(network):
    """The network in few stages, none of which has many more parameters than the largest layer."""
    starts, edges = [*blocks(network), len(network)], [len(network)]
    largest = max(stage_of(network, *each).params for each in itertools.pairwise(starts))
    for start, stop in reversed(list(itertools.pairwise(starts))):
        if stage_of(network, start, edges[-1]).params > (1 + SLACK) * largest:
            edges.append(stop)
    return _between(edges, network)


def _between(edges, network):
    """The stages between 0 and the ``edges``, which are in descending order."""
    return tuple(stage_of(network, a, b) for b, a in itertools.pairwise([*edges, 0]))[::-1]
