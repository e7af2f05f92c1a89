"""What goes wrong with one of several processes is said in the job's output, with the right rank, and all end."""

import re
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import few, sampled
from mpiexec import mpiexec

from d2lmgpu.cluster import watchdog as ending
from d2lmgpu.cluster.communicator import Waiting
from d2lmgpu.cluster.watchdog import Watch
from d2lmgpu.exercises.spies import watch

pytestmark = pytest.mark.threads

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


@pytest.mark.parametrize("how", few(FAULTS, "kill", parts=3))
def test_a_fault_is_told_and_ends_the_job(how):
    where = list(FAULTS).index(how) % 4
    done = mpiexec(4, Path(__file__).with_name("faults.py"), how, where)
    assert done.returncode != 0
    for line in FAULTS[how]:
        assert re.search(line.format(where), done.stderr), done.stderr
    assert set(re.findall(BLAMED, done.stderr)) <= {str(where)}, done.stderr


@pytest.mark.long
def test_who_does_not_come_to_mpi_is_known_by_the_others():
    done = mpiexec(4, Path(__file__).with_name("faults.py"), "no-mpi", 2)
    assert done.returncode != 0
    said = re.findall(r"rank (\d) .* \(SIGALRM\), because it has waited for all others to begin with MPI", done.stderr)
    assert said and set(said) <= set("013"), done.stderr


@pytest.mark.long
def test_nothing_is_said_of_a_job_without_faults():
    done = mpiexec(4, Path(__file__).with_name("faults.py"), "none", 0)
    assert (done.returncode, done.stderr) == (0, "")


class Watched:
    """A watch of rank 0 of two, whose process waits since ``since`` in ``what``; ``ended`` has what ended the job."""

    def __init__(self, monkeypatch, what, since, patience, left=True):
        self.ended, self.reported = [], []
        monkeypatch.setattr(ending, "end", lambda comm, text: self.ended.append(text) or self.watch._over.set())
        monkeypatch.setattr(watch, "report", self.reported.append)
        comm = SimpleNamespace(rank=0, size=2, Ibarrier=lambda: SimpleNamespace(Test=lambda: self.left))
        self.watch, self.left = Watch(comm, ["a", "b"], patience), left
        self.watch.begin([SimpleNamespace(waits=[Waiting(since, what)] if what else [])])


def until(condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_job_that_continues_after_it_was_stopped_does_not_hang(monkeypatch):
    watched = Watched(monkeypatch, lambda: ("waits", 1), time.monotonic() - 600, 10)
    time.sleep(1)
    assert not watched.ended
    watched.watch._over.set()


def test_all_that_a_process_waits_for_is_told(monkeypatch):
    now = time.monotonic()
    watched = Watched(monkeypatch, lambda: ("cpu(1) waits for rank 0", 0), now - 2, 600)
    watched.watch.communicators.append(
        SimpleNamespace(waits=[Waiting(now - 4, lambda: ("cpu(0) waits for rank 1", 1))])
    )
    watched.watch._over.set()
    said = watched.watch.explain(watched.watch.waits())
    assert re.fullmatch(
        r"after 4\.\d s of waiting the job ends: cpu\(0\) waits for rank 1, last heard from 0\.\d s ago; "
        r"cpu\(1\) waits for rank 0, last heard from 0\.\d s ago",
        said,
    )


def test_who_is_at_its_end_says_so_once_and_waits(monkeypatch):
    watched = Watched(monkeypatch, None, 0, 0.1, left=False)
    thread = threading.Thread(target=watched.watch.leave, daemon=True)
    thread.start()
    until(lambda: watched.reported)
    time.sleep(0.3)
    assert thread.is_alive() and not watched.ended
    watched.left = True
    thread.join(30)
    assert not thread.is_alive()
    assert watched.reported == ["rank 0 (a) is at the end of its program, and waits for the others"]


DIFFERENT = {
    "seed": (["--seed", 5], r"seed is 5 on rank {}, but 0 on ranks "),
    "rate": (["--lr", 0.5], r"lr is 0.5 on rank {}, but 0.05 on ranks "),
    "data": (["--limit", 399], r"the checksum of the training set is '\w+' on rank {}, but '\w+' on ranks "),
    "checks": (["--check-every", 3], r"check_every is 3 on rank {}, but 0 on ranks "),
    "network": (["--network", "lenet-bn"], r"network is 'lenet-bn' on rank {}, but 'lenet' on ranks "),
}
"""Options that one rank has; what is said."""


@pytest.mark.parametrize("what", sampled(DIFFERENT, 2))
def test_a_rank_that_trains_something_else_is_named(what):
    words, said = DIFFERENT[what]
    where = list(DIFFERENT).index(what) % 4
    done = mpiexec(4, Path(__file__).with_name("faults_in_training.py"), "other", where, 0, *words)
    assert done.returncode == 2, done
    assert len(re.findall(said.format(where), done.stderr)) == 1, done.stderr
