"""Cut a network into stages, and split a stage among devices by its units.

A stage begins with a layer that has parameters (the first stage begins with the first layer), and ends where the next
stage begins. For example, a stage may be a convolution with its ReLU and pooling. So a network can be cut into at most
as many stages as it has layers with parameters; for LeNet these are four.

The units of a stage are a convolution's channels, or a dense layer's outputs. A layer's work is a matrix product,
y = x @ weight. Each device has some of the weight's columns, and so some of the outputs: its part of y = x @ some
columns. Megatron calls this column-parallel.

A device's part should be contiguous in the stage's flat array. So the parameters of a split stage are ordered by units:
an output's weights, and then its bias. With p parameters per unit, units a to b are the elements a·p to b·p.
"""

import functools
import itertools
import math
from typing import NamedTuple

import numpy as np

from ..collectives.actions import chunk_bound
from ..networks import layer_rows
from ..networks.checks import check_network, check_trainable
from .plan import shapes_of, stage_of

BUCKET = 2**16
"""The least number of gradient elements that are exchanged together: 256 kB of float32."""

SLACK = 1 / 8
"""By which fraction a stage that should need little memory may have more parameters than the largest layer."""


def blocks(network, begins=lambda layer: layer.shapes):
    """The numbers of the layers at which a stage may begin: the first layer, and all but the first with parameters.

    ``begins(layer)`` may ask for something else than parameters. Raises ValueError unless ``network`` is a `Network`
    that has parameters.
    """
    check_network(network)
    check_trainable(network)
    return [0, *[i for i, layer in enumerate(network) if begins(layer)][1:]]


def cut(network, count):
    """The network in ``count`` stages, such that the most multiplications of a stage are as few as possible.

    Raises ValueError if there are more stages than layers with parameters.
    """
    starts = blocks(network)
    if count > len(starts):
        raise ValueError(
            f"{count} stages for a network with {len(starts)} layers that have parameters; each stage needs one"
        )
    before = [0, *itertools.accumulate(products for *_, products in layer_rows(network))]
    edges = [*starts, len(network)]
    # {(stages, the edge where they end): (the most multiplications of a stage, the edges between them)}
    cheapest = {(1, stop): (before[edges[stop]], (0, stop)) for stop in range(1, len(edges))}
    for stages in range(2, count + 1):
        for stop in range(stages, len(edges)):
            most, start = min(
                (max(cheapest[stages - 1, start][0], before[edges[stop]] - before[edges[start]]), start)
                for start in range(stages - 1, stop)
            )
            cheapest[stages, stop] = most, (*cheapest[stages - 1, start][1], stop)
    _, found = cheapest[count, len(edges) - 1]
    return tuple(stage_of(network, edges[start], edges[stop]) for start, stop in itertools.pairwise(found))


def in_buckets(network):
    """The network in stages of at least `BUCKET` parameters, counted from the end; the first stage has the rest."""
    return _from_the_end(network, lambda before, start, stop: stage_of(network, start, stop).params >= BUCKET)


def by_largest(network):
    """The network in few stages, none of which has many more parameters than the largest layer."""
    layers = itertools.pairwise([*blocks(network), len(network)])
    most = (1 + SLACK) * max(stage_of(network, start, stop).params for start, stop in layers)
    return _from_the_end(network, lambda before, start, stop: stage_of(network, before, stop).params > most)


def _from_the_end(network, begins):
    """The stages, found from the last to the first.

    ``begins(before, start, stop)``: whether a stage that ends at ``stop`` should begin at ``start``, and not already at
    ``before``, the place before that at which it could begin.
    """
    found, stop = [], len(network)
    for before, start in reversed(list(itertools.pairwise(blocks(network)))):
        if begins(before, start, stop):
            found.append(stage_of(network, start, stop))
            stop = start
    return (stage_of(network, 0, stop), *reversed(found))


# A stage's parameters in one flat array, in the order of its units if it is split by them:


class Split(NamedTuple):
    """How a stage is split: into ``units`` of ``size`` elements."""

    units: int
    size: int

    def part(self, k, i):
        """The elements (start, stop) of part i of k; parts are as even as possible, and the last ones may be empty."""
        return tuple(unit * self.size for unit in chunk_bound(self.units, k, i))

    def units_of(self, part):
        """The units (start, stop) of elements (start, stop)."""
        return tuple(edge // self.size for edge in part)


@functools.lru_cache(maxsize=64)
def splits_of(network, stages):
    """The `Split` of each stage, None if it has none. Raises ValueError for a stage that cannot be split this way."""
    units, found = units_of_outputs(network, stages), []
    for s, stage in enumerate(stages):
        if stage.split is None:
            found.append(None)
            continue
        layers, shapes = network[stage.first : stage.stop], shapes_of(stage, network)
        with_weights = [has_weights(layer) for layer in layers if layer.shapes]
        before = itertools.takewhile(lambda layer: not layer.shapes, layers)
        wrong = [shape[:1] != (units[s],) for shape in shapes[1:]] + [layer.random for layer in before]
        if with_weights[:1] != [True] or any(with_weights[1:]) or any(wrong):
            raise ValueError(
                f"stage {s}: split by columns, it should have one convolution or dense layer, and no dropout before; "
                "other layers with parameters should come after it, with one for each of its outputs"
            )
        found.append(Split(units[s], stage.params // units[s]))
    return found


@functools.lru_cache(maxsize=64)
def units_of_outputs(network, stages):
    """The number of units of each stage's y: outputs of the last convolution or dense layer, or None before any."""
    found, units = [], None
    for stage in stages:
        for layer in network[stage.first : stage.stop]:
            if has_weights(layer):
                weight = layer.shapes[0]
                units = weight[0] if len(weight) == 4 else weight[1]
        found.append(units)
    return found


def flat_stages(params, plan):
    """For each stage, a flat array of its parameters, in the stage's order; ``params``: the network's NumPy arrays."""
    rest, flats, none = iter(params), [], np.zeros(0, params[0].dtype)
    for stage, split in zip(plan.stages, splits_of(plan.network, plan.stages), strict=True):
        own = [next(rest) for _ in shapes_of(stage, plan.network)]
        if split is not None:  # a row for each unit
            own = [array.T if array.ndim == 2 else array.reshape(len(array), -1) for array in own]
            own = [np.concatenate(own, axis=1)]
        flats.append(np.concatenate([none, *(array.reshape(-1) for array in own)]))
    return flats


def views(flat, split, shapes):
    """Views of ``flat`` as a stage's layers take it: all parameters, which have these ``shapes``, or whole units."""
    if split is None:
        return in_shapes(flat, shapes)
    table, found, start = flat.reshape(len(flat) // split.size, split.size), [], 0
    for shape in shapes:
        width = math.prod(shape) // split.units
        columns = table[:, start : start + width]
        start += width
        found.append(columns.T if len(shape) == 2 else columns.reshape(len(columns), *shape[1:]))
    return found


def held_units(plan, device):
    """For each stage, how many units the device has, or None if the stage is not split."""
    elements = {part.stage: part.params[1] - part.params[0] for part in plan.layout[device]}
    splits = splits_of(plan.network, plan.stages)
    return tuple(None if split is None else elements.get(s, 0) // split.size for s, split in enumerate(splits))


def in_shapes(flat, shapes):
    """Consecutive views of the plain array ``flat`` (n,), in these shapes."""
    ends = itertools.accumulate(map(math.prod, shapes))
    return [flat[end - math.prod(shape) : end].reshape(shape) for shape, end in zip(shapes, ends, strict=True)]


def has_weights(layer):
    """Whether the layer is a convolution or a dense layer."""
    return bool(layer.shapes) and len(layer.shapes[0]) in (2, 4)
