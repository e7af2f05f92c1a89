"""Collectives across processes: by threads that stand in for them, and by MPI's where mpi4py is installed."""

import json
import os
import re
import subprocess
import sys
import time

import numpy as np
import pytest
from conftest import sampled
from exchanges_in_threads import Processes
from mpiexec import mpiexec

import d2lmgpu as d2l
from d2lmgpu.cluster import launch
from d2lmgpu.cluster.watchdog import LAUNCHERS
from d2lmgpu.collectives import ALGORITHMS, Transfer, execute

pytestmark = pytest.mark.threads

SUMMING = sorted(set(ALGORITHMS) - {"none"})
SPLITS = [
    (1,),
    (2,),
    (1, 1),
    (3,),
    (1, 1, 1),
    (2, 1),
    (2, 2),
    (1, 1, 1, 1),
    (1, 3, 1),
    (2, 2, 2),
    (3, 3),
    (4, 4),
    (1,) * 8,
]
"""How many devices each process has."""


def here(values, schedule):
    """What the devices of one process make of it."""
    data = [d2l.put(value, d2l.cpu(i)) for i, value in enumerate(values)]
    execute(schedule, data)
    return [d2l.to_host(array) for array in data]


@pytest.mark.parametrize("eager", [True, False])
@pytest.mark.parametrize("algorithm", SUMMING)
def test_processes_have_the_bits_of_one(algorithm, eager, rng):
    for split in SPLITS:
        k = sum(split)
        for n, dtype in ((0, np.float32), (1, np.float64), (7, np.float32), (1000, np.float64), (2003, np.float16)):
            values = rng.normal(size=(k, n)).astype(dtype)
            schedule = ALGORITHMS[algorithm](k, n)
            found = Processes(schedule, split, values, eager=eager).start().join()
            for array, expected in zip(found, here(values, schedule), strict=True):
                assert array.tobytes() == expected.tobytes(), (split, n)


@pytest.mark.parametrize("eager", [True, False])
def test_any_schedule(eager, rng):
    """Steps in which many overwrite what many read."""
    for split in ((1, 1), (2, 1), (1, 1, 1), (2, 2), (1, 3, 1)):
        k = sum(split)
        for _ in range(5):
            schedule = [[random_transfer(rng, k) for _ in range(rng.integers(0, 3 * k))] for _ in range(6)]
            values = rng.integers(-9, 10, (k, 23)).astype(float)
            found = Processes(schedule, split, values, eager=eager).start().join()
            for array, expected in zip(found, here(values, schedule), strict=True):
                np.testing.assert_array_equal(array, expected)


def random_transfer(rng, k):
    source, destination = rng.choice(k, 2, replace=False)
    start, stop = sorted(rng.integers(0, 24, 2))
    return Transfer(int(source), int(destination), int(start), int(stop), str(rng.choice(["add", "copy"])))


def until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.0002)


def test_one_process_is_a_cluster():
    alone = d2l.cluster(2)
    assert list(alone) == alone.mine == [d2l.cpu(0), d2l.cpu(1)] and len(alone) == 2
    assert (alone.rank, alone.size, alone.owners) == (0, 1, (0, 0))
    assert repr(alone).startswith("<cluster of 1: cpu(0) of rank 0 (")
    data = [d2l.put(np.arange(3.0) * (i + 1), device) for i, device in enumerate(alone)]
    d2l.allreduce(data, alone.across("ring"))
    assert [d2l.to_host(array).tolist() for array in data] == [[0, 3, 6]] * 2


def test_wrong_clusters():
    with pytest.raises(ValueError, match="patience is 0; it should be a finite number, above 0"):
        d2l.cluster(patience=0)
    with pytest.raises(ValueError, match="names a device twice"):
        d2l.cluster([d2l.cpu(0), d2l.cpu(0)])
    with pytest.raises(ValueError, match="did you mean ring"):
        d2l.cluster().across("rink")
    with pytest.raises(d2l.DeviceError, match="'mpi' needs several processes with devices: use mpiexec"):
        d2l.cluster().across("mpi")


@pytest.mark.parametrize("name", LAUNCHERS)
def test_several_processes_without_mpi4py(monkeypatch, name):
    for other in LAUNCHERS:
        monkeypatch.delenv(other, raising=False)
    monkeypatch.delenv(LAUNCHERS[name], raising=False)
    monkeypatch.setenv(name, "3")
    assert launch.started_together() == (1, None)  # no launcher's: it tells each process its number, too
    monkeypatch.setenv(LAUNCHERS[name], "2")
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)
    with pytest.raises(d2l.DeviceError, match=rf"3 processes were started together \({name}\).*\[cluster\]"):
        launch.find_world(1.0)


# With MPI:


@pytest.mark.parametrize("size, rank", [("WORLD_SIZE", "RANK"), ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID")])
def test_who_was_started_by_something_other_than_mpi_does_not_train_alone(size, rank):
    """As by torchrun, or by srun without MPI: each process would train a network of its own."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    own = {name: value for name, value in os.environ.items() if name not in {*LAUNCHERS, *LAUNCHERS.values()}}
    words = ["train", "--environment", "parallel", "--limit", "20", "--batch-size", "20", "--epochs", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "d2lmgpu", *words], env=own | {size: "2", rank: "1"}, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    wanted = rf"d2lmgpu train: error: .*2 processes were started together \({size}\), but each finds itself alone; .*\n"
    assert re.fullmatch(wanted, done.stderr), done.stderr


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
        mine = [d2l.put(values[cluster.first + i], device) for i, device in enumerate(cluster.mine)]
        for _ in range(2):
            copies = [d2l.put(array, array.device) for array in mine]
            with d2l.record_transfers() as transfers:
                d2l.allreduce(copies, cluster.across(algorithm))
            if n and algorithm not in ("mpi", "none"):
                assert all(t.seconds is not None for t in transfers) and (transfers or k == 1)
            for copy in copies:
                found, expected = d2l.to_host(copy), d2l.to_host(one[0])
                if algorithm == "mpi":
                    wrong += not np.allclose(found, expected, atol=1e-4)
                else:
                    wrong += found.tobytes() != expected.tobytes()
print(f"{wrong} wrong")
"""


CLUSTERS = """
import sys
import numpy as np
import d2lmgpu as d2l

{begin}
def total(cluster, value):
    data = [d2l.put(np.full(5, value), device) for device in cluster.mine]
    d2l.allreduce(data, cluster.across("ring"))
    return d2l.to_host(data[0])[0]

first = d2l.cluster({first})
{middle}
second = d2l.cluster(1, patience={patience})
assert second is d2l.cluster(1, patience={patience})
print(f"found {{len(first)}} {{len(second)}} {{total(second, 2.0)}}")
"""


def test_processes_that_had_different_numbers_of_devices_have_one_cluster():
    """One has a cluster of what it asks for already, the other has not. The program's own messages stay its own."""
    begin = """
from mpi4py import MPI
world = MPI.COMM_WORLD
sent = [world.isend(tag, 1 - world.rank, tag) for tag in range(100)]
"""
    middle = "assert [world.recv(tag=tag) for tag in range(100)] == list(range(100)); MPI.Request.waitall(sent)"
    first = "2 if world.rank == 0 else 1, patience=60"
    done = mpiexec(2, "-c", CLUSTERS.format(begin=begin, first=first, middle=middle, patience=60))
    assert (done.returncode, re.findall(r"found \d \d \d\.0", done.stdout)) == (0, ["found 3 2 4.0"] * 2), done


@pytest.mark.long
def test_the_command_measures_across_processes(tmp_path):
    program = "import sys; from d2lmgpu.cli import main; sys.exit(main())"
    file = tmp_path / "rows.json"
    words = ["allreduce", "--devices", "2", "--sizes", "4,4K", "--algorithms", "ring,naive,mpi,none", "--json", file]
    done = mpiexec(2, "-c", program, *words)
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


@pytest.mark.parametrize(
    "count, devices",
    [(2, 1), *sampled([(1, 3), (2, 2), (2, 3), (2, 4), (3, 1), (3, 2), (4, 1), (4, 2), (5, 1)], 3)],
)
def test_mpi_has_the_bits_of_one_process(count, devices):
    algorithms = [*SUMMING, "mpi"] if count > 1 else SUMMING
    done = mpiexec(count, "-c", SHARES, devices, ",".join(algorithms))
    assert done.returncode == 0, done.stderr
    assert re.findall(r"\d+ wrong", done.stdout) == ["0 wrong"] * count
