"""Training across processes: what one process with all their devices learns, bit for bit."""

import functools
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from clusters_in_threads import in_each
from conftest import few, long, sampled
from mpi_in_threads import comms
from mpiexec import mpiexec
from plan_steps import execution_of

import d2lmgpu as d2l
from d2lmgpu.cluster import gather
from d2lmgpu.collectives import hierarchical
from d2lmgpu.networks import LENET_BN, Conv2d, Dense, Dropout, Flatten, ReLU, sequential
from d2lmgpu.training import load_run
from d2lmgpu.training.splits import PIPELINES, SPLITS as SPLIT_NAMES

pytestmark = pytest.mark.threads


def top_3(outputs, y):
    return (np.argsort(outputs, axis=1)[:, -3:] == y[:, None]).any(axis=1).sum()


DRAWING = sequential((1, 28, 28), Conv2d(3, 5), ReLU(), Flatten(), Dropout(0.4), Dense(10))
SPLITS = [(1, 1), (2, 1), (1, 3, 1), (2, 2), (1, 2), (3, 3), (1, 1, 1), (2, 2, 2), (1, 1, 1, 1), (2, 1, 3, 1)]
WAYS = {
    "ring": {},
    "each": {"algorithm": "naive", "flat": False, "prefetch": False},
    "momentum": {"algorithm": "sharded", "optimizer": "momentum", "overlap": True},
    "adam": {"algorithm": "halving_doubling", "optimizer": "adam", "overlap": True},
    "batch norm": {"algorithm": "tree", "network": "lenet-bn", "scale_batch": True},
    "aggregated": {"network": "lenet-bn", "batch_statistics": "aggregated", "algorithm": "recursive_doubling"},
    "dropout": {"network": DRAWING, "overlap": True, "metrics": {"top 3": top_3}},
    "hierarchical": {"algorithm": "hierarchical", "drop_last": True, "warmup": 1},
    "mixed": {"precision": "mixed", "preprocess": "flip+shift"},
    "loads": {"algorithm": "bidirectional_ring", "loads": [1, 0.5, 2, 0, 1, 3, 1]},
}

CASES = [(name, split) for name in WAYS for split in SPLITS]
OFTEN = [(name, SPLITS[number % 3]) for number, name in enumerate(WAYS)]


def some(small, n, tested):
    X_train, y_train, X_test, y_test = small
    return X_train[:n], y_train[:n], X_test[:tested], y_test[:tested]


def learned(result):
    """All that processes should have alike: of the history what does not depend on the clock, the model."""
    history = result.history
    told = history.train_loss, history.train_accuracy, history.test_accuracy, history.test_loss, history.metrics
    arrays = [array.tobytes() for array in [*result.params, *result.statistics]]
    return *told, history.interrupted, history.final_parameters_sha256, arrays


def alone(split, data, way, **more):
    """A run of one process with as many devices."""
    way = dict(way)
    if way.get("algorithm") == "hierarchical":
        ends = np.cumsum(split).tolist()
        groups = [list(range(end - n, end)) for n, end in zip(split, ends, strict=True)]
        way["algorithm"] = functools.partial(hierarchical, groups=groups)
    return d2l.train([d2l.cpu(i) for i in range(sum(split))], data=data, progress=False, **way, **more)


def with_loads(way, k):
    return way | {"loads": way["loads"][:k]} if "loads" in way else way


@pytest.mark.parametrize("name, split", few(CASES, *OFTEN))
def test_processes_learn_what_one_learns(name, split, small):
    """Ragged minibatches and test sets, with fewer examples in the last than there are devices."""
    data, k = some(small, 52, 11), sum(split)
    settings = {"batch_size": 25, "num_epochs": 2, "init": "he", "lr": 0.05, **with_loads(WAYS[name], k)}
    results = in_each(split, lambda cluster: d2l.train(cluster, data=data, **settings))
    expected = learned(alone(split, data, settings))
    for result in results:
        assert learned(result) == expected
    first, *others = [result.history.as_dict() for result in results]
    assert all(other == first for other in others)  # also times
    assert first["processes"] == len(split) and len(first["devices"]) == len(first["utilisation"]) == k


def test_rank_0_alone_prints(small, capsys):
    data = some(small, 20, 5)
    in_each((1, 1), lambda cluster: d2l.train(cluster, data=data, num_epochs=2, batch_size=10, init="he"))
    lines = capsys.readouterr().out.splitlines()
    assert [line[:9] for line in lines if line.startswith("epoch")] == ["epoch 1/2", "epoch 2/2"]


@pytest.mark.parametrize("before, after", [((2, 1), (1, 1, 1)), *long(((3,), (1, 2)), ((1, 2), (3,)))])
@pytest.mark.parametrize("how", [{"network": "lenet-bn"}, {"split": "zero2"}, {"split": "layers", "micro_batches": 2}])
def test_a_checkpoint_goes_on_in_any_number_of_processes(before, after, how, small, tmp_path):
    """In the middle of an epoch, with batch norm's statistics of each device, and Adam's state."""
    data, file = some(small, 60, 11), tmp_path / "run.npz"
    settings = {"batch_size": 13, "init": "he", "lr": 0.01, "optimizer": "adam", "num_epochs": 3}
    settings |= {"data": data, "progress": False} | how

    class StopAt(d2l.Callback):
        def on_step(self, epoch, step, loss):
            return epoch == 1 and step == 2

    def begin(cluster):
        callbacks = [StopAt()] if cluster.rank == cluster.size - 1 else []
        return d2l.train(cluster, checkpoint=file, callbacks=callbacks, **settings)

    def go_on(cluster):
        return d2l.train(cluster, resume=file, checkpoint=tmp_path / "end.npz", **settings)

    stopped = in_each(before, begin)
    where = stopped[0].history.interrupted
    assert where["epoch"] == 2 and 2 <= where["steps"] <= 4
    assert all(learned(result) == learned(stopped[0]) for result in stopped)
    whole = tmp_path / "whole.npz"
    expected = learned(d2l.train([d2l.cpu(i) for i in range(3)], checkpoint=whole, **settings))
    for result in in_each(after, go_on):
        assert learned(result) == expected
    found, wanted = (load_run(path).arrays for path in (tmp_path / "end.npz", whole))
    assert found.keys() == wanted.keys() and ("statistics of 2" in wanted) == ("network" in how)
    for name, arrays in wanted.items():
        assert [array.tobytes() for array in found[name]] == [array.tobytes() for array in arrays], name


def test_a_stop_between_epochs_is_one_of_all(small):
    """A callback of rank 1 asks for it when an epoch is complete."""

    class Enough(d2l.Callback):
        def on_epoch(self, history):
            return len(history.train_loss) == 2

    def run(cluster):
        callbacks = [Enough()] if cluster.rank == 1 else []
        return d2l.train(cluster, data=data, num_epochs=5, batch_size=8, callbacks=callbacks)

    data = some(small, 20, 5)
    for result in in_each((1, 1), run):
        assert result.history.interrupted["epoch"] == 2 and len(result.history.train_loss) == 2


def test_shards_of_a_process(small):
    """Every process has those of its own devices, also where a shard or all of its shards are empty."""
    X, y, _, _ = small
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


def test_evaluating(small):
    """Parameters of one list, metrics, and a test set of several parts."""
    _, _, X, y = small
    params, metrics = d2l.init_params(3, init="he"), {"top 3": top_3}
    expected = d2l.evaluate(params, X, y, [d2l.cpu(i) for i in range(3)], metrics=metrics)
    found = in_each((1, 2), lambda cluster: d2l.evaluate(params, X, y, cluster, metrics=metrics))
    assert found == [expected] * 2


def test_rows_arrive_bit_for_bit(rng):
    """Also what is no number, and zeros with a sign."""
    special = np.array([np.nan, -np.inf, -0.0, 5e-324, -1e308])
    values = np.stack([special, *rng.normal(size=(3, 5))])

    for rows in in_each((1, 2, 1), lambda cluster: gather(cluster, cluster.part(values))):
        assert rows.tobytes() == values.tobytes()


def test_statistics_of_all(rng):
    params = d2l.init_params(network=LENET_BN)

    def make(cluster):
        execution = execution_of(params, cluster, LENET_BN)
        for number, store in enumerate(execution.stores, cluster.first):
            for array in store.copy()[1]:
                array.fill(number + 0.1)
        return execution.statistics()

    for found in in_each((2, 1), make):
        assert [[array.dtype for array in arrays] for arrays in found] == [[np.float32] * len(found[0])] * 3
        assert [{float(x) for array in arrays for x in array} for arrays in found] == [
            {float(np.float32(number + 0.1))} for number in range(3)
        ]


def test_what_is_of_one_process_is_refused(small):
    data = some(small, 20, 5)

    def refused(settings):
        return lambda cluster: d2l.train(cluster, data=data, **settings)

    with pytest.raises(ValueError, match="loads 'auto' are measured in one process; give numbers"):
        in_each((1, 1), refused({"loads": "auto"}))
    with pytest.raises(ValueError, match="give 3 numbers, one for each device"):
        in_each((1, 2), refused({"loads": [1, 2]}))
    with pytest.raises(d2l.DeviceError, match="'nccl' needs GPUs everywhere, but there is cpu"):
        in_each((1, 1), refused({"algorithm": "nccl"}))
    with pytest.raises(ValueError, match="drift apart"):
        in_each((1, 1), refused({"algorithm": "none"}))
    with pytest.raises(d2l.DeviceError, match="'mpi' needs several processes with devices: use mpiexec"):
        d2l.train([d2l.cpu(0)], data=data, algorithm="mpi")


# With MPI:

TRAIN = "train --environment parallel --limit 150 --batch-size 64 --epochs 2 --init he".split()
AS_ONE = """
import functools, json, sys
import d2lmgpu as d2l
from d2lmgpu.collectives import hierarchical

d, file = int(sys.argv[1]), sys.argv[2]
X_train, y_train, X_test, y_test = d2l.load_fashion_mnist()
data = X_train[:107], y_train[:107], X_test[:31], y_test[:31]
cluster, rows = d2l.cluster(d, patience=60), []
k = len(cluster)
for settings in json.loads(sys.argv[3]):
    usual = {"batch_size": 50, "num_epochs": 2, "init": "he", "lr": 0.05, "data": data, "progress": False}
    settings = usual | settings
    found = d2l.train(cluster, **settings).history
    if settings["algorithm"] == "hierarchical" and cluster.size > 1:
        groups = [list(range(r * d, r * d + d)) for r in range(cluster.size)]
        settings["algorithm"] = functools.partial(hierarchical, groups=groups)
    if cluster.rank == 0:
        mpi = settings["algorithm"] == "mpi"
        settings |= {"algorithm": "ring"} if mpi else {}
        one = d2l.train([d2l.cpu(100 + i) for i in range(k)], **settings).history
        near = abs(found.train_loss[-1] - one.train_loss[-1]) < 1e-4
        same = found.train_loss == one.train_loss and found.final_parameters_sha256 == one.final_parameters_sha256
        rows.append([same or (mpi and near), found.test_accuracy == one.test_accuracy or mpi])
if cluster.rank == 0:
    json.dump(rows, open(file, "w"))
"""


@pytest.mark.parametrize(
    "count, devices", sampled([(1, 3), (2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (3, 3), (4, 1), (4, 2), (4, 3)], 3)
)
def test_mpi_learns_what_one_process_learns(count, devices, tmp_path):
    """Every allreduce and every split: the bits of one process, ragged minibatches and a ragged test set."""
    k = count * devices
    ways = [{"algorithm": name} for name in d2l.collectives.ALGORITHMS if name != "none"]
    ways += [{"algorithm": "ring", "overlap": True, "optimizer": "adam", "lr": 0.003, "network": "lenet-bn"}]
    ways += [{"algorithm": "mpi"}] if count > 1 else []
    splits = [{"split": name, "micro_batches": 2} for name in SPLIT_NAMES if name != "layers" or k <= 4]
    splits += [{"split": "layers", "pipeline": name, "micro_batches": 3} for name in PIPELINES if k <= 4]
    splits += [{"split": f"data=2,{name}={k // 2}", "micro_batches": 2} for name in ("layers", "channels") if k == 4]
    ways += [{"algorithm": "ring", "optimizer": "adam", "lr": 0.003, "num_epochs": 1, **way} for way in splits]
    done = mpiexec(count, "-c", AS_ONE, devices, tmp_path / "rows.json", json.dumps(ways), timeout=600)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "rows.json").read_text()) == [[True, True]] * len(ways)


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


@pytest.mark.parametrize(
    "words, code, says",
    long(
        (["--lr", "-1"], 2, r"^d2lmgpu train: error: lr is -1.0; it should be"),
        (["--plot", "run.doc"], None, r"d2lmgpu: rank 0 \(.*\) failed: plot run.doc: the file's name should end in"),
    ),
)
def test_an_error_under_mpiexec_ends_all(words, code, says):
    done = mpiexec(3, "-m", "d2lmgpu", *TRAIN, *words, timeout=60)
    assert done.returncode == code if code else done.returncode != 0  # MPI's launcher chooses it where only one fails
    assert len(re.findall(says, done.stderr, re.MULTILINE)) == done.stderr.count("d2lmgpu") == 1, done.stderr


@pytest.mark.long
def test_mpi_predicts(tmp_path):
    """With three devices, each of its own process or all of one: the same probabilities, which rank 0 tells."""
    model = d2l.Model(d2l.networks.LENET, d2l.init_params(3, init="he"))
    model.save(tmp_path / "model")
    found = []
    for count, devices in ((3, 1), (1, 3)):
        words = "predict", tmp_path / "model", "--environment", "parallel", "--devices", devices
        done = mpiexec(count, "-m", "d2lmgpu", *words, "--json", tmp_path / "json", "--confusion", tmp_path / "a.png")
        assert done.returncode == 0 and done.stdout.count("test acc") == 1, done.stderr
        assert (tmp_path / "a.png").stat().st_size > 1000
        found.append(json.loads((tmp_path / "json").read_text()))
    _, _, X, y = d2l.load_fashion_mnist()
    assert found[0] == found[1] and found[0]["accuracy"] == model.evaluate(X, y, 3)


@pytest.mark.long
def test_the_mpiexec_commands_of_the_page(tmp_path):
    """As typed, one after the other."""
    page = (Path(__file__).parents[1] / "docs" / "cluster.md").read_text(encoding="utf-8")
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
        ("check_every", (5, 0), "check_every is 0 on rank 1, but 5 on rank 0$"),
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
