"""Training across processes: what one process with all their devices learns, bit for bit.

Most of these processes are threads. That they learn what one device learns, test_equals_one_device.py says.
"""

import functools
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from clusters_in_threads import in_each
from conftest import long
from mpi_in_threads import comms
from mpiexec import mpiexec
from one_device import DEEP, DROPPING, NORMED, PLAIN, SMOOTH
from training_runs import StopAfter, cpus, quick, random_data, some

import d2lmgpu as d2l
from d2lmgpu.cluster import gather
from d2lmgpu.collectives import hierarchical
from d2lmgpu.devices import DeviceMemoryError
from d2lmgpu.training import load_run

pytestmark = pytest.mark.threads


def top_3(outputs, y):
    return (np.argsort(outputs, axis=1)[:, -3:] == y[:, None]).any(axis=1).sum()


ROWS = [  # how many devices each process has, the network, settings
    ((1, 1), PLAIN, {"algorithm": "naive", "flat": False, "prefetch": False}),
    ((2, 1), PLAIN, {"algorithm": "sharded", "optimizer": "momentum", "overlap": True}),
    ((1, 3, 1), NORMED, {"algorithm": "tree", "scale_batch": True}),
    ((2, 2), NORMED, {"batch_statistics": "aggregated", "algorithm": "recursive_doubling"}),
    ((1, 2), DROPPING, {"overlap": True, "metrics": {"top 3": top_3}}),
    ((3, 3), PLAIN, {"algorithm": "hierarchical", "drop_last": True, "warmup": 1}),
    ((1, 1, 1), PLAIN, {"precision": "mixed", "preprocess": "flip+shift"}),
    ((2, 1, 3, 1), PLAIN, {"algorithm": "bidirectional_ring", "loads": [1, 0.5, 2, 0, 1, 3, 1]}),
    ((1, 1), SMOOTH, {"split": "layers", "pipeline": "1f1b", "micro_batches": 4, "metrics": {"top 3": top_3}}),
    ((1, 2), DROPPING, {"split": "zero3", "optimizer": "adam", "lr": 0.002, "preprocess": "flip+shift"}),
    ((2, 1), SMOOTH, {"split": "channels", "micro_batches": 2, "drop_last": True, "optimizer": "momentum"}),
    ((1, 1, 1), SMOOTH, {"split": "data", "algorithm": "halving_doubling", "warmup": 1, "loads": [1, 0.4, 0]}),
    ((1, 3), SMOOTH, {"split": "data=2,layers=2", "pipeline": "zero-bubble", "micro_batches": 3}),
    ((1, 2), SMOOTH, {"split": "zero2", "micro_batches": 2, "loss": "squared_error"}),
]


def learned(result):
    """All that processes should have alike: of the history what does not depend on the clock, the model."""
    history = result.history.as_dict()
    for name in ("seconds_per_epoch", "examples_per_second", "phases", "utilisation"):
        del history[name]
    of_cluster = {name: history.pop(name) for name in ("devices", "processes", "environment", "allreduce")}
    return history, of_cluster, [array.tobytes() for array in [*result.params, *result.statistics]]


def alone(processes, data, **settings):
    """A run of one process with as many devices."""
    if settings.get("algorithm") == "hierarchical":
        ends = np.cumsum(processes).tolist()
        groups = [list(range(end - n, end)) for n, end in zip(processes, ends, strict=True)]
        settings["algorithm"] = functools.partial(hierarchical, groups=groups)
    return quick(cpus(sum(processes)), data, **settings)


@pytest.mark.parametrize("processes, network, settings", ROWS)
def test_processes_learn_what_one_learns(processes, network, settings, monkeypatch):
    """Ragged minibatches and test sets, of several parts, with fewer examples in the last than there are devices."""
    monkeypatch.setattr("d2lmgpu.training.evaluation.PREDICTION_BATCH", 9)
    data = random_data(network, 52, 11)
    settings = {"network": network, "batch_size": 25, "lr": 0.02, **settings}
    results = in_each(processes, lambda cluster: quick(cluster, data, **settings))
    history, _, arrays = learned(alone(processes, data, **settings))
    for result in results:
        found, of_cluster, own = learned(result)
        assert (found, own) == (history, arrays)
        assert of_cluster["processes"] == len(processes) and len(of_cluster["devices"]) == sum(processes)
    first, *others = [result.history.as_dict() for result in results]
    assert all(other == first for other in others)  # also times


@pytest.mark.parametrize("before, after", [((2, 1), (1, 1, 1)), *long(((3,), (1, 2)), ((1, 2), (3,)))])
@pytest.mark.parametrize(
    "options", [{"network": NORMED}, {"split": "zero2"}, {"split": "layers", "micro_batches": 2}], ids=str
)
def test_a_checkpoint_goes_on_in_any_number_of_processes(before, after, options, tmp_path):
    """In the middle of an epoch, with batch norm's statistics of each device, and Adam's state."""
    file, options = tmp_path / "run.npz", {"network": PLAIN} | options
    data = random_data(options["network"], 60, 11)
    settings = {"batch_size": 13, "lr": 0.01, "optimizer": "adam", "num_epochs": 3} | options

    def begin(cluster):
        callbacks = [StopAfter(7)] if cluster.rank == cluster.size - 1 else []
        return quick(cluster, data, checkpoint=file, callbacks=callbacks, **settings)

    stopped = in_each(before, begin)
    where = stopped[0].history.interrupted
    assert where["epoch"] == 2 and 2 <= where["steps"] <= 4
    assert all(learned(result) == learned(stopped[0]) for result in stopped)
    whole = tmp_path / "whole.npz"
    history, _, arrays = learned(quick(cpus(3), data, checkpoint=whole, **settings))
    for result in in_each(
        after, lambda cluster: quick(cluster, data, resume=file, checkpoint=tmp_path / "end", **settings)
    ):
        found, _, own = learned(result)
        assert own == arrays and found["train_loss"] == history["train_loss"]
        assert found["final_parameters_sha256"] == history["final_parameters_sha256"]
    found, wanted = (load_run(path).arrays for path in (tmp_path / "end", whole))
    assert found.keys() == wanted.keys() and ("statistics of 2" in wanted) == (options["network"] is NORMED)
    for name, arrays in wanted.items():
        assert [array.tobytes() for array in found[name]] == [array.tobytes() for array in arrays], name


def test_a_stop_between_epochs_is_one_of_all():
    """A callback of rank 1 asks for it when an epoch is complete."""

    class Enough(d2l.Callback):
        def on_epoch(self, history):
            return len(history.train_loss) == 2

    def run(cluster):
        callbacks = [Enough()] if cluster.rank == 1 else []
        return quick(cluster, data, network=PLAIN, num_epochs=5, batch_size=8, callbacks=callbacks)

    data = random_data(PLAIN, 20, 5)
    for result in in_each((1, 1), run):
        assert result.history.interrupted["epoch"] == 2 and len(result.history.train_loss) == 2


def test_shards_of_a_process():
    """Every process has those of its own devices, also where a shard or all of its shards are empty."""
    X, y, _, _ = random_data(PLAIN, 23, 3)
    for n, loads in ((23, None), (2, None), (17, [1, 0, 3, 0.5])):
        expected = d2l.split_batch(X[:n], y[:n], [d2l.cpu(i) for i in range(4)], loads)
        found = in_each((1, 2, 1), lambda cluster: d2l.split_batch(X[:n], y[:n], cluster, loads))  # noqa: B023
        queues = in_each((1, 2, 1), lambda cluster: next_shards(cluster, X[:n], y[:n], loads))  # noqa: B023
        as_float = [d2l.to_host(shard).astype(np.float32) / 255 for shard in expected[0]]
        for shards, whole in ((found, expected), (queues, (as_float, expected[1]))):
            for part in (0, 1):
                mine = [d2l.to_host(shard) for process in shards for shard in process[part]]
                for shard, wanted in zip(mine, whole[part], strict=True):
                    np.testing.assert_allclose(shard, d2l.to_host(wanted), rtol=1e-6)


def next_shards(cluster, X, y, loads):
    queue = d2l.MinibatchQueue(X, y, cluster, 23, loads=loads)
    queue.start_epoch(np.arange(len(X)))
    return queue.next()


def test_rows_arrive_bit_for_bit(rng):
    """Also what is no number, and zeros with a sign."""
    special = np.array([np.nan, -np.inf, -0.0, 5e-324, -1e308])
    values = np.stack([special, *rng.normal(size=(3, 5))])

    for rows in in_each((1, 2, 1), lambda cluster: gather(cluster, cluster.part(values))):
        assert rows.tobytes() == values.tobytes()


def test_what_is_of_one_process_is_refused():
    data = random_data(PLAIN, 20, 5)

    def refused(settings):
        return lambda cluster: quick(cluster, data, network=PLAIN, **settings)

    with pytest.raises(ValueError, match="loads 'auto' are measured in one process; give numbers"):
        in_each((1, 1), refused({"loads": "auto"}))
    with pytest.raises(ValueError, match="give 3 numbers, one for each device"):
        in_each((1, 2), refused({"loads": [1, 2]}))
    with pytest.raises(d2l.DeviceError, match="'nccl' needs GPUs everywhere, but there is cpu"):
        in_each((1, 1), refused({"algorithm": "nccl"}))


@pytest.mark.parametrize("split", ["zero3", "layers", "data=3,layers=1"])
def test_a_limit_of_memory_is_one_of_all(split):
    """What the proof says of it is right in every process; what is too much all refuse in the same words."""
    data = random_data(DEEP, 67, 41)
    settings = {"network": DEEP, "split": split, "optimizer": "adam", "micro_batches": 3, "num_epochs": 1}
    peak = quick(cpus(3), data, **settings).history.peak_memory

    def limited(limits):
        def run(cluster):
            for device, limit in zip(cluster.mine, cluster.part(limits), strict=True):
                device.limit_memory(limit)
            try:
                return quick(cluster, data, **settings).history.peak_memory
            except DeviceMemoryError as error:
                return str(error)

        return run

    above = [int(1.02 * nbytes) + 2000 for nbytes in peak]
    first, second = in_each((1, 2), limited(above))
    assert first == second == peak
    low = in_each((1, 2), limited([None, above[1], peak[2] - 1]))
    assert low[0] == low[1]
    assert low[0].startswith(
        f"split {split} needs {peak[2]:,} bytes on cpu(1) of rank 1 (host1), 1 more than its limit"
    )


# With MPI:

TRAIN = "train --environment parallel --limit 150 --batch-size 64 --epochs 2 --init he".split()


@pytest.mark.long
def test_the_command_under_mpiexec(tmp_path):
    """Rank 0 says what one process says, and every rank has its log."""
    file, logs = tmp_path / "run.json", tmp_path / "logs"
    done = mpiexec(
        2, "-m", "d2lmgpu", *TRAIN, "--devices", 2, "--json", file, "--log", logs, "--allreduce", "hierarchical"
    )
    assert done.returncode == 0, done.stderr
    history = json.loads(file.read_text())
    assert (history["environment"], history["processes"], len(history["devices"])) == ("parallel", 2, 4)
    assert len(re.findall("^epoch", done.stdout, re.MULTILINE)) == 2 and done.stdout.count("test acc: ") == 1
    said = (logs / "rank0.log").read_text().splitlines()  # also what a slow machine says on standard error
    assert set(done.stdout.splitlines()) <= set(said)
    other = (logs / "rank1.log").read_text()
    assert re.match(r"rank 1 of 2, process \d+ on .*: cpu\(0\), cpu\(1\), of 4 devices\nepoch 1/2: loss ", other)


@pytest.mark.long
def test_the_mpiexec_commands_of_the_page(tmp_path):
    """As typed, one after the other."""
    page = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text(encoding="utf-8")
    lines = re.findall(r"^mpiexec -n (\d) d2lmgpu (.*)$", page, re.MULTILINE)
    assert {"1", "2", "4"} <= {count for count, _ in lines}
    for count, words in lines:
        words = shlex.split(re.sub(r"run\.ckpt", lambda name: str(tmp_path / name[0]), words))
        done = mpiexec(int(count), "-m", "d2lmgpu", *words, timeout=300)
        assert done.returncode == 0 and done.stdout, done.stderr


@pytest.mark.parametrize(
    "name, values, said",
    [
        ("seed", (0, 1), "seed is 1 on rank 1, but 0 on rank 0; the checksum of the initial parameters is "),
        ("metrics", (None, {"top 3": top_3}), "metrics is "),
        ("data", (200, 199), "the checksum of the training set is "),
        ("tested", (20, 21), "the number of test images is 21 on rank 1, but 20 on rank 0$"),
        ("checkpoint_steps", (2, 3), "checkpoint_steps is 3 on rank 1, but 2 on rank 0$"),
    ],
)
def test_processes_that_train_something_else(small, tmp_path, name, values, said):
    """Each of them says so before the first step, and writes nothing."""
    told, worlds = [], comms(2)

    def run(everybody):
        everybody.world = worlds[everybody.rank]
        value, data = values[everybody.rank], some(small, 200, 20)
        more = {} if name in ("data", "tested") else {name: value}
        if not more:
            data = some(small, *((value, 20) if name == "data" else (200, value)))
        more["checkpoint"] = tmp_path / "file"
        try:
            d2l.train(everybody, data=data, batch_size=50, num_epochs=1, progress=False, **more)
        except ValueError as error:
            told.append(str(error))

    in_each((1, 1), run)
    assert len(told) == 2 and told[0] == told[1] and re.match("the processes differ: " + said, told[0]), told
    assert not (tmp_path / "file").exists()
