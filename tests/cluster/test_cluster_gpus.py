"""GPUs of several processes, on stand-ins for CuPy and, in threads or not, for MPI."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from clusters_in_threads import in_each
from conftest import REAL_GPU, few, sampled
from gpus import TINY_WITH_NORM, assert_as, gpus, learned, machine, small_data, train  # noqa: F401
from mpiexec import mpiexec

import d2lmgpu as d2l
from d2lmgpu.collectives import ALGORITHMS
from d2lmgpu.networks import Conv2d, Dense, Flatten, ReLU, sequential

pytestmark = pytest.mark.threads


@pytest.fixture(params=["standin", REAL_GPU])
def cards(request, monkeypatch):
    """A function that makes the machine have so many cards; of real ones there are as many as there are.

    On the stand-in the layers compute as they are written.
    """
    if request.param == "gpu":
        return lambda count: None
    monkeypatch.setattr("d2lmgpu.networks.compute.USE_CUDA_KERNELS", False)
    return request.getfixturevalue("machine")


def summed(values, algorithm, splits, kinds):
    """The arrays of all devices after two allreduces."""

    def run(cluster):
        data = [d2l.put(value, device) for value, device in zip(cluster.part(values), cluster.mine, strict=True)]
        for _ in range(2):  # the staging buffers are used again
            d2l.allreduce(data, cluster.across(algorithm))
        return [d2l.to_host(array) for array in data]

    return [array for mine in in_each(splits, run, kinds=kinds) for array in mine]


SUMMING = sorted(set(ALGORITHMS) - {"none"})
CASES = [(algorithm, splits) for algorithm in SUMMING for splits in ((1, 1), (2, 1), (1, 3, 1))]


@pytest.mark.parametrize("algorithm, splits", few(CASES, ("ring", (2, 1)), ("tree", (1, 3, 1)), parts=4))
def test_sums_have_the_bits_of_virtual_devices(algorithm, splits, cards, rng):
    cards(sum(splits))
    for n in (1, 7, 1003):
        values = list(rng.normal(size=(sum(splits), n)).astype(np.float32))
        found = summed(values, algorithm, splits, ["gpu"] * len(splits))
        expected = summed(values, algorithm, splits, ["cpu"] * len(splits))
        for array, other in zip(found, expected, strict=True):
            assert array.tobytes() == other.tobytes()


def test_gpus_and_virtual_devices_in_one_cluster(cards, rng):
    cards(2)
    values = list(rng.normal(size=(4, 57)))
    found = summed(values, "ring", (2, 2), ["gpu", "cpu"])
    for array in found:
        assert array.tobytes() == found[0].tobytes()
        np.testing.assert_allclose(array, 4 * np.sum(values, axis=0), rtol=1e-12)


WAYS = [{"overlap": True, "num_epochs": 1}, {"optimizer": "adam"}, {"network": TINY_WITH_NORM}]


@pytest.mark.parametrize("way", [WAYS[0], *sampled(WAYS[1:], 2)])
def test_processes_learn_what_one_learns(way, cards, rng):
    """Bit for bit, the same GPUs in one process or in several."""
    cards(3)
    data = small_data(rng)
    results = in_each((2, 1), lambda cluster: train(cluster, data, algorithm="ring", **way), kinds=["gpu", "gpu"])
    one = train(gpus(3), data, graphs=False, algorithm="ring", **way)
    for result in results:
        assert learned(result) == learned(one)


FOUR = sequential((1, 9, 8), Conv2d(5, 3), ReLU(), Conv2d(6, 3), ReLU(), Flatten(), Dense(9), Dense(4))
KINDS = {(2, 2): ["gpu", "gpu"], (1, 3): ["gpu", "cpu"], (2, 1, 1): ["cpu", "gpu", "cpu"]}
PLANS = [(split, splits) for split in ("layers", "zero3", "channels", "data=2,layers=2") for splits in KINDS]


@pytest.mark.parametrize("split, splits", few(PLANS, ("layers", (2, 2)), parts=3))
def test_plans_learn_what_one_process_learns(split, splits, cards, rng):
    """Up to rounding: layers compute on the GPUs as they are written, and virtual devices with kernels."""
    cards(4)
    data, given = small_data(rng), {"optimizer": "adam", "lr": 0.01, "split": split, "network": FOUR}
    given |= {"micro_batches": 2, "num_epochs": 1}
    results = in_each(splits, lambda cluster: train(cluster, data, **given), kinds=KINDS[splits])
    one = train([d2l.cpu(i) for i in range(4)], data, **given)
    for result in results:
        assert_as(result, one)


# With MPI:

ON_STANDIN = Path(__file__).parents[1] / "on_standin.py"
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
    said = "does not compute: it finds 2 GPUs, all of them taken by lower ranks"
    assert f"d2lmgpu: rank 2 ({socket.gethostname()}) {said}" in done.stderr
    assert sorted(path.name for path in tmp_path.glob("*.log")) == ["rank0.log", "rank1.log"]
    assert sorted(path.read_text() for path in contexts.iterdir()) == ["[0]", "[1]", "[]"]
    alone = [sys.executable, ON_STANDIN, "2", "train", "--devices", "2", "--no-graphs", *TRAIN, one]
    subprocess.run(alone, check=True, capture_output=True, timeout=120)
    several, one = json.loads(several.read_text()), json.loads(one.read_text())
    assert several["processes"] == 2 and [name[:6] for name in several["devices"]] == ["gpu(0)", "gpu(1)"]
    for same in ("final_parameters_sha256", "train_loss"):
        assert several[same] == one[same]


@pytest.mark.long
def test_an_error_of_cuda_in_one_process_ends_all():
    """And does not leave the others to wait for it."""
    computer = json.dumps({"cards": 2, "broken in rank 1": ["hostAlloc"]})
    arguments = ["train", "--environment", "parallel", *TRAIN[:-1], "--patience", "300"]
    done = mpiexec(2, ON_STANDIN, computer, *arguments, timeout=100)
    assert done.returncode != 0 and "cudaErrorUnknown: unknown error" in done.stderr
    assert "Traceback" not in done.stderr and "rank 1" in done.stderr
