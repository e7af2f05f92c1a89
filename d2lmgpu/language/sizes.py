"""How much memory the values of a plan take, found by sending two and three zero images through each stage.

The cache of a stage may hold its input, its output, or neither; data that belong to several values are in memory only
once. So a value is described by *pieces of memory*: its own pieces, and those that it shares.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..kernels.cpu import Pass
from ..kernels.stages import norm_channels, output_shapes as layer_shapes, with_shapes
from ..layers import Draws, zero_moments
from ..networks.plain import backward_inputs, forward, loss_backward, loss_forward, with_weights, without_weights
from .actions import chunk_bound
from .objective import CLASSES
from .plan import all_of, shapes_of
from .split import splits_of, views
from .ways import has_kernels

PACKAGE = __name__.split(".")[0]


class Linear(NamedTuple):
    """Bytes for N examples: ``each`` · N + ``once``."""

    each: int
    once: int

    def __call__(self, examples):
        return self.each * examples + self.once


class StageSizes(NamedTuple):
    """The bytes of a stage's values, each as a `Linear` function of the number of examples.

    ``y`` and ``dy`` are as a device makes them, and ``whole`` is either of them with no part left out. ``cache`` and
    ``delta`` are for layers that compute as they are written, and without what they share: the cache may hold the
    stage's input, and delta may hold dy. ``kept``: a function of N examples, which returns the bytes of
    the kernels' cache; None without kernels.
    """

    x: Linear
    y: Linear
    dy: Linear
    whole: Linear
    cache: Linear
    cache_has_x: bool
    delta: Linear
    delta_has_dy: bool
    kept: Callable = None


@functools.lru_cache(maxsize=64)
def stage_sizes(network, stages, dtype, held=None, objective=CLASSES):
    """The `StageSizes` of each stage, for arrays of ``dtype``; the last stage ends with the ``objective``.

    ``held``: for each stage, how many of its units a device has (see `held_units`); by default all.
    """
    if held is None or not any(stage.split for stage in stages):
        stages, held = tuple(stage._replace(split=None) for stage in stages), [None] * len(stages)
    few = 2  # with one example, the channels would lie in memory in another way
    runs = [_run(network, stages, dtype, examples, held, objective) for examples in (few, few + 1)]
    found = []
    for a, b in zip(*runs, strict=True):
        pairs = zip(a[:-1], b[:-1], strict=True)
        linear = (p if isinstance(p, bool) else Linear(q - p, p - few * (q - p)) for p, q in pairs)
        found.append(StageSizes(*linear, a.kept))
    return found


@functools.lru_cache(maxsize=64)
def output_shapes(network, stages):
    """The shape of each stage's y for one example, with all units."""
    params = [np.zeros(shape, np.float32) for layer in network for shape in layer.shapes]
    shapes = layer_shapes(network, params, np.zeros((1, *network.input_shape), np.float32))
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


def memory_of(array):
    """The array that owns the memory of ``array``: itself, or the array of which it is a view."""
    owner = array
    while (array := getattr(array, "base", None)) is not None:  # the first base of a strided view is not an array
        if hasattr(array, "nbytes"):
            owner = array
    return owner


@functools.lru_cache(maxsize=256)
def kept_bytes(layers, param_shapes, shape, dtype, input_grad, is_last, loss, examples):
    """The bytes that kernels hold between forward and backward of this many ``examples`` of this ``shape``."""
    if not examples:
        return 0
    params = [np.zeros(shape, dtype) for shape in param_shapes]
    papers = {}
    layers = with_shapes(layers, params)
    kept = Pass(layers, params, shape, dtype, examples, input_grad, is_last, loss, papers)
    return sum(array.nbytes for array in owned_arrays(kept, papers))


def owned_arrays(thing, papers):
    """The plain arrays that own the memory of a cache, each once, without scratch ``papers``.

    A cache is an object of the kernels, or the lists and tuples that layers keep if they compute as they are written.
    """
    found, seen, rest = {}, set(), [thing]
    shared = {id(array) for paper in papers.values() for array in paper}
    while rest:
        one = rest.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if hasattr(one, "dtype") and isinstance(one.shape, tuple) and not isinstance(one, np.generic):
            one = memory_of(one)
            if id(one) not in shared:
                found[id(one)] = one
        elif isinstance(one, (list, tuple)):
            rest += one
        elif isinstance(one, dict):
            rest += one.values()
        elif isinstance(one, functools.partial):
            rest += [*one.args, one.keywords]
        elif getattr(one, "__closure__", None):
            rest += [cell.cell_contents for cell in one.__closure__]
        elif hasattr(one, "__dict__") and not isinstance(one, type) and type(one).__module__.startswith(PACKAGE):
            rest.append(vars(one))
    return list(found.values())


def _run(network, stages, dtype, examples, held, objective):
    """For each stage, a `StageSizes` with the bytes for this many ``examples``."""
    x, targets, runs = np.zeros((examples, *network.input_shape), dtype), objective.zeros(examples), []
    splits, shapes = splits_of(network, stages), output_shapes(network, stages)
    for s, stage in enumerate(stages):
        part = all_of(stage) if splits[s] is None else splits[s].first(held[s])
        params = views(np.zeros(part[1] - part[0], dtype), splits[s], shapes_of(stage, network), part)
        is_last = s == len(stages) - 1
        layers = network[stage.first : stage.stop]
        moments = zero_moments(norm_channels(layers, params))
        y, cache = forward(layers, x, params, Draws(0), moments)
        cache = without_weights(layers, cache)
        before, after = stages[s].split, None if is_last else stages[s + 1].split
        whole = dy = None
        if is_last:
            _, end = loss_forward(y, targets, objective.loss)
            cache.append(end)
            own_dy = loss_backward(end, objective.loss)
        else:
            whole = np.moveaxis(np.zeros((*shapes[s], examples), dtype), -1, 0)  # as values of a plan lie in memory
            y = whole[:, : y.shape[1]].copy(order="K")
            dy = y if after == "rows" else whole
            own_dy = whole[:, : y.shape[1]] if before == "columns" else whole
        whole_caches = with_weights(layers, cache[: len(layers)], params)
        _, delta = backward_inputs(layers, own_dy, whole_caches, input_grad=s > 0)
        kept = None
        if has_kernels(stage, network) and all(param.size for param in params):
            shapes_here = tuple(param.shape for param in params)
            loss = objective.loss.for_kernels(targets)
            arguments = layers, shapes_here, x.shape[1:], np.dtype(dtype), s > 0, is_last, loss
            kept = functools.partial(kept_bytes, *arguments)
        runs.append(_measure(x, y, cache, dy, delta, targets, whole)._replace(kept=kept))
        x = whole if before and after != "rows" and not is_last else y
    return runs


def _measure(x, y, cache, dy, delta, targets, whole):
    x, dy = memory_of(x), memory_of(dy)
    held, deltas = owned_arrays(cache, {}), owned_arrays(delta, {})
    own = sum(array.nbytes for array in held if array is not x and array is not targets)
    own_delta = sum(array.nbytes for array in deltas if array is not dy)
    handed_on = [0] * 3 if dy is None else [y.nbytes, dy.nbytes, whole.nbytes]
    has_x, has_dy = any(array is x for array in held), any(array is dy for array in deltas)
    return StageSizes(x.nbytes, *handed_on, own, has_x, own_delta, has_dy)
