"""What needs processes that MPI starts: the bits of one process, and what is said of one that goes wrong.

The other MPI runs this file, too; what threads can stand in for is in the other files of this folder.
"""

import json
import re
from pathlib import Path

import mpiexec as by_mpi
import pytest
from conftest import few, sampled
from mpiexec import mpiexec

from d2lmgpu.collectives import ALGORITHMS
from d2lmgpu.training.splits import PIPELINES, SPLITS as SPLIT_NAMES

pytestmark = [pytest.mark.threads, pytest.mark.long]

PROGRAMS = Path(by_mpi.__file__).parent
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
    "count, devices", sampled([(1, 3), (2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (3, 3), (4, 1), (4, 2), (4, 3)], 5)
)
def test_mpi_learns_what_one_process_learns(count, devices, tmp_path):
    """Every allreduce and every split: the bits of one process, ragged minibatches and a ragged test set."""
    k = count * devices
    ways = [{"algorithm": name} for name in ALGORITHMS if name != "none"]
    ways += [{"algorithm": "ring", "overlap": True, "optimizer": "adam", "lr": 0.003, "network": "lenet-bn"}]
    ways += [{"algorithm": "mpi"}] if count > 1 else []
    splits = [{"split": name, "micro_batches": 2} for name in SPLIT_NAMES if name != "layers" or k <= 4]
    splits += [{"split": "layers", "pipeline": name, "micro_batches": 3} for name in PIPELINES if k <= 4]
    splits += [{"split": f"data=2,{name}={k // 2}", "micro_batches": 2} for name in ("layers", "channels") if k == 4]
    ways += [{"algorithm": "ring", "optimizer": "adam", "lr": 0.003, "num_epochs": 1, **way} for way in splits]
    done = mpiexec(count, "-c", AS_ONE, devices, tmp_path / "rows.json", json.dumps(ways), timeout=600)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "rows.json").read_text()) == [[True, True]] * len(ways)


CLUSTERS = """
import numpy as np
import d2lmgpu as d2l
from mpi4py import MPI

world = MPI.COMM_WORLD
sent = [world.isend(tag, 1 - world.rank, tag) for tag in range(100)]
first = d2l.cluster(2 if world.rank == 0 else 1, patience=60)
assert [world.recv(tag=tag) for tag in range(100)] == list(range(100))
MPI.Request.waitall(sent)
second = d2l.cluster(1, patience=60)
assert second is d2l.cluster(1, patience=60)
data = [d2l.put(np.full(5, 2.0), device) for device in second.mine]
d2l.allreduce(data, second.across("ring"))
print(f"found {len(first)} {len(second)} {d2l.to_host(data[0])[0]}")
"""


def test_processes_that_had_different_numbers_of_devices_have_one_cluster():
    """One has a cluster of what it asks for already, the other has not. The program's own messages stay its own."""
    done = mpiexec(2, "-c", CLUSTERS)
    assert (done.returncode, re.findall(r"found \d \d \d\.0", done.stdout)) == (0, ["found 3 2 4.0"] * 2), done


def test_the_command_measures_across_processes(tmp_path):
    file = tmp_path / "rows.json"
    words = ["allreduce", "--devices", "2", "--sizes", "4,4K", "--algorithms", "ring,naive,mpi,none", "--json", file]
    done = mpiexec(2, "-m", "d2lmgpu", *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("float32, sum, in place, on [cpu(0) of rank 0") == 1
    rows = json.loads(file.read_text())["rows"]
    assert [(row["bytes"], row["algorithm"], row["devices"]) for row in rows] == [
        (nbytes, algorithm, 4) for nbytes in (4, 4096) for algorithm in ("ring", "naive", "mpi", "none")
    ]
    assert [row["correct"] for row in rows[:4]] == [True, True, True, None]
    assert rows[4]["bytes_sent_per_device"] == [6144] * 4 and rows[4]["steps"] == 6
    assert rows[5]["bytes_sent_per_device"] == [3 * 4096, 4096, 4096, 4096]
    assert rows[6]["bytes_sent_per_device"] is rows[6]["steps"] is None


WAITS = (
    r"waits in allreduce ring, step 1 of 6, for elements \d+ to \d+ of cpu\(0\) of rank {} \(\S+\), last heard from "
)
FAULTS = {
    "kill": [],
    "crash": [],
    "stop": [WAITS],
    "hold": [WAITS],
    "sleep": [WAITS],
    "exit": [r"rank {} \(\S+\) is at the end of its program, and waits for the others", WAITS],
    "leave": [],
    "raise": [r"rank {} \(\S+\) failed: KeyError: 'bad luck'; the job ends"],
    "sums": [r"rank {} \(\S+\) failed: SumError: .* for a granule on cpu\(0\), .*; the job ends"],
    "other-code": [r"the processes differ: the code of d2lmgpu is 'another version' on rank {}, but '\w+' on ranks "],
    "absent": [r"rank {} did not join rank \d at d2l.cluster\(\) within 3 s; the job ends"],
    "plan-sleep": [
        r"waits in training step 3 of plan 1f1b, device \d, step \d+ \(receive of \w+ of stage \d, micro-batch \d, "
        r"from device {0}\), for cpu\(0\) of rank {0} \(\S+\) to send it, last heard from \S+ s ago",
    ],
}
"""By the names of tests/faults.py: what is said of the rank that has one."""

BLAMED = r"rank (\d) did not join"


@pytest.mark.parametrize("how", few(FAULTS, "kill", parts=4))
def test_a_fault_is_told_and_ends_the_job(how):
    where = list(FAULTS).index(how) % 4
    done = mpiexec(4, PROGRAMS / "faults.py", how, where)
    assert done.returncode != 0
    for line in FAULTS[how]:
        assert re.search(line.format(where), done.stderr), done.stderr
    assert set(re.findall(BLAMED, done.stderr)) <= {str(where)}, done.stderr


def test_nothing_is_said_without_faults():
    done = mpiexec(4, PROGRAMS / "faults.py", "none", 0)
    assert (done.returncode, done.stderr) == (0, "")


def test_who_does_not_come_to_mpi_is_not_waited_for_without_end():
    assert mpiexec(4, PROGRAMS / "faults.py", "no-mpi", 2).returncode != 0
