"""What goes wrong with one of several processes is said in the job's output, with the right rank, and all end."""

import random
import re
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import kills
import pytest
from conftest import few, sampled
from mpi_in_threads import comms
from mpiexec import mpiexec

from d2lmgpu.cluster import ending, watch
from d2lmgpu.cluster.communicator import Waiting
from d2lmgpu.cluster.watch import Watch

pytestmark = pytest.mark.threads

FAULTS = {
    "kill": [r"rank {} \(\S+\) was killed by signal 9 \(SIGKILL\); the job ends"],
    "any-kill": [r"rank {} \(\S+\) was killed by signal 9 \(SIGKILL\); the job ends"],
    "crash": [r"rank {} \(\S+\) was killed by signal 11 \(SIGSEGV\); the job ends"],
    "stop": [
        r"rank {} \(\S+\) is stopped, by signal \d+ \(SIGSTOP\), for \S+ s",
        r"rank {} \(\S+\), last heard from \S+ s ago, does not answer",
    ],
    "any-stop": [r"rank {} \(\S+\) is stopped, by signal \d+ \(SIGSTOP\), for \S+ s"],
    "last-stop": [r"rank {} \(\S+\) is stopped, by signal \d+ \(SIGSTOP\), for \S+ s"],
    "hold": [r"rank {} \(\S+\), last heard from \S+ s ago, does not answer"],
    "last-hold": [
        r"is at the end of its program and waits for rank {} \(\S+\), which does not answer, last heard from "
    ],
    "sleep": [
        r"rank {} \(\S+\), last heard from \S+ s ago, answers, .*: its program is at line \d+ of \S+, in go_wrong"
    ],
    "exit": [r"rank {} \(\S+\), last heard from \S+ s ago, answers, .*: its program has come to its end"],
    "leave": [r"rank {} \(\S+\) ended with exit code 0 before the others; the job ends"],
    "raise": [r"rank {} \(\S+\) failed: KeyError: 'bad luck'; the job ends"],
    "other-code": [r"the processes differ: the code of d2lmgpu is 'another version' on rank {}, but '\w+' on ranks "],
    "other-seed": [r"failed: ValueError: the processes differ: seed is 3 on rank {}, but 2 on ranks \d, \d and \d; "],
    "absent": [r"rank {} did not join rank \d at d2l.cluster\(\) within 3 s; the job ends"],
    "plan-kill": [r"rank {} \(\S+\) was killed by signal 9 \(SIGKILL\); the job ends"],
    "plan-stop": [r"rank {} \(\S+\) is stopped, by signal \d+ \(SIGSTOP\), for \S+ s"],
    "plan-raise": [r"rank {} \(\S+\) failed: KeyError: 'bad luck'; the job ends"],
    "plan-hold": [
        r"waits in training step 3 of plan 1f1b, device \d, step \d+ \(receive of \w+ of stage \d, micro-batch \d, "
        r"from device {0}\), for cpu\(0\) of rank {0} \(\S+\) to send it, last heard from \S+ s ago",
        r"rank {} \(\S+\), last heard from \S+ s ago, does not answer",
    ],
    "plan-sleep": [
        r"the job ends: cpu\(0\) of rank \d \(\S+\) waits in training step 3 of plan 1f1b, device \d, step \d+ ",
        r"rank {} \(\S+\), last heard from \S+ s ago, answers, but does not take part",
    ],
}
"""By the names of tests/faults.py: what is said of the rank that has one."""

BLAMED = (
    r"rank (\d) (?:did not join|\(\S+\) (?:was killed|is stopped|ended with)|"
    r"\(\S+\), (?:which does not|last heard from))"
)


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
    said = re.findall(r"rank (\d) \(\S+\) waited \d+ s for all others to begin with MPI", done.stderr)
    assert said and set(said) <= set("013"), done.stderr


@pytest.mark.long
def test_nothing_is_said_of_a_job_without_faults():
    done = mpiexec(4, Path(__file__).with_name("faults.py"), "none", 0)
    assert (done.returncode, done.stderr) == (0, "")


class Watches:
    """Of so many ranks, in threads. What ends the job is kept in ``said``, with the rank that said it."""

    def __init__(self, count, monkeypatch, patience=0.3):
        self.said, self.over = [], threading.Event()
        self.comms = comms(count)
        self.watches = [Watch(comm, [f"host{i}" for i in range(count)], patience) for comm in self.comms]
        monkeypatch.setattr(watch, "end", lambda comm, lines, code=1, silent=False: self._end(comm.rank, lines))
        monkeypatch.setattr(watch, "last_words", lambda lines: self.said.append((None, lines)) if lines else None)
        monkeypatch.setattr(watch.os, "_exit", lambda code: self._end("exit", code))

    def _end(self, *said):
        self.said.append(said)
        self.over.wait(30)

    def begin(self, rank, waits_for=None):
        """``waits_for``: the rank for which this one has begun to wait in an exchange."""
        waiting = Waiting(time.monotonic(), (1, rank), lambda: (f"rank {rank} waits for rank {waits_for}", waits_for))
        self.watches[rank].begin([SimpleNamespace(waiting=None if waits_for is None else waiting)])

    def leave(self, rank):
        thread = threading.Thread(target=self.watches[rank].leave, daemon=True)
        thread.start()
        return thread

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for each in self.watches:
            each._left.update(range(len(self.comms)))
            each._gone.set()
        self.over.set()
        names = [thread for thread in threading.enumerate() if thread.name == "d2lmgpu cluster watch"]
        for thread in names:
            thread.join(30)


def until(condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_who_is_at_its_end_notices_one_that_does_not_answer(monkeypatch):
    with Watches(3, monkeypatch) as watches:
        for rank in (1, 2):
            watches.begin(rank)
            watches.leave(rank)
        until(lambda: watches.said)
    rank, (line,) = watches.said[0]
    wanted = r"rank 1 \(host1\) is at the end of its program and waits for rank 0 \(host0\), which does not answer, "
    assert rank == 1 and re.match(wanted, line)


def test_only_its_own_thread_sends_what_a_watch_says(monkeypatch):
    """So nothing else changes the list of what is on its way."""
    senders = set()
    with Watches(2, monkeypatch, patience=30) as watches:
        for comm in watches.comms:
            send = comm.isend
            comm.isend = lambda *message, send=send: senders.add(threading.current_thread().name) or send(*message)
        for rank in range(2):
            watches.begin(rank)
        for thread in [watches.leave(rank) for rank in range(2)]:
            thread.join(30)
            assert not thread.is_alive()
    assert senders == {"d2lmgpu cluster watch"}


@pytest.mark.timing
def test_who_is_at_its_end_waits_for_one_that_answers(monkeypatch):
    with Watches(3, monkeypatch) as watches:
        for rank in range(3):
            watches.begin(rank)
        threads = [watches.leave(0), watches.leave(2)]
        until(lambda: watches.said)
        time.sleep(0.5)
        assert all(thread.is_alive() for thread in threads)
        threads.append(watches.leave(1))
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
    ((rank, (line,)),) = watches.said
    wanted = r"rank 0 \(host0\) is at the end of its program and waits for rank 1 \(host1\): its program is at line "
    assert rank is None and re.match(wanted, line)


@pytest.mark.timing
def test_who_is_slow_to_answer_is_not_taken_for_the_one_that_is_frozen(monkeypatch):
    """Rank 0 waits for rank 2, which sends something, but its answer late: that it waits itself, for rank 1."""
    with Watches(3, monkeypatch) as watches:
        watches.begin(0, waits_for=2)
        until(lambda: watches.comms[2].iprobe(0, watch.ASK))
        watches.comms[2].isend(None, 0, watch.ASK)
        time.sleep(0.8)
        assert not watches.said
        watches.begin(2, waits_for=1)
        until(lambda: watches.said)
    _, (first, second, *others) = watches.said[0]
    assert re.fullmatch(
        r"after \S+ s of waiting the job ends: rank 2 waits for rank 1, last heard from \S+ s ago", first
    )
    assert re.fullmatch(r"rank 1 \(host1\), last heard from \S+ s ago, does not answer", second)
    assert others == ["rank 0 waits for rank 2"]


def test_a_watch_that_mpi_holds_ends_its_process(monkeypatch):
    monkeypatch.setattr(watch, "GRACE", 0.2)
    with Watches(2, monkeypatch) as watches:
        watches.comms[0].iprobe = lambda rank, tag: watches.over.wait(30) and False
        watches.begin(0)
        until(lambda: len(watches.said) == 2)
    (_, (line,)), ended = watches.said
    assert line.startswith("rank 0 (host0): MPI keeps its watch from asking the others; its program is at line ")
    assert ended == ("exit", 1)


class Refuses(ValueError):
    def __str__(self):
        raise KeyError


@pytest.mark.parametrize(
    "error, said",
    [
        (MemoryError(), "MemoryError"),
        (MemoryError("no 3 GB\nto be had"), "no 3 GB to be had"),
        (Refuses(), "(its message cannot be read)"),
    ],
)
def test_an_error_without_a_message_is_told_by_its_kind(error, said, monkeypatch):
    """Of the rank that trains, and of one whose program ends by it; both in one line."""
    lines = []
    monkeypatch.setattr(ending, "end", lambda comm, more, code=1: lines.append(more) or sys.exit(code))
    monkeypatch.setattr(ending, "FAIRNESS", 0.0)
    monkeypatch.setattr(ending, "_watch", None)
    monkeypatch.setattr(ending.atexit, "register", lambda leave: None)
    monkeypatch.setattr(sys, "excepthook", lambda *error: None)
    comm = SimpleNamespace(rank=1, Ibarrier=lambda: SimpleNamespace(Test=lambda: False))
    with pytest.raises(SystemExit):
        ending.unless_all_failed(comm, "vm", error)
    ending.end_together(comm, SimpleNamespace(leave=None), "vm")
    with pytest.raises(SystemExit):
        sys.excepthook(type(error), error, None)
    kind = "" if said == "MemoryError" else f"{type(error).__name__}: "
    assert lines == [[f"rank 1 (vm) failed: {said}; the job ends"], [f"rank 1 (vm) failed: {kind}{said}; the job ends"]]


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


@pytest.mark.parametrize("split", sampled(["data", "layers", "zero3"], 3))  # with several micro-batches layers are 1f1b
def test_killed_and_stopped_at_random_moments(tmp_path, split):
    """What goes on afterwards ends with the bits of an undisturbed run. `python tests/kills.py` does it 20 times."""
    words = () if split == "data" else ("--split", split, "--micro-batches", "3")
    jobs, chance = kills.Killed(tmp_path, 4, words), random.Random(3)
    for _ in range(2):
        print(jobs.once(chance))


def test_all_others_are_told_that_the_job_is_over():
    told, done = [], SimpleNamespace(Test=lambda: True)
    comm = SimpleNamespace(rank=1, size=4, isend=lambda *message: told.append(message) or done)
    Watch(comm, ["host"] * 4, 1.0).tell_over(("how",))
    assert told == [(("how",), rank, watch.OVER) for rank in (0, 2, 3)]
