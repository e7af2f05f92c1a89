"""How many bytes the values of a plan take. They follow from the shapes of layers' outputs.

The cache of a stage is described by what each kind of layer keeps from forward to backward:

                  computed by kernels                                  as written
    conv2d        the padded images, and all patches, or by            all patches
                  Winograd's method the values of all tiles
    dense         nothing                                              its inputs
    batch_norm    room for the gradients of its inputs                 the normalised inputs
    ReLU          which inputs are positive, a byte for each           its outputs
    max_pool2d    its inputs                                           its inputs and outputs
    dropout       nothing                                              the mask
    the loss      its gradients, and a byte for each                   the probabilities
    all of these  their outputs, after ReLU and pooling if these       nothing more
                  follow; and a copy of the stage's inputs

Kernels' scratch memory, which they need only while they compute, does not belong to a device. For a layer of your own,
it is assumed that it keeps its inputs and its outputs.
"""

import functools
import math
from typing import NamedTuple

import numpy as np

from ...collectives.actions import chunk_bound
from ...devices.cpu import memory_of
from ...layers import batch_norm, conv2d, dense, dropout, flatten, functions, max_pool2d, relu
from ...layers.winograd import choose_tile
from ..plan import shapes_of
from ..stages import splits_of, views

_AT_A_TIME = 32
"""Kernels compute at least this many examples at a time, if there are as many and the images are not very large."""

_BYTES_OF_SUMS = 80
"""The bytes of a channel's sums in batch norm: five numbers of the examples that kernels take, and five of all."""

KEEP_X, KEEP_Y, KEEP_LIKE_X = (dense, max_pool2d), (relu, max_pool2d), (batch_norm, dropout)
"""Layers that, as they are written, keep their input, their output, or as many numbers as the input has."""


class Bytes(NamedTuple):
    """``each`` for each example, and ``once`` for all examples that kernels compute at a time."""

    each: int
    once: int = 0

    def __call__(self, examples):
        return self.each * examples + self.once * (1 + examples // _AT_A_TIME) if examples else 0


class StageSizes(NamedTuple):
    """The `Bytes` of a stage's values.

    ``y`` is as a device makes it; ``whole``, with no part left out, is dy, too. ``kept`` is the cache of kernels.
    ``cache`` and ``delta`` are for layers that compute as they are written, and without what they share: the cache may
    hold the stage's input, and delta may hold dy.
    """

    x: Bytes
    y: Bytes
    whole: Bytes
    kept: Bytes
    cache: Bytes
    cache_has_x: bool
    delta: Bytes
    delta_has_dy: bool


@functools.lru_cache(maxsize=64)
def stage_sizes(network, stages, dtype, held=None):
    """The `StageSizes` of each stage, for arrays of ``dtype``.

    ``held``: for each stage, how many of its units a device has (see `held_units`); by default all.
    """
    dtype, found, x = np.dtype(dtype), [], network.input_shape
    splits, outputs = splits_of(network, stages) if held else [None] * len(stages), stage_output_shapes(network, stages)
    for s, stage in enumerate(stages):
        layers, is_last = network[stage.first : stage.stop], s == len(stages) - 1
        number = stage.params if splits[s] is None else splits[s].size * held[s]
        params = views(np.zeros(number, dtype), splits[s], shapes_of(stage, network))
        shapes = [x, *functions.output_shapes(functions.with_shapes(layers, params), x, dtype)]
        given, y, whole = (Bytes(dtype.itemsize * math.prod(shape)) for shape in (x, shapes[-1], outputs[s]))
        handed_on = [Bytes(0)] * 2 if is_last else [y, whole]
        about = layers, shapes, dtype.itemsize, is_last
        found.append(StageSizes(given, *handed_on, _kept(*about), *_written(*about, is_first=s == 0)))
        x = outputs[s]
    return found


@functools.lru_cache(maxsize=64)
def stage_output_shapes(network, stages):
    """The shape of each stage's y for one example, with all units."""
    shapes = functions.output_shapes(network, network.input_shape)
    return [shapes[stage.stop - 1] for stage in stages]


def examples_of(batch_size, micro_batches, m):
    """The examples (start, stop) of micro-batch m; micro-batches are as even as possible, and the last may be empty.

    ``batch_size``: a number, or a tuple with the size of each micro-batch.
    """
    if isinstance(batch_size, tuple):
        return sum(batch_size[:m]), sum(batch_size[: m + 1])
    return chunk_bound(batch_size, micro_batches, m)


@functools.lru_cache
def examples_in_each(batch_size, micro_batches):
    """How many examples each micro-batch has."""
    bounds = (examples_of(batch_size, micro_batches, m) for m in range(micro_batches))
    return [stop - start for start, stop in bounds]


def _kept(layers, shapes, itemsize, is_last):
    """What kernels keep, `Bytes`. ``shapes``: of the stage's input and of each layer's output, for one example."""
    numbers, flags, once, i, in_tiles = math.prod(shapes[0]), 0, 0, 0, False
    while i < len(layers):
        function, options = functions.function_of(layers[i])
        joins = function in (conv2d, dense, batch_norm)  # with the ReLU and the pooling after it
        (size, pool, rectified), fused = functions.relu_and_pool(layers[i + joins :])
        layer, x, i = layers[i], shapes[i], i + max(1, joins + fused)
        inside, y, matrices = 0, math.prod(shapes[i]), 0
        if function is conv2d:
            inside, y, matrices = _convolution(x, shapes[i], layer.shapes[0][2:], size, **options)
        elif function is batch_norm or fused and not joins:
            inside = math.prod(x)  # the gradients
        elif function is flatten and not in_tiles:
            y = 0  # the same memory as x
        squares = 0 if function in (dense, batch_norm) else y * size**2  # what ReLU and pooling take
        numbers += inside + y + (squares if pool == "max" else 0)
        flags += squares if rectified and pool != "max" else 0
        once += itemsize * matrices + (_BYTES_OF_SUMS * x[0] if function is batch_norm else 0)
        in_tiles = matrices > 0
    outputs = math.prod(shapes[-1]) if is_last else 0
    return Bytes(itemsize * (numbers + outputs) + flags + outputs, once + 8 * outputs)


def _convolution(x, y, kernel, size, stride=1, padding=0):
    """Numbers that a convolution keeps: for each example beside its outputs, its outputs, and once."""
    C, O, outputs = x[0], y[0], [side * size for side in y[1:]]
    frame = _padded(x, padding) if padding else 0
    tile = choose_tile(kernel, outputs, size, C, O) if stride == 1 else None
    if tile is None:
        return frame + (C * math.prod(kernel) + 1) * math.prod(outputs), math.prod(y), 0
    tiles = [-(-side // m) for side, m in zip(outputs, tile, strict=True)]
    points = [m + r - 1 for m, r in zip(tile, kernel, strict=True)]
    matrices = sum((T + 1) * t * (2 * m + t) for T, t, m in zip(tiles, points, tile, strict=True))
    inside, area = frame + C * math.prod(tiles + points), math.prod([*tiles, *tile])
    return inside, O * area // size**2, matrices + math.prod([*points, *kernel])


def _padded(x, padding=0, stride=1):
    """How many numbers an image of shape x has with its padding."""
    return x[0] * math.prod(side + 2 * padding for side in x[1:])


def _written(layers, shapes, itemsize, is_last, is_first):
    """What layers keep as they are written: cache, cache_has_x, delta and delta_has_dy of `StageSizes`."""
    numbers, once, has_x, deltas = 0, 0, False, []
    # Who keeps x already: "stage" (it is the stage's input), "cache" or None; whether flatten need not copy x.
    holder, is_plain = "stage", is_first
    for i, layer in enumerate(layers):
        function, options = functions.function_of(layer)
        x, y = map(math.prod, shapes[i : i + 2])
        if function is conv2d and i and layers[i - 1].shapes:
            deltas[-1] = _padded(shapes[i], **options)  # a view of the convolution's padded gradient
        is_own = function not in functions.EACH_BY_ITSELF and function is not batch_norm
        keeps_x, keeps_y = is_own or function in KEEP_X, is_own or function in KEEP_Y
        has_x = has_x or (keeps_x and holder == "stage")
        numbers += x * (keeps_x and holder is None) + x * (function in KEEP_LIKE_X) + y * keeps_y
        if function is conv2d:
            numbers += shapes[i][0] * math.prod(layer.shapes[0][2:] + shapes[i + 1][1:])
        once += _BYTES_OF_SUMS * shapes[i][0] if function is batch_norm else 0
        if function is not flatten or not is_plain:
            holder = "cache" if keeps_y else None
        is_plain = function in functions.POOLS or (is_plain and function is not conv2d)
        if layer.shapes:
            deltas.append(y)
    has_dy = not is_last and bool(layers) and bool(layers[-1].shapes)
    deltas = deltas[:-1] if has_dy else deltas
    outputs = math.prod(shapes[-1]) if is_last else 0
    return Bytes(itemsize * (numbers + outputs), once), has_x, Bytes(itemsize * sum(deltas)), has_dy


# The arrays that belong to what forward keeps for backward: a device with a memory limit counts them.


def owned_arrays(cache, scratch):
    """The plain arrays that own the memory of a cache, each once, without those in ``scratch``.

    A cache is an object of the kernels, or the lists and tuples that layers keep if they compute as they are written.
    """
    found, seen, rest = {}, set(), [cache]
    shared = {id(array) for arrays in scratch.values() for array in arrays}
    while rest:
        one = rest.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if hasattr(one, "nbytes") and not isinstance(one, np.generic):
            one = memory_of(one)
            if id(one) not in shared:
                found[id(one)] = one
        elif isinstance(one, (list, tuple, dict)):
            rest += one.values() if isinstance(one, dict) else one
        elif hasattr(one, "__dict__") and type(one).__module__.startswith("d2lmgpu."):
            rest.append(vars(one))
    return list(found.values())
