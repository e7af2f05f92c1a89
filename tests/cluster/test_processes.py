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

pytestmark = [pytest.mark.threads, pytest.mark.long]

PROGRAMS = Path(by_mpi.__file__).parent
SHARES = """
import sys
from functools import partial
import numpy as np
import d2lmgpu as d2l
from d2lmgpu.collectives import hierarchical

cluster = d2l.cluster(int(sys.argv[1]), patience=60)
k, wrong = len(cluster), 0
groups = [[i for i in range(k) if cluster.owners[i] == rank] for rank in range(cluster.size)]
by_process = partial(hierarchical, groups=groups) if cluster.size > 1 else "hierarchical"
for algorithm in sys.argv[2].split(","):
    for n, dtype in ((0, "f4"), (1, "f8"), (7, "f4"), (1000, "f8"), (100003, "f4")):
        values = np.random.default_rng(n).normal(size=(k, n)).astype(dtype)
        one = [d2l.put(value, d2l.cpu(100 + i)) for i, value in enumerate(values)]
        d2l.allreduce(one, {"mpi": "ring", "hierarchical": by_process}.get(algorithm, algorithm))
        expected = d2l.to_host(one[0])
        mine = [d2l.put(values[cluster.first + i], device) for i, device in enumerate(cluster.mine)]
        for _ in range(2):
            copies = [d2l.put(array, array.device) for array in mine]
            with d2l.record_transfers() as transfers:
                d2l.allreduce(copies, cluster.across(algorithm))
            if n and algorithm != "mpi":
                assert transfers or k == 1
            for found in map(d2l.to_host, copies):
                near = algorithm == "mpi" and np.allclose(found, expected, atol=1e-4)
                wrong += not near and found.tobytes() != expected.tobytes()
print(f"{wrong} wrong")
"""


@pytest.mark.parametrize(
    "count, devices", [(2, 1), *sampled([(1, 3), (2, 2), (2, 3), (2, 4), (3, 1), (3, 2), (4, 1), (4, 2), (5, 1)], 3)]
)
def test_mpi_has_the_bits_of_one_process(count, devices):
    algorithms = sorted({*ALGORITHMS, "mpi"} - {"none", *(["mpi"] if count == 1 else [])})
    done = mpiexec(count, "-c", SHARES, devices, ",".join(algorithms))
    assert done.returncode == 0, done.stderr
    assert re.findall(r"\d+ wrong", done.stdout) == ["0 wrong"] * count


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
KILLED = r"rank {} \(\S+\) was killed by signal 9 \(SIGKILL\); the job ends"
FAULTS = {
    "kill": [KILLED],
    "crash": [r"rank {} \(\S+\) was killed by signal 11 \(SIGSEGV\); the job ends"],
    "stop": [WAITS],
    "hold": [WAITS],
    "sleep": [WAITS],
    "exit": [r"rank {} \(\S+\) is at the end of its program, and waits for the others", WAITS],
    "leave": [],
    "raise": [r"rank {} \(\S+\) failed: KeyError: 'bad luck'; the job ends"],
    "sums": [r"rank {} \(\S+\) failed: SumError: .* for a granule on cpu\(0\), .*; the job ends"],
    "other-code": [r"the processes differ: the code of d2lmgpu is 'another version' on rank {}, but '\w+' on ranks "],
    "absent": [r"rank {} did not join rank \d at d2l.cluster\(\) within 3 s; the job ends"],
    "plan-kill": [KILLED],
    "plan-sleep": [
        r"waits in training step 3 of plan 1f1b, device \d, step \d+ \(receive of \w+ of stage \d, micro-batch \d, "
        r"from device {0}\), for cpu\(0\) of rank {0} \(\S+\) to send it, last heard from \S+ s ago",
    ],
}
"""By the names of tests/faults.py: what is said of the rank that has one."""

BLAMED = r"rank (\d) (?:did not join|\(\S+\) was killed)"


@pytest.mark.parametrize("how", few(FAULTS, "kill", parts=4))
def test_a_fault_is_told_and_ends_the_job(how):
    where = list(FAULTS).index(how) % 4
    done = mpiexec(4, PROGRAMS / "faults.py", how, where)
    assert done.returncode != 0
    for line in FAULTS[how]:
        assert re.search(line.format(where), done.stderr), done.stderr
    assert set(re.findall(BLAMED, done.stderr)) <= {str(where)}, done.stderr


@pytest.mark.parametrize("how, where", [("none", 0), ("no-mpi", 2)])
def test_nothing_is_said_without_faults_and_who_does_not_come_to_mpi_is_known_by_the_others(how, where):
    done = mpiexec(4, PROGRAMS / "faults.py", how, where)
    if how == "none":
        assert (done.returncode, done.stderr) == (0, "")
        return
    said = re.findall(r"rank (\d) .* \(SIGALRM\), because it has waited for all others to begin with MPI", done.stderr)
    assert done.returncode != 0 and said and set(said) <= set("013"), done.stderr
