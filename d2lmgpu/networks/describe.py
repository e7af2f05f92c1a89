"""Describe a network as plain data, rebuild it from such data, and list each layer's output shape and cost.

The data are only the names of layers and their arguments, so no code from a file is ever run:

{"input_shape": [1, 28, 28], "layers": [["Conv2d", {"outputs": 20, "kernel_size": 3}], ["ReLU", {}], ...]}
"""

import math

import numpy as np

from ..base.arguments import shown
from ..base.text import message_of
from ..layers.functions import function_of, output_shapes
from .build import RECIPES, Recipe, sequential


def described(network):
    """The `Network` as data for JSON; None if one of its layers was not made by a recipe of build.py."""
    if not network.recipes or not all(isinstance(recipe, Recipe) for recipe in network.recipes):
        return None
    layers = [[recipe.name, dict(recipe.arguments)] for recipe in network.recipes]
    return {"input_shape": list(network.input_shape), "layers": layers}


def restored(description):
    """The `Network` with this description. Raises ValueError for a description that `described` did not make."""
    try:
        shape = description["input_shape"]
        recipes = [RECIPES[name](**arguments) for name, arguments in description["layers"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{shown(description)} is not a description of a network: {message_of(error)}") from error
    return sequential(shape, *recipes)


def layer_rows(network):
    """For each layer: its name, its output's shape for one image, and its numbers of parameters and multiplications.

    Only the products of convolutions and dense layers are counted, one for each weight and position; there are few
    other products.
    """
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
    """The `layer_rows` as a text table, with sums in its last line."""
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
