"""All kernels that the package launches for its networks, in every size: what compile_kernels.py compiles, in order."""

import functools
import itertools
from typing import NamedTuple

import d2lmgpu as d2l
from d2lmgpu.kernels.cuda import PRECISIONS, TENSOR_CORES, has_kernels
from d2lmgpu.networks.known import cnn_network, lenet_network
from d2lmgpu.networks.optimizers import OPTIMIZERS

from .record import record_additions, record_plan, record_step

NETWORKS = {
    "lenet": lenet_network,
    "lenet-bn": functools.partial(lenet_network, batch_norm=True),
    "cnn": lambda width, input_shape: cnn_network(input_shape) if width == 1 else None,
}
WIDTHS = 1, 2, 0.5, 4
BATCHES = 256, 2048, 96, 1, 7
SHAPES = (1, 28, 28), (1, 31, 17)
ARCHITECTURES = 90, 80, 120, 75, 100
"""Compute capabilities times ten. All of these lists begin with what matters most."""
AS_WRITTEN = 7
"""Images, above which a network with layers that have no kernel is left out: NumPy would compute these."""


class Module(NamedTuple):
    """A source and its options, which are compiled together. ``oldest``: the first architecture that can run it."""

    code: str
    options: tuple[str, ...]
    oldest: int
    launches: frozenset  # of (kernel's name, threads of a block, bytes of dynamic shared memory)


def every_module():
    """All `Module`s, those of the most important settings first; the same order in every run."""
    found = {}
    for settings in settings_in_order():
        for launch in record(*settings):
            key = launch.code, launch.options
            oldest = TENSOR_CORES if PRECISIONS[settings[-1]] else 0
            threads = functools.reduce(int.__mul__, map(int, launch.block))
            launches, before = found.get(key, (set(), 1000))
            launches.add((launch.name, threads, launch.shared_bytes))
            found[key] = launches, min(before, oldest)
    return [Module(*key, oldest, frozenset(launches)) for key, (launches, oldest) in found.items()]


def settings_in_order():
    """(network's name, width, batch, shape, precision), the sum of their places in the lists growing."""
    lists = list(NETWORKS), WIDTHS, BATCHES, SHAPES, list(PRECISIONS)
    return in_order(*lists)


def in_order(*lists):
    """The elements of the lists' product, those first whose places in the lists have the smallest sum."""
    places = sorted(itertools.product(*(range(len(values)) for values in lists)), key=lambda place: (sum(place), place))
    return [tuple(values[i] for values, i in zip(lists, place, strict=True)) for place in places]


def record(name, width, batch, shape, precision):
    """The launches of these settings; none if there is no such network."""
    network = NETWORKS[name](width=width, input_shape=shape)
    if network is None:
        return []
    if has_kernels(network):
        usual = (width, batch, shape) == (WIDTHS[0], BATCHES[0], SHAPES[0])
        runs = [("sgd", 1, {}), *([(optimizer, 2, {}) for optimizer in OPTIMIZERS] if usual else [])]
        found = [record_step(network, batch, precision, k, how, shape=shape, **more) for how, k, more in runs]
        found += [record_additions()] if usual else []
        return [launch for run in found for launch in run]
    if batch > AS_WRITTEN:
        return []
    params = d2l.init_params(1, init="he", network=network)
    return record_plan(network, params, shape, batch, precision)


def jobs(modules, known):
    """(module, architecture) in order, for those of `ARCHITECTURES` that the compiler knows."""
    architectures = [arch for arch in ARCHITECTURES if arch in known]
    return [(module, arch) for module, arch in in_order(modules, architectures) if arch >= module.oldest]
