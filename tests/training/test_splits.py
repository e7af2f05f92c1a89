"""Training with a split: what a history says of it, checkpoints, limits of memory, and what is refused.

That it learns what one device learns, test_equals_one_device.py says.
"""

import re
from pathlib import Path

import numpy as np
import pytest
from conftest import assert_close, long
from one_device import DEEP, DROPPING, LOSSES, NORMED, SMOOTH
from training_runs import StopAfter, cpus, quick, random_data

import d2lmgpu as d2l
from d2lmgpu import cli
from d2lmgpu.collectives import ALGORITHMS, Transfer, chunk_bounds
from d2lmgpu.collectives.network import TOPOLOGIES, topology
from d2lmgpu.devices import DeviceMemoryError
from d2lmgpu.networks import Dense, Flatten, init_params, sequential
from d2lmgpu.plans import PLANS, copies_of, estimate_costs, prove, simulate
from d2lmgpu.training import load_run
from d2lmgpu.training.evaluation import SplitTestSet
from d2lmgpu.training.plan_step import PlanStep
from d2lmgpu.training.splits import PIPELINES, SPLITS, plan_of

OTHER = sequential(SMOOTH.input_shape, Flatten(), Dense(6), Dense(4))
WAYS = [  # split, pipeline, micro-batches, devices
    *((split, None, m, 3) for split in SPLITS for m in (1, 3)),
    *(("layers", pipeline, 5, 2) for pipeline in PIPELINES),
    ("data=2,layers=2", None, 1, 4),
    ("layers=2,data=2", "zero-bubble", 3, 4),
]


@pytest.fixture(scope="module")
def data():
    """Of 123 examples, which no number of devices divides."""
    return random_data(SMOOTH, 123, 41)


SETTINGS = {"network": SMOOTH, "batch_size": 40, "lr": 0.02, "optimizer": "momentum", "seed": 2}


@pytest.mark.parametrize("split, pipeline, micro_batches, k", WAYS)
def test_what_a_history_says(data, split, pipeline, micro_batches, k):
    """Beside what is learned, which is as without a split: test_equals_one_device.py."""
    chosen = {"split": split, "pipeline": pipeline, "micro_batches": micro_batches}
    history, alone = (quick(cpus(n), data, **SETTINGS, **own).history for n, own in ((k, chosen), (1, {})))
    assert history.train_loss == pytest.approx(alone.train_loss, rel=1e-5)
    assert history.test_accuracy == pytest.approx(alone.test_accuracy, abs=0.03)
    assert {field: getattr(history, field) for field in chosen} == chosen
    assert d2l.History.from_dict(history.as_dict()) == history and set(history.utilisation) == set(map(str, cpus(k)))
    examples = 40
    if split == "data":  # each device's shard in even parts
        shards = chunk_bounds(40, k)
        examples = tuple(b - a for start, stop in shards for a, b in chunk_bounds(stop - start, micro_batches))
    assert history.peak_memory == prove(plan_of(d2l.Settings(**chosen), k, SMOOTH), examples, "momentum").peak
    assert alone.peak_memory is None


@pytest.mark.parametrize("split", SPLITS)
def test_a_checkpoint_goes_on_with_any_split(data, tmp_path, split):
    file, devices = tmp_path / "file", cpus(3)
    settings = SETTINGS | {"optimizer": "adam", "lr": 0.002}  # 4 steps an epoch
    whole = quick(devices, data, split=split, **settings)
    quick(devices, data, split=split, checkpoint=file, callbacks=[StopAfter(5)], **settings)
    for other in (split, "data" if split != "data" else "zero3", None):
        resumed = quick(devices, data, split=other, resume=file, **settings)
        if other == split:
            assert resumed.history.final_parameters_sha256 == whole.history.final_parameters_sha256
            assert resumed.history.train_accuracy == whole.history.train_accuracy
        assert resumed.history.train_loss == pytest.approx(whole.history.train_loss, rel=1e-4)
        assert resumed.history.split == other


@pytest.mark.parametrize("split", ["data", "channels", "data=2,layers=2"])
def test_a_checkpoint_has_each_devices_statistics(tmp_path, split):
    file, devices, data = tmp_path / "file", cpus(4), random_data(NORMED, 123, 41)
    settings, ends = SETTINGS | {"network": NORMED}, [tmp_path / "whole", tmp_path / "end"]
    whole = quick(devices, data, split=split, checkpoint=ends[0], **settings)
    quick(devices, data, split=split, checkpoint=file, callbacks=[StopAfter(5)], **settings)
    resumed = quick(devices, data, split=split, resume=file, checkpoint=ends[1], **settings)
    assert resumed.history.final_parameters_sha256 == whole.history.final_parameters_sha256
    wanted, found = (load_run(end).arrays for end in ends)
    assert "statistics of 3" in wanted and wanted.keys() == found.keys()
    for name, arrays in wanted.items():
        assert [array.tobytes() for array in found[name]] == [array.tobytes() for array in arrays], name
    other = None if split == "data" else "zero1"
    assert quick(devices, data, split=other, resume=file, **settings).history.epochs == whole.history.epochs


@pytest.mark.parametrize("network", [DEEP, NORMED, DROPPING])
@pytest.mark.parametrize("k", [1, 3])
def test_split_data_has_the_bits_of_the_textbooks_step(network, k):
    data, settings = random_data(network, 50, 11), {"network": network, "batch_size": 17, "lr": 0.02}
    result, expected = (quick(cpus(k), data, split=split, **settings).history for split in ("data", None))
    assert result.final_parameters_sha256 == expected.final_parameters_sha256
    assert result.train_loss == expected.train_loss


@pytest.mark.parametrize("batch_size, limit", [(8, None), *long((8, 10**9), (64, None))])
@pytest.mark.parametrize("split", [*SPLITS, "data=2,layers=2"])
def test_evaluation_by_a_plan(data, split, batch_size, limit):
    def second_best(outputs, labels):
        return (np.argsort(outputs, axis=1)[:, -2] == labels).sum()

    params, (_, _, X, y) = init_params(3, init="he", network=SMOOTH), data
    metrics = {"second": second_best}
    devices = [d2l.cpu(i) for i in range(20, 24)]
    for device in devices:
        device.limit_memory(limit)
    try:
        test_set = SplitTestSet(
            X, y, plan_of(d2l.Settings(split=split), 4, SMOOTH), devices, batch_size, metrics=metrics
        )
        found = test_set.evaluate([params])
    finally:
        for device in devices:
            device.limit_memory(None)
    expected = d2l.evaluate(params, X, y, cpus(1), SMOOTH, metrics=metrics)
    assert found == {
        "test_accuracy": pytest.approx(expected["accuracy"]),
        "metrics": {"second": pytest.approx(expected["second"])},
    }


def test_what_the_guide_says_of_a_limit(capsys):
    guide = Path(__file__).resolve().parents[2].joinpath("docs", "plans.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^d2lmgpu (train .* --memory-limit .*) --split zero3$", guide, re.MULTILINE)
    try:
        assert cli.main([*command.split(), "--environment", "cpu", "--limit", "50", "--split", "data"]) == 2
    finally:
        for device in cpus(4):
            device.limit_memory(None)
    said = capsys.readouterr().err.strip().removeprefix("d2lmgpu train: error: ")
    assert f"`{said}`" in " ".join(guide.split())


@pytest.mark.parametrize(
    "split",
    ["data", "zero2", "layers", *long("zero1", "zero3", "channels", "data=2,layers=2")],
)
def test_mixed_precision(data, split, monkeypatch):
    """What one device learns that leaves out the same steps: at first the loss scale is too large.

    Adam notices how many steps were left out.
    """
    monkeypatch.setattr("d2lmgpu.networks.mixed.FIRST_SCALE", 2.0**19)
    some = tuple(part[:90] for part in data)
    settings = {"precision": "mixed", "batch_size": 17, "network": SMOOTH, "optimizer": "adam", "lr": 0.003}
    runners, init = [], PlanStep.__init__
    monkeypatch.setattr(PlanStep, "__init__", lambda self, *given: init(self, *given) or runners.append(self))
    alone, params = quick(cpus(1), some, **settings)
    history, found = quick(cpus(4), some, split=split, micro_batches=2, prefetch=False, **settings)
    left_out = np.log2(2.0**19 / runners[0].state()[0]["scaling"][0][0])
    assert left_out > 1 and runners[0].execution.stores[0].steps == 2 * 6 - left_out
    assert history.train_loss == pytest.approx(alone.train_loss, rel=2e-3)  # rounded to 11 bits, here and there another
    for one, other in zip(found, params, strict=True):
        assert_close(one, other, 2e-2)


@pytest.mark.parametrize("split", [*SPLITS, "data=2,layers=2"])
def test_in_mixed_precision_updates_wait_for_all_gradients(split):
    """They may turn out to be infinite on another device."""
    plan = plan_of(d2l.Settings(split=split, micro_batches=2, precision="mixed"), 4, SMOOTH)
    updates = [number for number, step in enumerate(plan.steps) for action in step if action[0] == "update"]
    before = [
        number
        for number, step in enumerate(plan.steps)
        for action in step
        if (action.value[0] == "grads" if isinstance(action, Transfer) else action.what in "FBIW")
    ]
    assert prove(plan, 17) and min(updates) > max(before)


def test_a_plan_of_ones_own(data, tmp_path):
    """It trains, goes on from a checkpoint, and is told by its name; what it says itself, settings do not say."""
    plan = copies_of("1f1b", 2, 2, micro_batches=3, network=SMOOTH)._replace(name="mine")
    settings = {"network": SMOOTH, "batch_size": 17, "lr": 0.02}
    some = tuple(part[:90] for part in data)
    alone, params = quick(cpus(1), some, **settings)
    quick(cpus(4), some, split=plan, checkpoint=tmp_path / "run", **settings | {"num_epochs": 1})
    history, found = quick(cpus(4), some, split=plan, resume=tmp_path / "run", **settings)
    assert history.split == "mine" and history.peak_memory == prove(plan, 17).peak
    assert history.train_loss == pytest.approx(alone.train_loss)
    for one, other in zip(found, params, strict=True):
        assert_close(one, other, 1e-2)  # as above
    with pytest.raises(ValueError, match="step 1: "):
        quick(cpus(4), some, **settings | {"split": plan._replace(steps=plan.steps[1:])})


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_memory_with_loads(data, micro_batches):
    """Predicted for the largest shard of each device."""
    settings = SETTINGS | {"split": "data", "micro_batches": micro_batches}
    loaded, even = (quick(cpus(3), data, loads=loads, **settings).history for loads in ([1, 0, 0.3], None))
    assert loaded.peak_memory[0] > even.peak_memory[0] > loaded.peak_memory[1]


@pytest.mark.parametrize("loss", ["soft labels", "squared error", "own loss"])
def test_the_memory_of_losses_and_targets(data, loss):
    """A step fits into what is told, and a byte less is refused."""
    X, y = data[0][:50], np.random.default_rng(4).dirichlet(np.ones(4), 50)
    devices = cpus(2, first=40)
    settings = {"loss": LOSSES[loss], "batch_size": 50, "network": SMOOTH, "split": "layers"}
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


def test_an_allreduce_of_ones_own_in_a_product(data):
    named, own = (
        quick(cpus(4), data, split="data=2,layers=2", algorithm=algorithm, network=SMOOTH)
        for algorithm in ("tree", lambda k, n: ALGORITHMS["tree"](k, n))
    )
    assert named.history.final_parameters_sha256 == own.history.final_parameters_sha256


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
