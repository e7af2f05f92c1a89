"""Split a stage among devices by its units: a convolution's channels, a dense layer's outputs.

A layer's work is a matrix product, y = x @ weight, and a matrix can be cut in two ways:

    columns    each device has some of the outputs:  its part of y = x @ some columns
    rows       each device has some of the inputs:   its share of y = its part of x @ some rows; y is the sum of shares

Megatron calls these column-parallel and row-parallel.

A device's part should be contiguous in the stage's flat array. So the parameters of a split stage are ordered by units:
for columns, an output's weights and then its bias; for rows, an input's weights, with all biases after the last unit.
With p parameters per unit, units a to b are the elements a·p to b·p; for rows, the biases belong to the device with the
last unit, so that they are added only once. After a convolution and `flatten`, a unit of a dense layer's input is a
channel with all its pixels.
"""

import functools
import itertools
import math
from typing import NamedTuple

from ..devices import array_module
from .actions import chunk_bound
from .plan import shapes_of


class Split(NamedTuple):
    """How a stage is split: by ``what`` ("columns" or "rows"), into ``units`` of ``size`` elements.

    ``params``: the number of all its elements; ``shapes``: the shapes of the whole parameters.
    """

    what: str
    units: int
    size: int
    params: int
    shapes: tuple

    def part(self, k, i):
        """The elements (start, stop) of part i of k; parts are as even as possible, and the last ones may be empty."""
        a, b = chunk_bound(self.units, k, i)
        ends = self.params if b == self.units else b * self.size
        return (self.params if a == self.units else a * self.size), ends

    def first(self, units):
        """The elements (start, stop) of the first ``units``; if these are all, with what follows the last one."""
        return 0, self.params if units == self.units else units * self.size

    def units_of(self, part):
        """The units (start, stop) of elements (start, stop)."""
        return tuple(min(edge // self.size, self.units) for edge in part)

    def is_part(self, part):
        """Whether elements (start, stop) are whole units; the last one includes what follows it."""
        return all(edge == self.params or edge % self.size == 0 and edge // self.size < self.units for edge in part)


@functools.lru_cache(maxsize=64)
def splits_of(network, stages):
    """The `Split` of each stage, None if it has none. Raises ValueError for a stage that cannot be split this way."""
    units, found = units_of_outputs(network, stages), []
    for s, stage in enumerate(stages):
        if stage.split is None:
            found.append(None)
            continue
        layers = network[stage.first : stage.stop]
        shapes = tuple(shapes_of(stage, network))
        weights = [i for i, layer in enumerate(layers) if has_weights(layer)]
        if len(weights) != 1 or (stage.split == "rows" and (weights[0] != len(layers) - 1 or len(shapes) > 2)):
            where = ", at its end" if stage.split == "rows" else ""
            raise ValueError(f"stage {s}: split by {stage.split} it should have one convolution or dense layer{where}")
        if stage.split == "columns":
            first = next(i for i, layer in enumerate(layers) if layer.shapes)
            if first != weights[0] or any(shape[:1] != (units[s],) for shape in shapes[1:]):
                raise ValueError(
                    f"stage {s}: split by columns, other layers with parameters should come after the convolution or "
                    f"dense layer, with one for each of its {units[s]} outputs"
                )
            found.append(Split("columns", units[s], stage.params // units[s], stage.params, shapes))
        elif s == 0 or units[s - 1] is None:
            raise ValueError(f"stage {s}: split by rows it should come after a convolution or dense layer")
        else:
            size = math.prod(shapes[0]) // units[s - 1]
            found.append(Split("rows", units[s - 1], size, stage.params, shapes))
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


def numbered(arrays, split, xp):
    """Join parameters, a list of plain arrays, into a flat array in the stage's order; ``xp`` is the arrays' module."""
    if split is not None and split.what == "columns":
        tables = [array.T if array.ndim == 2 else array.reshape(len(array), -1) for array in arrays]
        return xp.concatenate(tables, axis=1).reshape(-1)
    if split is not None and arrays[0].ndim == 4:
        arrays = [arrays[0].swapaxes(0, 1), *arrays[1:]]
    return xp.concatenate([array.reshape(-1) for array in arrays])


def views(flat, split, shapes, part):
    """Views of ``flat``, a stage's elements ``part`` (start, stop), in the shapes that its layers take.

    The part consists of whole units. A part without the biases gets new ones, which are zeros and are not kept.
    """
    if split is None:
        return in_shapes(flat, shapes)
    if split.what == "columns":
        table, found, start = flat.reshape(len(flat) // split.size, split.size), [], 0
        for shape in split.shapes:
            width = math.prod(shape) // split.units
            cut = table[:, start : start + width]
            start += width
            found.append(cut.T if len(shape) == 2 else cut.reshape(len(cut), *shape[1:]))
        return found
    weight, *bias = split.shapes
    a, b = split.units_of(part)
    stop = (b - a) * split.size
    if len(weight) == 2:
        cut = flat[:stop].reshape(stop // weight[1], weight[1])
    else:
        cut = flat[:stop].reshape(b - a, weight[0], *weight[2:]).swapaxes(0, 1)
    return [cut, *(flat[stop:] if len(flat) > stop else array_module(flat).zeros(shape, flat.dtype) for shape in bias)]


def held_units(plan, device):
    """For each stage, how many units the device has, or None if the stage is not split."""
    splits, parts = splits_of(plan.network, plan.stages), {part.stage: part for part in plan.layout[device]}
    held = []
    for s, split in enumerate(splits):
        a, b = split.units_of(parts[s].params) if split is not None and s in parts else (0, 0)
        held.append(None if split is None else b - a)
    return tuple(held)


def in_shapes(flat, shapes):
    """Consecutive views of the plain array ``flat`` (n,), in these shapes."""
    ends = itertools.accumulate(map(math.prod, shapes))
    return [flat[end - math.prod(shape) : end].reshape(shape) for shape, end in zip(shapes, ends, strict=True)]


def has_weights(layer):
    """Whether the layer is a convolution or a dense layer."""
    return bool(layer.shapes) and len(layer.shapes[0]) in (2, 4)
