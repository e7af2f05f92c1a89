"""Training with a split: it learns what is learned without, keeps to a limit of memory, and refuses what cannot be."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from conftest import LONG_ON_STANDIN, assert_close, few, long
from test_training import quick

import d2lmgpu as d2l
from d2lmgpu import cli
from d2lmgpu.cli.options import as_splits
from d2lmgpu.collectives import ALGORITHMS, chunk_bounds
from d2lmgpu.collectives.network import TOPOLOGIES, topology
from d2lmgpu.devices import DeviceMemoryError
from d2lmgpu.networks import BatchNorm, Conv2d, Dense, Dropout, Flatten, ReLU, init_params, known_network, sequential
from d2lmgpu.plans import PLANS, copies_of, estimate_costs, prove, simulate
from d2lmgpu.training.plan_accuracy import SplitTestSet
from d2lmgpu.training.plan_step import PlanStep
from d2lmgpu.training.splits import PIPELINES, SPLITS, plan_of, splits_for

SMALL = sequential((1, 28, 28), Conv2d(5, 5, stride=3), ReLU(), Conv2d(7, 3), ReLU(), Flatten(), Dense(12), Dense(10))
DROPPING = sequential(
    *((1, 28, 28), Conv2d(5, 5, stride=3), ReLU(), Dropout(0.3), Conv2d(7, 3), Flatten(), Dropout(0.2)),
    *(Dense(12), ReLU(), Dropout(0.5), Dense(10)),
)


WAYS = [  # split, pipeline, micro-batches, devices
    *((split, None, m, k) for split in SPLITS for m, k in ((1, 2), (3, 3), (1, 1))),
    *(("layers", pipeline, 5, 2) for pipeline in PIPELINES),
    ("data=2,layers=2", None, 1, 4),
    ("layers=2,data=2", "zero-bubble", 3, 4),
    ("data", None, 2, 5),  # fewer examples than micro-batches at the end of an epoch
]


def own_loss(outputs, y):
    return (np.abs(outputs - y) ** 1.5).sum(dtype=np.float64), (outputs, y)


def own_grad(cache):
    """In float64, which the step rounds."""
    difference = np.subtract(*cache, dtype=np.float64)
    return 1.5 * np.sqrt(np.abs(difference)) * np.sign(difference)


@pytest.fixture(scope="module")
def data(small):
    """Of 123 examples, which no number of devices divides."""
    X, y, X_test, y_test = small
    return X[:123], y[:123], X_test, y_test


def cpus(k, first=0):
    return [d2l.cpu(first + i) for i in range(k)]


_walked = {}


def without_split(data, name=None, devices=1, **settings):
    """The `Result` of training without a split; ``name``: that of the data, if they are others."""
    key = name, devices, repr(settings)
    if key not in _walked:
        _walked[key] = quick(cpus(devices), data, **settings)
    return _walked[key]


def assert_like(result, expected, roughly=False):
    """In float32 by the losses; parameters are compared roughly: rounding decides on some ReLUs."""
    found, wanted = result.history, expected.history
    assert found.train_loss == pytest.approx(wanted.train_loss, rel=2e-3 if roughly else 1e-5)
    for name, tolerance in ("train_accuracy", 0.01), ("test_accuracy", 0.02), ("test_loss", 1e-3):
        if getattr(wanted, name):
            assert getattr(found, name) == pytest.approx(getattr(wanted, name), abs=tolerance)
    for param, other in zip(result.params, expected.params, strict=True):
        assert_close(param, other, 2e-2 if roughly else 1e-2)


MOMENTUM = {"optimizer": "momentum", "lr": 0.02, "batch_size": 40, "seed": 2}
SETTINGS = {
    "momentum": MOMENTUM,
    "adam": {"optimizer": "adam", "lr": 0.002, "weight_decay": 0.01, "warmup": 1, "schedule": "cosine"},
    "preprocess": {"preprocess": "flip+shift", "drop_last": True, "batch_size": 50},
    "dropout": {"network": DROPPING, "batch_size": 47, "seed": 3, "lr": 0.02},
    "mixed": {"precision": "mixed", "batch_size": 40, "lr": 0.02},
    "soft labels": {"batch_size": 47},
    "squared error": {"batch_size": 47, "loss": "squared_error"},
    "own loss": {"batch_size": 47, "loss": (own_loss, own_grad)},
}
"""Minibatches are ragged; the last may have fewer examples than micro-batches."""

ROWS = [(way, name) for way in WAYS for name in SETTINGS]
OTHERS = [*SETTINGS][1:]
KEPT = [(way, "momentum") for way in WAYS]
KEPT += [(way, OTHERS[(i + j) % len(OTHERS)]) for i, way in enumerate(WAYS) for j in (0, 3)]


def with_targets(data, name):
    """The data, with numbers for each class as targets where the settings are for such."""
    if name not in ("soft labels", "squared error", "own loss"):
        return data
    rng = np.random.default_rng(4)
    return data[0], rng.dirichlet(np.ones(10), len(data[0])), data[2], rng.dirichlet(np.ones(10), len(data[2]))


@pytest.mark.parametrize("way, name", few(ROWS, *KEPT, parts=4), ids=str)
def test_a_split_learns_what_is_learned_without(data, way, name):
    split, pipeline, micro_batches, k = way
    settings = {"network": SMALL, "lr": 0.05, "batch_size": 30} | SETTINGS[name]
    chosen = {"split": split, "pipeline": pipeline, "micro_batches": micro_batches}
    data = with_targets(data, name)
    result, expected = quick(cpus(k), data, **settings, **chosen), without_split(data, name, **settings)
    assert_like(result, expected, roughly=name == "mixed")
    history = result.history
    assert {field: getattr(history, field) for field in chosen} == chosen
    assert d2l.History.from_dict(history.as_dict()) == history and set(history.utilisation) == set(map(str, cpus(k)))
    assert expected.history.peak_memory is None
    if name == "momentum":
        examples = 40
        if split == "data":  # each device's shard in even parts
            shards = chunk_bounds(40, k)
            examples = tuple(b - a for start, stop in shards for a, b in chunk_bounds(stop - start, micro_batches))
        assert history.peak_memory == prove(plan_of(d2l.Settings(**chosen), k, SMALL), examples, "momentum").peak


@LONG_ON_STANDIN
def test_on_other_devices(make_devices, data):
    settings = {"network": SMALL, "batch_size": 60, "num_epochs": 1}
    result = quick(make_devices(2), data, split="zero3", **settings)
    assert_like(result, without_split(data, **settings))


class StopAfter(d2l.Callback):
    """Ends training after so many steps."""

    def __init__(self, steps):
        self.left = steps

    def on_step(self, epoch, step, loss):
        self.left -= 1
        return self.left == 0


@pytest.mark.parametrize("split", SPLITS)
def test_a_checkpoint_goes_on_with_any_split(data, tmp_path, split):
    file, devices = tmp_path / "file", cpus(3)
    settings = {"network": SMALL, "batch_size": 40, "optimizer": "adam", "lr": 0.002}  # 4 steps an epoch
    whole = quick(devices, data, split=split, **settings)
    quick(devices, data, split=split, checkpoint=file, callbacks=[StopAfter(5)], **settings)
    for other in (split, "data" if split != "data" else "zero3", None):
        resumed = quick(devices, data, split=other, resume=file, **settings)
        if other == split:
            assert resumed.history.final_parameters_sha256 == whole.history.final_parameters_sha256
            assert resumed.history.train_accuracy == whole.history.train_accuracy
        assert_like(resumed, whole)
        assert resumed.history.split == other


@pytest.mark.parametrize("batch_size, limit", [(8, None), (8, 10**9), (64, None)])
@pytest.mark.parametrize("split", [*SPLITS, "data=2,layers=2"])
def test_evaluation_by_a_plan(data, split, batch_size, limit):
    def second_best(outputs, labels):
        return (np.argsort(outputs, axis=1)[:, -2] == labels).sum()

    params, (_, _, X, y) = init_params(3, init="he", network=SMALL), data
    metrics = {"second": second_best}
    devices, told = [d2l.cpu(i) for i in range(20, 24)], []
    for device in devices:
        device.limit_memory(limit)
    try:
        test_set = SplitTestSet(
            X, y, plan_of(d2l.Settings(split=split), 4, SMALL), devices, batch_size, metrics=metrics
        )
        found = test_set.evaluate([params], tell=told.append)
    finally:
        for device in devices:
            device.limit_memory(None)
    expected = d2l.evaluate(params, X, y, cpus(1), SMALL, metrics=metrics)
    assert found == {
        "test_accuracy": pytest.approx(expected["accuracy"]),
        "metrics": {"second": pytest.approx(expected["second"])},
    }
    assert told[-1] == len(X) and told == sorted(told)


def test_a_width_that_data_parallelism_does_not_fit(data):
    """What is said to fit does, evaluation included, and what is not does not."""
    settings = {"width": 2, "optimizer": "adam", "lr": 0.001, "batch_size": 8, "num_epochs": 1}
    some = data[0][:16], data[1][:16], data[2], data[3]
    peaks = {
        split: max(prove(plan_of(d2l.Settings(split=split), 4, known_network("lenet", width=2)), 8, "adam").peak)
        for split in splits_for(4)
    }
    limit = int(1.02 * max(peaks["zero3"], peaks["layers"]))  # what the count leaves out
    devices = [d2l.cpu(i) for i in range(30, 34)]
    for device in devices:
        device.limit_memory(limit)
    try:
        with pytest.raises(DeviceMemoryError) as error:
            quick(devices, some, split="data", **settings)
        said = str(error.value)
        assert f"split data needs {peaks['data']:,} bytes on cpu(30), {peaks['data'] - limit:,} more than its" in said
        for split, peak in peaks.items():
            assert (f"{split} ({peak:,})" in said) == (peak <= limit)
            if peak <= limit:
                assert quick(devices, some, split=split, **settings).history.peak_memory
        with pytest.raises(DeviceMemoryError, match="no split would fit"):
            quick(devices, some, split="zero3", **settings | {"width": 10})
    finally:
        for device in devices:
            device.limit_memory(None)


def test_what_the_guide_says_of_a_limit(capsys):
    guide = Path(__file__).resolve().parents[1].joinpath("docs", "guide.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^d2lmgpu (train .* --memory-limit .*) --split zero3$", guide, re.MULTILINE)
    try:
        assert cli.main([*command.split(), "--environment", "cpu", "--limit", "50", "--split", "data"]) == 2
    finally:
        for device in cpus(4):
            device.limit_memory(None)
    said = capsys.readouterr().err.strip().removeprefix("d2lmgpu train: error: ")
    assert f"`{said}`" in " ".join(guide.split())


NORM = known_network("lenet-bn")
LITTLE_NORM = Conv2d(5, 5, stride=3), BatchNorm(), ReLU(), Conv2d(7, 3), BatchNorm(), ReLU(), Flatten(), Dense(10)
LITTLE_NORM = sequential((1, 28, 28), *LITTLE_NORM)
BIASES = [1, 5]
"""Parameters that stay 0, but for rounding, since batch norm takes away what they add."""


@pytest.mark.parametrize("network", ["lenet", "lenet-bn", *long("cnn", "deep")])
@pytest.mark.parametrize("optimizer", ["sgd", *long("momentum", "adam")])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_split_data_has_the_bits_of_the_textbooks_step(data, network, optimizer, k):
    settings = {"network": network, "optimizer": optimizer, "batch_size": 40, "lr": 0.02, "num_epochs": 1}
    result, expected = (quick(cpus(k), data, split=split, **settings).history for split in ("data", None))
    assert result.final_parameters_sha256 == expected.final_parameters_sha256
    assert result.train_loss == expected.train_loss


@pytest.mark.parametrize("split", ["data", "channels", "data=2,layers=2"])
def test_a_checkpoint_has_each_devices_statistics(data, tmp_path, split):
    file, devices = tmp_path / "file", cpus(4)
    settings = {"network": LITTLE_NORM, "batch_size": 40, "lr": 0.02}
    whole = quick(devices, data, split=split, **settings)
    quick(devices, data, split=split, checkpoint=file, callbacks=[StopAfter(5)], **settings)
    resumed = quick(devices, data, split=split, resume=file, **settings)
    assert resumed.history.final_parameters_sha256 == whole.history.final_parameters_sha256
    for array, other in zip(resumed.statistics, whole.statistics, strict=True):
        np.testing.assert_array_equal(array, other)
    other = None if split == "data" else "zero1"
    assert quick(devices, data, split=other, resume=file, **settings).history.epochs == whole.history.epochs


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"split": "zero"}, "split 'zero' is unknown; choose from data, layers, .* did you mean zero3"),
        ({"split": 3}, "split 3 is unknown"),
        ({"split": "gpipe"}, "split 'gpipe' is unknown"),
        ({"split": "data=2"}, "not a product of data and another split, such as data=2,layers=2"),
        ({"split": "data=2,layers=2,zero3=2"}, "is not a product"),
        ({"split": "layers=2,zero1=2"}, "is not a product"),
        ({"split": "data=0,layers=2"}, "is not a product"),
        ({"split": "data=2,layers=2"}, "is for 4 devices; there are 3"),
        ({"split": "data=3,layers=1", "pipeline": "pipe"}, "pipeline 'pipe' is unknown"),
        ({"split": "zero1", "pipeline": "gpipe"}, "is for a split over layers, and not for split 'zero1'"),
        ({"pipeline": "gpipe"}, "pipeline is 'gpipe', which cannot be combined with training without a split"),
        ({"micro_batches": 2}, "micro_batches is 2, which cannot be combined with training without a split"),
        ({"split": "data", "micro_batches": 0}, "micro_batches is 0"),
        ({"split": "data", "micro_batches": 10**6}, "at most 4,096"),
        (
            {"split": "layers", "loads": [1, 2, 3]},
            r"loads is \[1, 2, 3\], which cannot be combined with a split other than data",
        ),
        ({"split": "data", "loads": "auto"}, "loads 'auto' work only without a split; give numbers"),
        ({"split": "data", "loads": [1, 2]}, "loads .*3"),
        ({"split": "zero3", "overlap": True}, "overlap is True, which cannot be combined with split 'zero3'"),
        ({"split": "zero1", "flat": False}, "flat is False, which cannot be combined with a split"),
        ({"split": "data", "check_every": 2}, "check_every is 2, which cannot be combined with a split"),
        ({"overlap": True, "flat": False}, "flat is False, which cannot be combined with overlap"),
        ({"batch_statistics": "aggregated", "network": SMALL}, "has no batch norm"),
        ({"split": "data", "batch_statistics": "aggregated"}, "is 'aggregated', which cannot be combined with a split"),
        (
            {"batch_statistics": "synchronised"},
            "batch_statistics 'synchronised' is unknown; choose from local",
        ),
        ({"split": "zero3", "algorithm": "tree"}, "'zero3' has its own collectives"),
        (
            {"split": "layers", "network": sequential((1, 28, 28), Flatten(), Dense(10))},
            "3 stages for a network with 1",
        ),
        ({"width": 2, "network": NORM}, "width is 2, but the network is your own"),
        ({"width": 0}, "width is 0; it should be a finite number, at least 0.05"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_refused(data, settings, message):
    with pytest.raises(ValueError, match=message):
        quick(cpus(3), data, **settings)


ANY_LOSS = pytest.mark.parametrize(
    "loss", ["cross_entropy", "squared_error", (own_loss, own_grad)], ids=["soft", "squared", "own"]
)


@pytest.mark.parametrize("split", [*SPLITS, "data=2,layers=2"])
def test_mixed_precision(data, split, monkeypatch):
    """What one device learns that leaves out the same steps: at first the loss scale is too large.

    Adam notices how many steps were left out.
    """
    monkeypatch.setattr("d2lmgpu.networks.mixed.FIRST_SCALE", 2.0**19)
    some = tuple(part[:90] for part in data)
    settings = {"precision": "mixed", "batch_size": 17, "network": SMALL, "optimizer": "adam", "lr": 0.003}
    scales = []

    class Listen(d2l.Callback):
        def on_step(self, epoch, step, loss):
            scales.append(float(runners[-1].state()[0]["scaling"][0][0]))

    runners, init = [], PlanStep.__init__

    def made(self, *arguments, **named):
        init(self, *arguments, **named)
        runners.append(self)

    monkeypatch.setattr(PlanStep, "__init__", made)
    alone, params = quick(cpus(1), some, **settings)
    history, found = quick(
        cpus(4), some, split=split, micro_batches=2, prefetch=False, callbacks=[Listen()], **settings
    )
    assert scales[0] == 2.0**18 and scales[-1] == scales[-2] < 2.0**18
    assert runners[0].execution.stores[0].steps == len(scales) - np.log2(2.0**19 / scales[-1])
    assert history.train_loss == pytest.approx(alone.train_loss, rel=2e-3)  # rounded to 11 bits, here and there another
    for one, other in zip(found, params, strict=True):
        assert_close(one, other, 2e-2)


def test_a_plan_of_ones_own(data, tmp_path):
    """It trains, goes on from a checkpoint, and is told by its name; what it says itself, settings do not say."""
    plan = copies_of("1f1b", 2, 2, micro_batches=3, network=SMALL)._replace(name="mine")
    settings = {"network": SMALL, "batch_size": 17, "lr": 0.02}
    some = tuple(part[:90] for part in data)
    alone, params = quick(cpus(1), some, **settings)
    quick(cpus(4), some, split=plan, checkpoint=tmp_path / "run", **settings | {"num_epochs": 1})
    history, found = quick(cpus(4), some, split=plan, resume=tmp_path / "run", **settings)
    assert history.split == "mine" and history.peak_memory == prove(plan, 17).peak
    assert history.train_loss == pytest.approx(alone.train_loss)
    for one, other in zip(found, params, strict=True):
        assert_close(one, other, 1e-2)  # as above
    for wrong, said in (
        ({"split": plan._replace(steps=plan.steps[1:])}, "step 1: "),
        ({"network": "lenet"}, "the plan mine is for another network than is trained; give the same: network=plan"),
        ({"micro_batches": 2}, "micro_batches is 2, which cannot be combined with a plan of your own"),
        ({"pipeline": "gpipe"}, "pipeline is 'gpipe', which cannot"),
        ({"algorithm": "tree"}, "algorithm is 'tree', which cannot"),
        ({"precision": "mixed"}, "precision is 'mixed', which cannot"),
    ):
        with pytest.raises(ValueError, match=said):
            quick(cpus(4), some, **settings | {"split": plan} | wrong)
    with pytest.raises(ValueError, match="split mine is for 4 devices; there are 3"):
        quick(cpus(3), some, split=plan, **settings)


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_loads(data, micro_batches):
    """What is learned with them without a split; one device has nothing to do."""
    split, settings = "data", {"batch_size": 47, "network": SMALL, "seed": 3, "lr": 0.02, "loads": [1, 0, 0.3]}
    result = quick(cpus(3), data, split=split, micro_batches=micro_batches, **settings)
    assert_like(result, without_split(data, devices=3, **settings))
    even = quick(cpus(3), data, split=split, micro_batches=micro_batches, **settings | {"loads": None})
    assert result.history.peak_memory[0] > even.history.peak_memory[0] > result.history.peak_memory[1]
    with d2l.record_transfers() as transfers:
        quick(cpus(3), data, split=split, micro_batches=micro_batches, **settings | {"num_epochs": 1})
    images = [sum(t.nbytes for t in transfers if (t.source, t.destination) == ("host", f"cpu({i})")) for i in range(3)]
    assert images[0] > 2 * images[2] > 0


@ANY_LOSS
def test_the_memory_of_losses_and_targets(data, loss):
    """A step fits into what is told, and a byte less is refused."""
    X, y = data[0][:50], np.random.default_rng(4).dirichlet(np.ones(10), 50)
    devices = cpus(2, first=40)
    settings = {"loss": loss, "batch_size": 50, "network": SMALL, "split": "layers"}
    peaks = quick(devices, (X, y, X[:2], y[:2]), **settings)[0].peak_memory
    try:
        for less in 0, 1:
            for device, peak in zip(devices, peaks, strict=True):
                device.limit_memory(peak - less)
            if less:
                with pytest.raises(DeviceMemoryError, match="1 more than its limit"):
                    quick(devices, (X, y, X[:2], y[:2]), **settings)
            else:
                quick(devices, (X, y, X[:2], y[:2]), **settings)
    finally:
        for device in devices:
            device.limit_memory(None)


def test_every_plan_can_be_chosen():
    def plan(k=2, **settings):
        return plan_of(d2l.Settings(**settings), k, d2l.networks.LENET)

    chosen = [plan(split=split).name for split in SPLITS]
    chosen += [plan(split="layers", pipeline=pipeline, micro_batches=2).name for pipeline in PIPELINES]
    assert sorted(chosen) == sorted(PLANS)
    assert plan(split="layers", micro_batches=2) == PLANS["1f1b"](2, 2)
    assert plan(4, split="data=2,layers=2") == copies_of("layers", 2, 2)
    assert splits_for(4) == [*SPLITS, "data=2,layers=2"] and splits_for(1) == [*SPLITS]


@pytest.mark.parametrize("split", [None, "data"])
def test_a_library_that_cannot_sum_here(data, split):
    with pytest.raises(d2l.DeviceError, match="'nccl' needs at least two GPUs, not .cpu.0., cpu.1.."):
        quick(cpus(2), data, split=split, algorithm="nccl", network=SMALL)


def test_an_allreduce_of_ones_own_in_a_product(data):
    named, own = (
        quick(cpus(4), data, split="data=2,layers=2", algorithm=algorithm, network=SMALL)
        for algorithm in ("tree", lambda k, n: ALGORITHMS["tree"](k, n))
    )
    assert named.history.final_parameters_sha256 == own.history.final_parameters_sha256


@pytest.mark.parametrize("algorithm", ["nccl", "mpi"])
def test_a_library_sums_all_gradients_at_once(data, algorithm):
    said = f"split is 'zero2', which cannot be combined with allreduce '{algorithm}'; leave one out"
    with pytest.raises(ValueError, match=f"^{said}$"):
        quick(cpus(2), data, algorithm=algorithm, network=SMALL, split="zero2")


def test_a_sweep_over_splits(data):
    assert as_splits("zero3,data=2,layers=1, data") == ["zero3", "data=2,layers=1", "data"]
    assert as_splits("data=2,layers=1,layers=2,data=1") == ["data=2,layers=1", "layers=2,data=1"]
    trials = d2l.grid(split=["zero3", "data=2,layers=1"], devices=2, batch_size=60, num_epochs=1, init="he", lr=0.05)
    rows = d2l.sweep(trials, mode="sequential", data=data, progress=False)
    assert [row["status"] for row in rows] == ["done", "done"]
    assert rows[0]["history"]["train_loss"] == pytest.approx(rows[1]["history"]["train_loss"], rel=1e-5)
    with pytest.raises(ValueError, match="trial 1: .*unknown"):
        d2l.sweep(d2l.grid(split="x"), mode="sequential", data=data)


QUICK = ["train", "--environment", "cpu", "--limit", "90", "--epochs", "1", "--init", "he", "--lr", "0.02"]


def test_the_command_trains(tmp_path, capsys):
    file = tmp_path / "run.json"
    words = "--devices 2 --batch-size 30 --split layers --pipeline zero-bubble --micro-batches 3 --width 0.5 --json"
    plot = tmp_path / "run.svg"
    assert cli.main([*QUICK, *words.split(), str(file), "--plot", str(plot)]) == 0
    assert "split layers, he weights" in plot.read_text(encoding="utf-8")
    found = json.loads(file.read_text(encoding="utf-8"))
    plan = PLANS["zero-bubble"](2, 3, known_network("lenet", width=0.5))
    assert found["peak_memory"] == prove(plan, 30).peak and found["width"] == 0.5
    assert (found["split"], found["pipeline"], found["micro_batches"]) == ("layers", "zero-bubble", 3)
    peaks = ", ".join(f"{nbytes / 1e6:.1f}" for nbytes in found["peak_memory"])
    assert f"split layers: devices hold at most {peaks} MB\n" in capsys.readouterr().out


@pytest.mark.parametrize("network", ["lenet", *long("deep")])
def test_the_command_that_plans(tmp_path, capsys, network):
    json_file, plot = tmp_path / "plan.json", tmp_path / "plan.png"
    words = f"plan --split data=2,layers=2 --micro-batches 4 --on pcie_bus --batch-size 200 --network {network}"
    assert cli.main([*words.split(), "--speed", "1e11", "--json", str(json_file), "--plot", str(plot)]) == 0
    plan = copies_of("1f1b", 2, 2, 4, known_network(network))
    proof, costs = prove(plan, 200), estimate_costs(plan, 200, 1e11)
    expected = simulate(plan, topology("pcie_bus", 4), costs, 200)
    found = json.loads(json_file.read_text(encoding="utf-8"))
    assert found["seconds"] == pytest.approx(expected.seconds) and found["bubble"] == pytest.approx(expected.bubble)
    assert (found["bytes"], found["peak_memory"], found["proved"]) == (sum(proof.sent), proof.peak, True)
    out = capsys.readouterr().out
    assert f"{1000 * expected.seconds:.4g} ms a step, bubble {expected.bubble:.1%}" in out
    assert len(out.splitlines()) == 4 + 4 and plot.read_bytes().startswith(b"\x89PNG")


def test_a_network_in_a_file(tmp_path, capsys):
    file = tmp_path / "own.py"
    file.write_text(
        "from d2lmgpu.networks import Dense, Flatten, sequential\n"
        "def network(input_shape, classes):\n"
        "    return sequential(input_shape, Flatten(), Dense(5), Dense(classes))\n"
    )
    assert cli.main(["plan", "--split", "layers", "--devices", "2", "--network", str(file)]) == 0
    assert "layers: custom" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, message",
    [
        ("--split rows", "split 'rows' is unknown"),
        ("--split layers --devices 9", "9 stages for a network with 4 layers"),
        ("--split data=2,zero3=2", "'zero3' is unknown"),
        ("--split zero3 --allreduce tree", "its own collectives"),
        ("--split data --pipeline gpipe", "is for a split over layers"),
        ("--devices 0", "k, the number of devices, is 0"),
        ("--split channels --devices 4000 --width 100", "k, the number of devices, is 4000"),
        ("--split data=500,channels=3 --devices 1500", "the number of devices, is 1500"),
        ("--on moon", "network 'moon' is unknown; choose from full_switch"),
        ("--on nvlink_mesh --devices 9", "network nvlink_mesh has 8 devices, not 9"),
        ("--batch-statistics aggregated", "which cannot be combined with a split"),
        ("--network lenet-bn --split zero3 --batch-statistics aggregated", "which cannot be combined with a split"),
        (
            "--network lenet-bn --batch-statistics synchronised",
            "'synchronised' is unknown; choose from local",
        ),
        ("--network nowhere.py", "no such file"),
        ("--speed 0", "speed is 0.0"),
        ("--batch-size 0", "batch_size is 0"),
        ("--optimizer sdg", "optimizer 'sdg' is unknown"),
        ("--width 0.01", "at least 0.05"),
        ("--plot plan.txt", "should end in"),
        ("--json same --html same", "same"),
    ],
)
def test_bad_input_to_the_command_that_plans(capsys, arguments, message):
    assert cli.main(["plan", *arguments.split()]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("d2lmgpu plan: error: ") and err.count("\n") == 1 and message in err


def test_what_stages_are_estimated_to_cost():
    """LeNet's products by hand: all of them forward, and backward twice, but for the gradient of the images."""
    first, *rest = 26 * 26 * 20 * 9, 9 * 9 * 50 * 20 * 25, 800 * 128, 128 * 10
    costs = estimate_costs(PLANS["layers"](4, 2), batch_size=30, speed=1e9)
    assert [cost["F"] for cost in costs] == pytest.approx([15 * n / 1e9 for n in (first, *rest)])
    assert [cost["B"] for cost in costs] == pytest.approx([15 * n / 1e9 for n in (first, *(2 * n for n in rest))])
    (whole,) = estimate_costs(PLANS["data"](3), batch_size=30, speed=1e9)
    assert whole["I"] == pytest.approx(10 * sum(rest) / 1e9) and whole["W"] == whole["F"]
    assert whole["I"] + whole["W"] == pytest.approx(whole["B"]) and whole["update"] == 0


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_networks_by_name(name):
    for k in (1, 5, 8):
        assert topology(name, k).k >= k
        exchanged = simulate(PLANS["data"](k), topology(name, k)).seconds - 3  # F and B
        assert (exchanged > 0) == (k > 1) and exchanged < 0.01


@pytest.mark.parametrize("prefetch", [False, True])
def test_the_mean_loss_so_far_is_told_after_each_step(data, prefetch):
    """Of the steps that were waited for: with prefetching a step is under way."""
    told = []

    class Listen(d2l.Callback):
        def on_step(self, epoch, step, loss):
            told.append(loss)

    settings = {"network": SMALL, "batch_size": 40, "num_epochs": 1, "lr": 0.02, "prefetch": prefetch}
    history = quick(cpus(2), data, split="layers", callbacks=[Listen()], **settings).history
    assert len(told) == 4 and (told[0] is None) == prefetch
    assert told[prefetch] == pytest.approx(np.log(10), rel=0.5)
    if not prefetch:
        assert told[-1] == pytest.approx(history.train_loss[0])
