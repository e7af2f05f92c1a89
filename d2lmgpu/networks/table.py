"""A network as a table: what each layer puts out, and what it costs."""

import math

import numpy as np

from ..kernels.stages import function_of, output_shapes
from .build import check_network


def layer_rows(network):
    """For each layer its name, the shape that it puts out for one image, its parameters and its multiplications.

    Counted are the products of convolutions and dense layers, one for each weight and position; beside them the others
    are few. Raises ValueError for what is no network.
    """
    check_network(network)
    params = [np.zeros(shape, np.float32) for layer in network for shape in layer.shapes]
    shapes = output_shapes(network, params, np.zeros((1, *network.input_shape), np.float32))
    rows = []
    for i, (layer, shape) in enumerate(zip(network, shapes, strict=True)):
        name = repr(network.recipes[i]) if network.recipes else function_of(layer)[0].__name__
        parameters = sum(map(math.prod, layer.shapes))
        weights = sum(math.prod(shape) for shape in layer.shapes if len(shape) > 1)
        rows.append((name, tuple(shape), parameters, weights * math.prod(shape[1:])))
    return rows


def layer_table(network):
    """These rows as text, with their sums. Raises ValueError for what is no network."""
    rows = layer_rows(network)
    total = "", "", sum(row[2] for row in rows), sum(row[3] for row in rows)
    head = "layer", "output", "parameters", "multiplications"
    cells = [head] + [
        (name, " × ".join(map(str, shape)), f"{parameters:,}", f"{products:,}")
        for name, shape, parameters, products in [("input", network.input_shape, 0, 0), *rows, total]
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}  {d:>{widths[3]}}" for a, b, c, d in cells]
    lines[-1:] = ["-" * len(lines[0]), lines[-1]]
    return "\n".join(lines)
