"""GPUs of several processes, on stand-ins for CuPy, for NCCL and, in threads, for MPI."""

import json
import re
import socket
import subprocess
import sys
import time
import types
from pathlib import Path

import numpy as np
import pytest
import standin_cupy
from clusters_in_threads import in_each
from conftest import REAL_GPU, assert_close, few, long
from mpi_in_threads import comms
from mpiexec import mpiexec
from standin_nccl import install_nccl

import d2lmgpu as d2l
from d2lmgpu.cluster.launch import share_cards
from d2lmgpu.collectives import ALGORITHMS
from d2lmgpu.networks import Conv2d, Dense, Flatten, ReLU, sequential

pytestmark = pytest.mark.threads

SUMMING = sorted(set(ALGORITHMS) - {"none"})


@pytest.fixture
def cards(standin, monkeypatch):
    """A function that makes the machine have so many cards."""
    monkeypatch.setattr("d2lmgpu.networks.compute.USE_CUDA_KERNELS", False)  # they would take minutes
    return lambda count: standin_cupy.install(monkeypatch, cards=count)


def summed(values, algorithm, splits, kinds):
    """The arrays of all devices after an allreduce."""

    def run(cluster):
        data = [d2l.put(value, device) for value, device in zip(cluster.part(values), cluster.mine, strict=True)]
        for _ in range(2):  # the staging buffers are used again
            d2l.allreduce(data, cluster.across(algorithm))
        return [d2l.to_host(array) for array in data]

    return [array for mine in in_each(splits, run, kinds=kinds) for array in mine]


@pytest.fixture(params=["standin", REAL_GPU])
def gpus(request):
    """As `cards`; of real GPUs there are as many as there are, which devices share."""
    return request.getfixturevalue("cards") if request.param == "standin" else lambda count: None


CASES = [(algorithm, splits) for algorithm in SUMMING for splits in ((1, 1), (2, 1), (1, 3, 1))]


@pytest.mark.parametrize("algorithm, splits", few(CASES, ("ring", (2, 1)), ("tree", (1, 3, 1))))
def test_sums_have_the_bits_of_virtual_devices(algorithm, splits, gpus, rng):
    gpus(sum(splits))
    for n in (1, 7, 1003):
        values = list(rng.normal(size=(sum(splits), n)).astype(np.float32))
        found = summed(values, algorithm, splits, ["gpu"] * len(splits))
        expected = summed(values, algorithm, splits, ["cpu"] * len(splits))
        for array, other in zip(found, expected, strict=True):
            assert array.tobytes() == other.tobytes()


def test_gpus_and_virtual_devices_in_one_cluster(gpus, rng):
    gpus(2)
    values = list(rng.normal(size=(4, 57)))
    found = summed(values, "ring", (2, 2), ["gpu", "cpu"])
    for array in found:
        assert array.tobytes() == found[0].tobytes()
        np.testing.assert_allclose(array, 4 * np.sum(values, axis=0), rtol=1e-12)


FOUR = sequential((1, 28, 28), Conv2d(5, 5, stride=3), ReLU(), Conv2d(6, 3), ReLU(), Flatten(), Dense(9), Dense(10))
EACH = {"overlap": True, "optimizer": "adam"}


@pytest.mark.parametrize("way", [EACH, *long({}, {"network": "lenet-bn"})])
def test_processes_learn_what_one_learns(way, gpus, small):
    """Bit for bit, the same GPUs in one process or in several."""
    gpus(3)
    data = some(small, 24, 7)
    settings = {"batch_size": 10, "num_epochs": 2, "init": "he", "lr": 0.01, "algorithm": "ring", "data": data, **way}
    results = in_each((2, 1), lambda cluster: d2l.train(cluster, **settings), kinds=["gpu", "gpu"])
    one = d2l.train([d2l.gpu(i) for i in range(3)], graphs=False, progress=False, **settings)
    for result in results:
        assert learned(result) == learned(one)


def some(small, n, tested):
    X_train, y_train, X_test, y_test = small
    return X_train[:n], y_train[:n], X_test[:tested], y_test[:tested]


def learned(result):
    history = result.history
    told = history.train_loss, history.train_accuracy, history.test_accuracy, history.final_parameters_sha256
    return *told, [array.tobytes() for array in [*result.params, *result.statistics]]


def nccl_world(splits, watches):
    """What a cluster in threads lacks for NCCL: a communicator of all, and a watch."""
    worlds = comms(len(splits))

    def join(cluster):
        cluster.world = worlds[cluster.rank]
        cluster.watch = types.SimpleNamespace(heard=[0.0] * len(splits), communicators=[])
        watches.append(cluster.watch)
        return cluster

    return join


@pytest.mark.parametrize("splits", [(2, 1), *long(((1, 1),), ((1, 1, 1),))])
def test_nccl_sums_over_all_processes(splits, cards, rng, monkeypatch):
    cards(sum(splits))
    calls, watches = install_nccl(monkeypatch), []
    values = list(rng.normal(size=(sum(splits), 29)).astype(np.float32))
    join = nccl_world(splits, watches)

    def run(cluster):
        across = join(cluster).across("nccl")
        data = [d2l.put(value, device) for value, device in zip(cluster.part(values), cluster.mine, strict=True)]
        d2l.allreduce(data, across)
        with pytest.raises(ValueError, match="nccl': int32 is not among float16, float32, float64, int64"):
            d2l.allreduce([d2l.put(np.arange(3, dtype=np.int32), device) for device in cluster.mine], across)
        return [d2l.to_host(array) for array in data]

    for array in [array for mine in in_each(splits, run, kinds=["gpu"] * len(splits)) for array in mine]:
        np.testing.assert_allclose(array, np.sum(values, axis=0), rtol=1e-5)
    assert sorted(call[:-1] for call in calls) == [(card, 29, "float32", "sum") for card in range(sum(splits))]
    by_process = [len({call.group for call in calls if call.card in cards}) for cards in parts(splits)]
    assert by_process == [1] * len(splits), "a process's calls are a group"
    assert [len(watch.communicators) for watch in watches] == [1] * len(splits)


def parts(splits):
    """The cards of each process."""
    ends = np.cumsum(splits).tolist()
    return [range(end - count, end) for end, count in zip(ends, splits, strict=True)]


def test_nccl_trains(cards, small, monkeypatch):
    cards(2)
    install_nccl(monkeypatch)
    settings = {"batch_size": 6, "num_epochs": 1, "init": "he", "lr": 0.01, "data": some(small, 12, 5)}
    join = nccl_world((1, 1), [])

    def run(cluster):
        join(cluster)
        return d2l.train(cluster, algorithm="nccl", **settings)

    first, second = in_each((1, 1), run, kinds=["gpu", "gpu"])
    expected = in_each((1, 1), lambda cluster: d2l.train(cluster, algorithm="ring", **settings))[0]
    assert learned(first) == learned(second)
    np.testing.assert_allclose(first.history.train_loss, expected.history.train_loss, rtol=1e-4)


def test_who_waits_in_nccl_says_so(cards, monkeypatch):
    """What the process's watch sees while the other does not come."""
    cards(2)
    install_nccl(monkeypatch)
    watches, seen, wanted = [], set(), "NCCL's allReduce"
    join = nccl_world((1, 1), watches)

    def run(cluster):
        across = join(cluster).across("nccl")
        data = [d2l.put(np.ones(3, np.float32), cluster.mine[0])]
        end = time.monotonic() + 30
        while cluster.rank == 1 and wanted not in seen and time.monotonic() < end:
            waits = [communicator.waits for watch in watches for communicator in watch.communicators]
            seen.update(waiting.what for each in waits for waiting in each)
            time.sleep(0.001)
        d2l.allreduce(data, across)

    in_each((1, 1), run, kinds=["gpu", "gpu"])
    assert wanted in seen and seen <= {wanted, "ncclCommInitRank"}


def test_nccl_says_what_it_needs(cards, monkeypatch):
    cards(1)
    install_nccl(monkeypatch)
    join = nccl_world((1, 1), [])
    refusal = re.escape("but there is cpu(0) of rank 1 (host1); use 'ring' or 'mpi'")
    with pytest.raises(d2l.DeviceError, match=refusal):
        in_each((1, 1), lambda cluster: join(cluster).across("nccl"), kinds=["gpu", "cpu"])
    twice = r"but gpu\(0\) of rank 0 \(host0\), gpu\(0\) of rank 1 \(host1\) share cards"  # two containers' names
    with pytest.raises(d2l.DeviceError, match=twice):
        in_each((1, 1), lambda cluster: join(cluster).across("nccl"), kinds=["gpu", "gpu"])


def test_what_nccl_says_in_one_process_is_raised_in_all(cards, monkeypatch):
    cards(2).broken.add("ncclGetUniqueId")
    install_nccl(monkeypatch)
    join, told = nccl_world((1, 1), []), "NCCL_ERROR_UNHANDLED_CUDA_ERROR: .* 'ring' needs no NCCL .rank 0."

    def run(cluster):
        with pytest.raises(d2l.DeviceError, match=told):
            join(cluster).across("nccl")

    in_each((1, 1), run, kinds=["gpu", "gpu"])


@pytest.mark.parametrize("split", few(["layers", "zero3", "channels", "data=2,layers=2"], "layers", "zero3"))
@pytest.mark.parametrize("splits, kinds", few([((2, 2), "gg"), ((1, 3), "gc"), ((2, 1, 1), "cgc")], ((2, 2), "gg")))
def test_plans_learn_what_one_process_learns(split, splits, kinds, gpus, small):
    """Up to rounding: layers compute on the GPUs as they are written, and virtual devices with kernels."""
    gpus(4)
    kinds = [{"g": "gpu", "c": "cpu"}[kind] for kind in kinds]
    settings = {"batch_size": 10, "num_epochs": 1, "init": "he", "lr": 0.01, "optimizer": "adam", "split": split}
    settings |= {"data": some(small, 24, 7), "network": FOUR, "micro_batches": 2}
    results = in_each(splits, lambda cluster: d2l.train(cluster, **settings), kinds=kinds)
    one = d2l.train([d2l.cpu(i) for i in range(4)], progress=False, **settings)
    for result in results:
        assert result.history.train_loss == pytest.approx(one.history.train_loss)
        for param, alone in zip(result.params, one.params, strict=True):
            assert_close(param, alone, 1e-4)


@pytest.mark.parametrize(
    "present, count, shares",
    [
        ([["X", "Y"], ["X", "Y"]], 1, [[0], [1]]),
        ([["X"], ["Y"]], 1, [[0], [0]]),  # a batch system has divided them
        ([["X", "Y"], ["V", "W"]], 2, [[0, 1], [0, 1]]),
        ([["X", "Y", "Z"], ["X", "Y", "Z"]], 2, [[0, 1], [2]]),
        ([["X"], [], ["X"]], 1, [[0], [], []]),
    ],
)
def test_each_process_takes_cards_of_its_own(present, count, shares):
    assert share_cards(present, count) == shares


# With MPI:

ON_STANDIN = Path(__file__).with_name("on_standin.py")
TRAIN = "--limit 60 --batch-size 24 --epochs 1 --init he --seed 3 --json".split()


@pytest.mark.long
def test_processes_of_a_machine_take_its_gpus(tmp_path, monkeypatch):
    """Of three processes on two cards two compute, and learn what one process with both cards does.

    Each uses no card but its own: the context of another there would take half a gigabyte of it.
    """
    several, one, contexts = tmp_path / "several.json", tmp_path / "one.json", tmp_path / "contexts"
    contexts.mkdir()
    monkeypatch.setenv("STANDIN_CONTEXTS", str(contexts))
    done = mpiexec(3, ON_STANDIN, 2, "train", "--environment", "parallel", *TRAIN, several, "--log", tmp_path)
    assert done.returncode == 0, done.stderr
    said = "does not compute: it finds 2 GPUs, all of them taken by lower ranks, and others have some; start as many"
    assert f"d2lmgpu: rank 2 ({socket.gethostname()}) {said}" in done.stderr
    assert sorted(path.name for path in tmp_path.glob("*.log")) == ["rank0.log", "rank1.log"]
    assert sorted(path.read_text() for path in contexts.iterdir()) == ["[0]", "[1]", "[]"]
    alone = [sys.executable, ON_STANDIN, "2", "train", "--devices", "2", "--no-graphs", *TRAIN, one]
    subprocess.run(alone, check=True, capture_output=True, timeout=120)
    several, one = json.loads(several.read_text()), json.loads(one.read_text())
    assert several["processes"] == 2 and [name[:6] for name in several["devices"]] == ["gpu(0)", "gpu(1)"]
    assert several["final_parameters_sha256"] == one["final_parameters_sha256"]
    assert several["train_loss"] == one["train_loss"]


@pytest.mark.long
def test_an_error_of_cuda_in_one_process_ends_all():
    """And does not leave the others to wait for it."""
    machine = json.dumps({"cards": 2, "broken in rank 1": ["hostAlloc"]})
    arguments = ["train", "--environment", "parallel", *TRAIN[:-1], "--patience", "300"]
    done = mpiexec(2, ON_STANDIN, machine, *arguments, timeout=100)
    assert done.returncode != 0 and "cudaErrorUnknown: unknown error" in done.stderr
    assert "Traceback" not in done.stderr and "rank 1" in done.stderr


def test_named_devices_are_taken_where_there_are_gpus(tmp_path):
    out = tmp_path / "out.json"
    arguments = "train --environment parallel --devices cpu:0,cpu:1".split()
    done = mpiexec(2, ON_STANDIN, 1, *arguments, *TRAIN, out)
    assert done.returncode == 0, done.stderr
    assert [name[:6] for name in json.loads(out.read_text())["devices"]] == ["cpu(0)", "cpu(1)"] * 2


@pytest.mark.long
def test_allreduces_of_gpus_are_measured(tmp_path):
    out = tmp_path / "out.json"
    arguments = "allreduce --algorithms ring,mpi --sizes 4K --json".split()
    done = mpiexec(2, ON_STANDIN, 2, *arguments, out)
    assert done.returncode == 0, done.stderr
    rows = json.loads(out.read_text())["rows"]
    assert "gpu(1) of rank 1" in done.stdout and [row["correct"] for row in rows] == [True, True]
