"""The equivalence on which everything stands: whoever shares a step, and however, learns what one device learns.

Each row of `ROWS` is a run of a few steps on several devices; ``pytest --collect-only`` lists them. They are sampled
from the product of `COLUMNS`, so that each two values of different columns occur together. One assertion is for all:
parameters, losses, right answers and batch norm's running statistics are those of one device, within the tolerance of
the dtype, and all copies of a parameter have the same bits.
"""

import functools
import re

import numpy as np
import one_device
import pytest
from clusters_in_threads import in_each
from conftest import TOLERANCE, assert_close, long
from one_device import NETWORKS, first_params, learned_alone
from pairwise import pairwise

import d2lmgpu as d2l
from d2lmgpu.cluster import as_cluster
from d2lmgpu.collectives import ALGORITHMS, add_allreduce, chunk_bounds
from d2lmgpu.parallel.shards import shard_bounds
from d2lmgpu.parallel.step import Replica
from d2lmgpu.plans.execution.compute import FUNCTIONS
from d2lmgpu.training.make_runner import make_runner
from d2lmgpu.training.plan_step import PlanStep
from d2lmgpu.training.textbook_steps import TextbookSteps

EXAMPLES, BATCH_SIZE, SEED = 25, 11, 4
"""Minibatches of 11, 11 and 3: ragged, and the last has fewer examples than some numbers of devices."""

PIPELINES = {"layers": None, "gpipe": "gpipe", "1f1b": "1f1b", "zero-bubble": "zero-bubble"}
DATA = None, "data"
ZERO = "zero1", "zero2", "zero3"
PRODUCTS = "data=2,layers", "data=2,1f1b", "data=2,channels"
SPLITS = [*DATA, *ZERO, "channels", *PIPELINES, *PRODUCTS]
LOADS = [1, 0.4, 0, 2, 1, 3, 0, 1]
PROCESSES = {1: (1,), 2: (1, 1), 3: (2, 1), 4: (1, 3), 5: (1, 3, 1), 6: (1, 3, 2), 8: (3, 1, 4)}

COLUMNS = {
    "split": SPLITS,
    "k": [1, 2, 3, 5, 8],  # of a product, in each of its two copies
    "network": [*NETWORKS],
    "optimizer": ["sgd", "momentum", "adam"],
    "precision": ["float64", "float32", "mixed"],
    "micro_batches": [1, 2, 3],
    "devices": ["cpus", "stand-ins for GPUs", "processes"],
    "loads": [False, True],
    "loss": [*one_device.LOSSES],
    "weight_decay": [0.1, 0.0],
    "statistics": ["local", "aggregated"],
    "algorithm": ["ring", *(name for name in ALGORITHMS if name not in ("ring", "none"))],
    "one message": [True, False],
    "overlap": [False, True],
    "prefetch": [True, False],
    "limited memory": [False, True],
    "long messages": [False, True],  # which leave only when they are received
}


MAX_SHORT, MAX_LONG = 3, 6
"""Stand-ins for GPUs in a row; they are slow."""


def number_of_devices(row):
    return row["k"] * (2 if row["split"] in PRODUCTS else 1)


def settled(row, most=MAX_SHORT):
    """The row, in which what does not go with the values before it, or means nothing then, is as usual.

    ``most``: how many stand-ins for GPUs there may be.
    """
    split, first = row["split"], {name: values[0] for name, values in COLUMNS.items()}
    if split in PRODUCTS:
        row = row | {"k": min(row["k"], 3)}
    stages = sum(bool(layer.shapes) for layer in NETWORKS[row["network"]] if not layer.channels)
    if row["k"] > stages and split in (*PIPELINES, *PRODUCTS[:2]):
        row = row | {"network": "deep"}
    network = row["network"]
    if number_of_devices(row) > most and row["devices"] == "stand-ins for GPUs":
        row = row | {"devices": first["devices"]}
    for name, holds in (
        ("loads", split not in DATA),
        ("micro_batches", split in (None, "layers", "data=2,layers")),
        ("algorithm", split not in (*DATA, *PRODUCTS) or (split in PRODUCTS and row["algorithm"] == "hierarchical")),
        ("overlap", split not in (*DATA, "zero1") or (split == "zero1" and row["precision"] == "mixed")),
        ("one message", split is not None or row["overlap"]),
        ("statistics", split is not None or row["overlap"] or network != "batch norm"),
        ("precision", row["precision"] == "float32" and (network != "smooth" or row["optimizer"] == "adam")),
        ("limited memory", row["devices"] != "cpus"),
        ("long messages", row["devices"] != "processes"),
    ):
        if holds:
            row = row | {name: first[name]}
    in_order = split in ("gpipe", "1f1b", "zero-bubble", "data=2,1f1b")  # of several micro-batches
    return row | {"micro_batches": 2} if in_order and row["micro_batches"] == 1 else row


def parts_of(row, n):
    """For each running statistics, which the devices of a copy have alike, the parts of n examples by themselves."""
    k, m, split = row["k"], row["micro_batches"], row["split"]
    if split in DATA:
        shares = shard_bounds(n, k, LOADS[:k] if row["loads"] else None)
        groups = [[(start + a, start + b) for a, b in chunk_bounds(stop - start, m)] for start, stop in shares]
    else:
        copies = k if split in ZERO else 2 if split in PRODUCTS else 1
        bounds = chunk_bounds(n, copies * m)
        groups = [bounds[i * m : i * m + m] for i in range(copies)]
    return [sum(groups, [])] if row["statistics"] == "aggregated" else groups


def rate_of(row):
    return {"sgd": 0.03, "momentum": 0.02, "adam": 0.01}[row["optimizer"]]


def settings_of(row):
    """The `Settings`, of whose loads, split and pipeline a row says less."""
    k, split = row["k"], row["split"]
    settings = {name: row[name] for name in ("optimizer", "micro_batches", "weight_decay", "overlap", "prefetch")}
    if split in PIPELINES:
        settings |= {"split": "layers", "pipeline": PIPELINES[split]}
    elif split in PRODUCTS:
        settings["split"] = f"data=2,{'layers' if split == 'data=2,1f1b' else split[7:]}={k}"
    else:
        settings["split"] = split
    if row["precision"] == "mixed":
        settings["precision"] = "mixed"
    if row["loads"]:
        settings["loads"] = LOADS[:k]
    settings |= {"loss": one_device.LOSSES[row["loss"]], "batch_statistics": row["statistics"], "seed": SEED}
    return d2l.Settings(batch_size=BATCH_SIZE, algorithm=row["algorithm"], flat=row["one message"], **settings)


def dtype_of(row):
    """In mixed precision float64, where sums in another order round to the same float16."""
    return np.dtype(np.float32 if row["precision"] == "float32" else np.float64)


def run(row, devices):
    """An epoch on a list of devices, or a `Cluster`: what is learned, and the copies that this process has."""
    network, dtype = NETWORKS[row["network"]], dtype_of(row)
    X, y = one_device.examples(network, EXAMPLES, dtype, row["loss"])
    everybody = as_cluster(devices)
    settings = settings_of(row).on(everybody)
    runner = make_runner(X, y, first_params(network, dtype), everybody, network, settings)
    uses_plan = row["split"] is not None or row["overlap"]
    assert type(runner) is (PlanStep if uses_plan else TextbookSteps)
    runner.start_epoch(np.arange(EXAMPLES), rate_of(row))
    launched = sum((runner.launch(1) for _ in range(runner.steps)), [])
    assert launched == [BATCH_SIZE, BATCH_SIZE, 3]
    losses, correct = runner.pause()
    params = runner.execution.params() if uses_plan else list(map(d2l.to_host, runner.copies()[0][0]))
    return (sum(losses), correct, params, runner.statistics()), copies_of(runner)


def copies_of(runner):
    """What each of this process's devices holds: pairs (where in the parameters, bytes)."""
    if isinstance(runner, TextbookSteps):
        return [
            [(i, d2l.to_host(param).tobytes()) for i, param in enumerate(replica.params)] for replica in runner.replicas
        ]
    found, itemsize = [], runner.execution.dtype.itemsize
    for store in runner.execution.stores:
        parts = [(part, d2l.to_host(d2l.DeviceArray(store.own[s], store.device))) for s, part in store.parts.items()]
        found.append(
            [
                ((part.stage, part.params[0] + i), array.tobytes()[i * itemsize : (i + 1) * itemsize])
                for part, array in parts
                for i in range(len(array))
            ]
        )
    return found


@functools.cache
def _learned_alone(key):
    row = dict(key)
    network, dtype = NETWORKS[row["network"]], dtype_of(row)
    X, y = one_device.examples(network, EXAMPLES, dtype, row["loss"])
    batches = [(X[i : i + BATCH_SIZE], y[i : i + BATCH_SIZE]) for i in range(0, EXAMPLES, BATCH_SIZE)]
    return learned_alone(
        *(network, batches, row["optimizer"], rate_of(row), row["weight_decay"], row["loss"]),
        mixed=row["precision"] == "mixed",
        parts=functools.partial(parts_of, row) if network is one_device.NORMED else None,
        draws=one_device.draws_of(SEED) if network is one_device.DROPPING else None,
    )


def learned_by_one(row):
    """`Learned` by one device, which does not depend on what a row says of several."""
    names = "network", "optimizer", "precision", "weight_decay", "loss"
    if row["network"] == "batch norm":  # normalises the images of a device, or of a micro-batch
        names += "split", "k", "micro_batches", "loads", "statistics"
    return _learned_alone(tuple((name, row[name]) for name in names))


def check(row, devices):
    """The assertion. Runs in each process of a cluster, and in one process for lists of devices."""
    (loss, correct, params, statistics), copies = run(row, devices)
    expected, network = learned_by_one(row), NETWORKS[row["network"]]
    tolerance = 10 * TOLERANCE[dtype_of(row)]
    tolerance *= 1000 if row["optimizer"] == "adam" else 1  # it divides by what may be nearly 0
    assert loss == pytest.approx(sum(expected.losses), rel=tolerance)
    if row["loss"] == "labels" and row["network"] != "dropout":
        assert correct == expected.correct
    for i, (param, alone) in enumerate(zip(params, expected.params, strict=True)):
        if i not in one_device.without_gradient(network):
            assert_close(param, alone, tolerance)
    whole = expected.statistics if len(expected.statistics) == len(statistics) else expected.statistics[:1]
    for own, group in zip(statistics, whole * len(statistics), strict=False):
        for array, alone in zip(own, group, strict=True):
            assert_close(array, alone, max(tolerance, TOLERANCE[array.dtype]))  # without a plan they are float32
        if row["split"] in PRODUCTS:  # of other devices' layers each says what the first copy has
            break
    return copies


def assert_same_bits(copies):
    """Wherever two devices have the same elements."""
    seen = {}
    for own in copies:
        for place, bits in own:
            assert seen.setdefault(place, bits) == bits, f"copies of {place} differ"


@pytest.fixture(autouse=True)
def small_scale(monkeypatch):
    """So that no gradient in mixed precision becomes infinite: then the step would be left out."""
    monkeypatch.setattr("d2lmgpu.networks.mixed.FIRST_SCALE", 2.0**5)


@pytest.fixture
def use(request, monkeypatch):
    """A function: checks a row on the devices that it names."""

    def use(row):
        k = number_of_devices(row)
        if row["devices"] == "processes":
            found = in_each(PROCESSES[k], functools.partial(check, row), eager=not row["long messages"])
            assert_same_bits(sum(found, []))
            return
        devices = [d2l.cpu(i) for i in range(k)]
        if row["devices"] != "cpus":
            request.getfixturevalue("standin")
            monkeypatch.setattr("d2lmgpu.networks.compute.USE_CUDA_KERNELS", False)
            devices = [d2l.cpu(i) if k > 2 and i == 1 else d2l.gpu(i) for i in range(k)]  # two GPUs, or both kinds
        limit = 2**24 if row["limited memory"] else None
        try:
            for device in devices if limit else ():
                device.limit_memory(limit)
            assert_same_bits(check(row, devices))
        finally:
            for device in devices if limit else ():
                device.limit_memory(None)

    return use


def name_of(row):
    """What a row is about, and the values that are not the first of their column, which is the usual one."""
    said = [str(row[name]) for name in ("split", "k", "network", "optimizer")]
    for name, values in COLUMNS.items():
        if row[name] != values[0] and name not in ("split", "k", "network", "optimizer"):
            said.append(f"{name} {row[name]}" if isinstance(row[name], (bool, float)) else str(row[name]))
    return "-".join(re.sub(r"\W+", " ", word) for word in said)


def usual(**more):
    """The row of usual values, but for these."""
    return settled({name: values[0] for name, values in COLUMNS.items()} | more)


ROWS = list(pairwise(COLUMNS, settled))
ROWS += [
    usual(network="batch norm", statistics="aggregated", k=k, devices=devices, loads=k > 2)
    for k, devices in ((2, "stand-ins for GPUs"), (3, "cpus"), (5, "processes"))
]


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_several_devices_equal_one(row, use):
    use(row)


def test_each_split_is_tried_with_each_optimiser_and_number_of_devices():
    """The sampling may not lose them."""
    tried = {(row["split"], row["optimizer"]) for row in ROWS} | {(row["split"], row["k"]) for row in ROWS}
    numbers = {split: COLUMNS["k"][: 3 if split in PRODUCTS else 5] for split in SPLITS}
    assert tried >= {(split, value) for split in SPLITS for value in (*COLUMNS["optimizer"], *numbers[split])}
    assert 120 <= len(ROWS) <= 160
    assert {*d2l.plans.PLANS, *d2l.networks.optimizers.OPTIMIZERS} <= {*SPLITS, *COLUMNS["optimizer"]}


@pytest.mark.parametrize("seed", [*long(1), *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, 8))])
def test_other_samples_of_the_product(seed, use):
    """With more devices on the stand-in for GPUs."""
    for row in pairwise(COLUMNS, functools.partial(settled, most=MAX_LONG), seed):
        use(row)


# The assertion can fail:


def test_a_device_that_does_not_take_part_in_the_sum_is_found(monkeypatch):
    def without_the_last(batch, arrays, algorithm):
        add_allreduce(batch, arrays[:-1], algorithm)

    devices, row = [d2l.cpu(i) for i in range(3)], usual(k=3)
    assert_same_bits(run(row, devices)[1])
    monkeypatch.setattr("d2lmgpu.parallel.step.add_allreduce", without_the_last)
    with pytest.raises(AssertionError, match="copies of 0 differ"):
        assert_same_bits(run(row, devices)[1])


def test_a_wrong_gradient_of_one_device_is_found(use, monkeypatch):
    """All copies get it, and are alike."""

    def wrong(self, *arguments):
        found = compute(self, *arguments)
        if self.device is d2l.cpu(1):
            self.raw[1][2][...] *= 1 + 1e-8
        return found

    compute = Replica.loss_and_grads
    monkeypatch.setattr(Replica, "loss_and_grads", wrong)
    with pytest.raises(AssertionError, match="comparison failed|of the largest"):
        use(usual(k=3))


@pytest.mark.parametrize("split", SPLITS[1:])
@pytest.mark.parametrize("what", ["F", "update"])
def test_a_device_that_does_its_part_of_a_plan_otherwise_is_found(split, what, use, monkeypatch):
    """It starts from other parameters, or learns a little faster."""
    row, right = usual(split=split, k=2), dict(FUNCTIONS)

    def otherwise(store, action, *more):
        if store.device is d2l.cpu(1) and what == "F":
            store.flat[...] += 1e-7
        elif store.device is d2l.cpu(1):
            lr, *more = more
            more = [lr * (1 + 1e-7), *more]
        right[action.what, store.mode_of(action)](store, action, *more)

    use(row)
    for key in [key for key in FUNCTIONS if key[0] == what]:
        monkeypatch.setitem(FUNCTIONS, key, otherwise)
    with pytest.raises(AssertionError):
        use(row)
