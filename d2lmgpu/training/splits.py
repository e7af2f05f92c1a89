"""The plan for a run's settings: a split given by name, or a product of two, with a pipeline and micro-batches.

    split                pipeline    plan, for k devices and m micro-batches
    "zero3"                          zero3(k, m); likewise the other splits without a pipeline
    "layers"                         layers(k, 1), one device at a time; with several micro-batches 1f1b(k, m)
    "layers"             "gpipe"     gpipe(k, m)
    "data=2,layers=2"                copies_of("layers", 2, 2); likewise with pipelines

In a program the split may also be your own `Plan`. Without a split, it is the plan "data".
"""

import math
import re
from dataclasses import replace

import numpy as np

from ..base.arguments import check_name, check_whole, shown
from ..base.text import listed, several
from ..cluster import gather
from ..collectives import LIBRARIES
from ..devices import DeviceMemoryError
from ..layers.functions import function_of
from ..networks import in_half
from ..plans import PLANS, copies_of, prove
from ..plans.plan import MAX_PLAN_DEVICES, Compute, Plan

PIPELINES = ("gpipe", "1f1b", "zero-bubble")
SPLITS = tuple(name for name in PLANS if name not in PIPELINES)
USUAL_PIPELINE = "1f1b"
EXAMPLE = "data=2,layers=2"

WITHOUT_A_SPLIT = {"sums": "float", "batch_statistics": "local", "flat": True}
"""The settings that must have these values with a split."""

WITHOUT_SCHEDULE = ("mpi", *LIBRARIES)
"""The allreduces that a library does; they sum all gradients of data parallelism, and nothing in a plan says how."""

WITH_OVERLAP = ("data", "zero1")
"""Splits in which each device keeps all gradients until they are exchanged; other splits save this memory."""

BESIDE_PLAN = {"pipeline": None, "micro_batches": 1, "algorithm": "ring", "loads": None, "precision": "float32"}
"""The settings that must have these values if the split is a `Plan`."""


def check_split(name, split):
    """Raise ValueError unless ``split`` is None, one of `SPLITS`, a product such as "data=2,layers=2", or a `Plan`."""
    if isinstance(split, str) and "=" in split:
        _factors(split)
    elif split is not None and not isinstance(split, Plan):
        check_name(name, split, SPLITS, also=f", or a product such as {EXAMPLE}")


def check_together(settings):
    """Raise ValueError if settings cannot be combined with their split, or with each other."""
    split, pipeline, algorithm = settings.split, settings.pipeline, settings.algorithm
    own = isinstance(split, Plan)
    all_at_once = own or split in (None, *WITH_OVERLAP)  # each device has all gradients at once
    for holds, what, usual in (
        (settings.sums == "exact", "exact sums", {"precision": "float32", "overlap": False}),
        (settings.batch_statistics == "aggregated", "aggregated statistics", {"overlap": False}),
        (settings.overlap, "overlap", {"flat": True}),
        (split is None, "training without a split", {"pipeline": None, "micro_batches": 1}),
        (split is not None, "a split", WITHOUT_A_SPLIT),
        (own, "a plan of your own", BESIDE_PLAN),
        (algorithm in WITHOUT_SCHEDULE and split != "data", f"allreduce {algorithm!r}", {"split": None}),
        (split not in (None, "data"), "a split other than data", {"loads": None}),
        (not all_at_once, f"split {split!r}, whose devices do not have all gradients at once", {"overlap": False}),
        (split == "zero1" and settings.overlap, "overlap with split 'zero1'", {"precision": "float32"}),
    ):
        for name in usual if holds else ():
            value = getattr(settings, name)
            if value != usual[name]:
                raise ValueError(f"{name} is {shown(value)}, which cannot be combined with {what}; leave one out")
    if split is None or own:
        return
    if pipeline is not None and "layers" not in (split, *_factors(split)):
        raise ValueError(f"pipeline is {pipeline!r}, which is for a split over layers, and not for split {split!r}")
    if algorithm != "ring" and "data" not in (split, *_factors(split)):
        raise ValueError(f"allreduce is {shown(algorithm)}, but split {split!r} has its own collectives; leave it out")
    if settings.loads == "auto":
        raise ValueError("loads 'auto' work only without a split; give numbers, one for each device")


def check_number_of_devices(split, k):
    """Raise ValueError if the split is a product or a plan for a number of devices other than k."""
    factors = _factors(split or "")
    wanted = split.k if isinstance(split, Plan) else math.prod(factors.values()) if factors else k
    if wanted != k:
        raise ValueError(f"split {getattr(split, 'name', split)} is for {several(wanted, 'device')}; there are {k}")


def plan_of(settings, k, network, group=None):
    """The `Plan` for these `Settings` and k devices, those of the `Cluster` ``group`` if it is given.

    In mixed precision the network rounds the factors of its products, and no device updates anything before all
    gradients have arrived, since they may turn out to be infinite. Data parallelism also waits, so that if a device
    fails, no other device has begun to update.

    Raises ValueError if the network does not allow such a plan, or if the plan is for another number of devices.
    """
    k = check_whole("k, the number of devices,", k, most=MAX_PLAN_DEVICES)
    check_number_of_devices(settings.split, k)
    mixed, algorithm = settings.precision == "mixed", settings.algorithm
    if algorithm in WITHOUT_SCHEDULE:  # the engine handles these
        algorithm = "ring"
    elif group is not None and algorithm == "hierarchical":
        algorithm = group.schedules(algorithm)
    plan = _plan(settings, k, in_half(network) if mixed else network, algorithm)
    return updates_last(plan) if mixed else plan


def _plan(settings, k, network, algorithm):
    """The plan for a split. ``network``: the one that the plan computes; ``algorithm``: in a form that plans accept."""
    split, micro_batches = settings.split or "data", settings.micro_batches
    if isinstance(split, Plan):
        return _own(split, network)
    pipeline = settings.pipeline or (USUAL_PIPELINE if micro_batches > 1 else "layers")
    factors = _factors(split)
    if factors:
        copies, (name, count) = factors["data"], next(item for item in factors.items() if item[0] != "data")
        return copies_of(pipeline if name == "layers" else name, copies, count, micro_batches, network, algorithm)
    options = {"data": {"algorithm": algorithm, "buckets": settings.overlap}, "zero1": {"buckets": settings.overlap}}
    return PLANS[pipeline if split == "layers" else split](k, micro_batches, network, **options.get(split, {}))


def _own(plan, network):
    """Your own plan, applied to this network. Raises ValueError if it was made for another one."""

    def form(network):
        return [(function_of(layer), layer.shapes) for layer in network], network.input_shape, network.classes

    if form(plan.network) != form(network):
        raise ValueError(
            f"the plan {plan.name} is for another network than is trained; give the same: network=plan.network"
        )
    return plan._replace(network=network)


def updates_last(plan):
    """The plan with all updates moved after all computations and exchanges of gradients."""

    def is_of_gradients(action):
        return action.what != "update" if isinstance(action, Compute) else action.value[0] == "grads"

    last = max(number for number, step in enumerate(plan.steps) if any(map(is_of_gradients, step)))
    kept = [[action for action in step if action[0] != "update"] for step in plan.steps[: last + 1]]
    moved = [[action for action in step if action[0] == "update"] for step in plan.steps[: last + 1]]
    return plan._replace(steps=[step for step in [*kept, *moved, *plan.steps[last + 1 :]] if step])


def check_memory(plan, group, settings, batch_size, y, dtype, sizes=None):
    """The most bytes that the ``plan`` of a run needs on each device, a list.

    ``group``: a `Cluster`; all its processes call this. ``batch_size``: the size of the largest minibatch;
    ``sizes``: how many examples each micro-batch has then (by default, equal numbers); ``y``: the targets; ``dtype``:
    that of the parameters. Raises DeviceMemoryError, listing the splits that would fit, if a device's limit is too low.
    """
    number = np.dtype(dtype if y.dtype.kind == "f" else np.int64)  # of a target, on the devices
    target_bytes = y[0].size * number.itemsize
    peaks = prove(plan, sizes or batch_size, settings.optimizer, target_bytes=target_bytes).peak
    if settings.sums == "exact":  # gradients have 8 bytes instead of 4, and a granule's have 4 more
        peaks = [peak + 8 * sum(stage.params for stage in plan.stages) for peak in peaks]
    limits = limits_of(group)
    lacking = [peak - limit if limit else 0 for peak, limit in zip(peaks, limits, strict=True)]
    most = max(lacking)
    if most <= 0:
        return peaks
    i, name = lacking.index(most), getattr(settings.split, "name", settings.split or "data")
    fits = _that_fit(plan.network, limits, settings, batch_size, target_bytes)
    advice = "no split would fit; more devices or micro-batches may help"
    if fits or not settings.split:
        advice = f"{listed(fits)} would fit" if fits else "more devices help, a higher limit, smaller minibatches"
    raise DeviceMemoryError(
        f"split {name} needs {peaks[i]:,} bytes on {group.names[i]}, {most:,} more than its limit; {advice}"
    )


def limits_of(group):
    """The memory limit of each device of a `Cluster` in bytes; None if it has no limit."""
    mine = [[device.accounting.limit if device.accounting else 0] for device in group.mine]
    return [int(limit) or None for (limit,) in gather(group, mine)]


def _that_fit(network, limits, settings, batch_size, target_bytes):
    """Those of the splits and products for so many devices that fit, each with the most bytes on a device."""
    found, k = [], len(limits)
    products = [f"data={c},layers={k // c}" for c in range(2, k) if k % c == 0]
    for split in (*SPLITS, *products):
        pipeline = settings.pipeline if "layers" in split else None
        try:
            plan = plan_of(replace(settings, split=split, pipeline=pipeline), k, network)
        except ValueError:  # too few layers, or it does not fit other settings
            continue
        peaks = prove(plan, batch_size, settings.optimizer, target_bytes=target_bytes).peak
        if all(limit is None or peak <= limit for peak, limit in zip(peaks, limits, strict=True)):
            found.append(f"{split} ({max(peaks):,})")
    return found


def _factors(split):
    """{"data": 2, "layers": 2} for a product, {} for a name. Raises ValueError for a malformed product."""
    if not isinstance(split, str) or "=" not in split:
        return {}
    found = re.fullmatch(r"\s*([\w-]+)=([0-9]{1,4})\s*,\s*([\w-]+)=([0-9]{1,4})\s*", split)
    factors = {found[1]: int(found[2]), found[3]: int(found[4])} if found else {}
    if len(factors) != 2 or "data" not in factors or not set(factors) <= set(SPLITS) or 0 in factors.values():
        raise ValueError(f"split {shown(split)} is not a product of data and another split, such as {EXAMPLE}")
    return factors
