"""Collectives across processes, by threads that stand in for them; what a cluster is; who is no cluster."""

import os
import re
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from at_random import at_random
from exchanges_in_threads import Processes
from hypothesis import strategies as st
from schedules import SUMMING, any_steps

import d2lmgpu as d2l
from d2lmgpu.cluster import launch, watchdog as ending, watchdog as watch
from d2lmgpu.cluster.communicator import Waiting
from d2lmgpu.cluster.watchdog import LAUNCHERS
from d2lmgpu.collectives import ALGORITHMS, execute

pytestmark = pytest.mark.threads


def here(values, schedule):
    """What the devices of one process make of it."""
    data = [d2l.put(value, d2l.cpu(i)) for i, value in enumerate(values)]
    execute(schedule, data)
    return [d2l.to_host(array) for array in data]


@at_random(200, st.data(), nights=8)
def test_processes_have_the_bits_of_one(data):
    """Of any schedule; some processes have more devices than others."""
    split, eager = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=5)), data.draw(st.booleans())
    k, n = sum(split), data.draw(st.sampled_from([0, 1, 7, 23, 1000, 2003]))
    known = st.sampled_from(SUMMING).map(lambda name: ALGORITHMS[name](k, n))
    schedule = data.draw(known if k == 1 else st.one_of(known, known, any_steps(k, n)))
    dtype = data.draw(st.sampled_from([np.float16, np.float32, np.float64]))
    values = np.random.default_rng(k).normal(size=(k, n)).astype(dtype)
    found = Processes(schedule, split, values, eager=eager).start().join()
    assert [array.tobytes() for array in found] == [array.tobytes() for array in here(values, schedule)]


def test_one_process_is_a_cluster():
    alone = d2l.cluster(2)
    assert list(alone) == alone.mine == [d2l.cpu(0), d2l.cpu(1)] and len(alone) == 2
    assert (alone.rank, alone.size, alone.owners) == (0, 1, (0, 0))
    assert repr(alone).startswith("<cluster of 1: cpu(0) of rank 0 (")
    data = [d2l.put(np.arange(3.0) * (i + 1), device) for i, device in enumerate(alone)]
    d2l.allreduce(data, alone.across("ring"))
    assert [d2l.to_host(array).tolist() for array in data] == [[0, 3, 6]] * 2


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


@pytest.mark.long
@pytest.mark.parametrize("size, rank", [("WORLD_SIZE", "RANK"), ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID")])
def test_who_was_started_by_something_other_than_mpi_does_not_train_alone(size, rank):
    """As by torchrun, or by srun without MPI: each process would train a network of its own."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    own = {name: value for name, value in os.environ.items() if name not in {*LAUNCHERS, *LAUNCHERS.values()}}
    command = [sys.executable, "-m", "d2lmgpu", "train", "--environment", "parallel", "--limit", "20", "--epochs", "1"]
    done = subprocess.run(command, env=own | {size: "2", rank: "1"}, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    wanted = rf"d2lmgpu train: error: .*2 processes were started together \({size}\), but each finds itself alone; .*\n"
    assert re.fullmatch(wanted, done.stderr), done.stderr


# The watch, which ends a job in which somebody waits for too long:


class Watched:
    """A watch of rank 0 of two, whose process waits since ``since`` in ``what``; ``ended`` has what ended the job."""

    def __init__(self, monkeypatch, what, since, patience, left=True):
        self.ended, self.reported = [], []
        monkeypatch.setattr(ending, "end", lambda comm, text: self.ended.append(text) or self.watch._over.set())
        monkeypatch.setattr(watch, "report_failure", self.reported.append)
        comm = SimpleNamespace(rank=0, size=2, Ibarrier=lambda: SimpleNamespace(Test=lambda: self.left))
        self.watch, self.left = watch.Watch(comm, ["a", "b"], patience), left
        self.watch.begin([SimpleNamespace(waits=[Waiting(since, what)] if what else [])])


def test_a_job_that_continues_after_it_was_stopped_does_not_hang(monkeypatch):
    watched = Watched(monkeypatch, lambda: ("waits", 1), time.monotonic() - 600, 10)
    time.sleep(1)
    assert not watched.ended
    watched.watch._over.set()


def test_all_that_a_process_waits_for_is_told(monkeypatch):
    now = time.monotonic()
    watched = Watched(monkeypatch, lambda: ("cpu(1) waits for rank 0", 0), now - 2, 600)
    longer = Waiting(now - 4, lambda: ("cpu(0) waits for rank 1", 1))
    watched.watch.communicators.append(SimpleNamespace(waits=[longer]))
    watched.watch._over.set()
    told = watched.watch.explain(watched.watch.waits())
    heard = r"last heard from 0\.\d s ago"
    said = rf"cpu\(0\) waits for rank 1, {heard}; cpu\(1\) waits for rank 0, {heard}"
    assert re.fullmatch(rf"after 4\.\d s of waiting the job ends: {said}", told)


def test_who_is_at_its_end_says_so_once_and_waits(monkeypatch):
    watched = Watched(monkeypatch, None, 0, 0.1, left=False)
    thread = threading.Thread(target=watched.watch.leave, daemon=True)
    thread.start()
    end = time.monotonic() + 30
    while not watched.reported:
        assert time.monotonic() < end
        time.sleep(0.01)
    time.sleep(0.3)
    assert thread.is_alive() and not watched.ended
    watched.left = True
    thread.join(30)
    assert not thread.is_alive()
    assert watched.reported == ["rank 0 (a) is at the end of its program, and waits for the others"]
