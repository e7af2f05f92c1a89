"""Processes that do not run the same program on the same data say so, all of them, and in what they differ."""

import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from mpi_in_threads import comms

import d2lmgpu as d2l
from d2lmgpu.cluster import check_same_on_all_ranks, checksum_of_code, rendezvous
from d2lmgpu.cluster.communicator import most_tags
from d2lmgpu.plans import PLANS
from d2lmgpu.plans.execution.across import AcrossProcesses

pytestmark = pytest.mark.threads


def answers(*whats, times=1, ask=lambda comm, what: check_same_on_all_ranks(comm, what, 20)):
    """What each rank is told: an error's text, or None."""
    found = [None] * len(whats)

    def run(comm):
        try:
            for _ in range(times):
                ask(comm, whats[comm.rank])
        except ValueError as error:
            found[comm.rank] = str(error)

    threads = [threading.Thread(target=run, args=(comm,), daemon=True) for comm in comms(len(whats))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return found


def test_who_has_the_same_agrees():
    for k in (2, 3, 5):
        whats = [{"lr": [0.1, np.float64(0.1)][i % 2], "network": "lenet", "shards": [1, 2]} for i in range(k)]
        assert answers(*whats, times=3) == [None] * k


def test_plans_that_differ():
    """Also in what they begin with; functions in a network of one's own are not compared, since they have no text."""

    def check(comm, made):
        progress = SimpleNamespace(error=None, comm=comm)
        everybody = SimpleNamespace(world=comm, patience=20, owners=(0, 1), progress=progress)
        AcrossProcesses(made[0], everybody, [], made[1])

    plan, params = PLANS["layers"](2, 2), d2l.init_params(0)
    assert answers((plan, params), (PLANS["layers"](2, 2), d2l.init_params(0)), ask=check) == [None] * 2
    for other, what in ((PLANS["layers"](2, 3), params), "the plan's"), ((plan, d2l.init_params(1)), "the parameters'"):
        told = answers((plan, params), other, ask=check)
        assert len({*told}) == 1 and told[0].startswith(f"the processes differ: {what}") and "on rank 1, but" in told[0]


def test_all_are_told_who_differs_and_in_what():
    for odd in range(4):
        told = answers(*({"lr": 0.2 if rank == odd else 0.1, "batch_size": 256} for rank in range(4)))
        one, other, third = (rank for rank in range(4) if rank != odd)
        usual = f"ranks {one}, {other} and {third}"
        assert told == [f"the processes differ: lr is 0.2 on rank {odd}, but 0.1 on {usual}"] * 4
    told = answers({"data": "a" * 500, "seed": 1}, {"data": "a" * 499 + "b", "seed": 1}, {"data": "a" * 500})
    assert len(set(told)) == 1
    data, seed = told[0].removeprefix("the processes differ: ").split("; ")
    assert data.startswith("data is 'aaa") and "ab' on rank 1, but 'aaa" in data and data.endswith("on ranks 0 and 2")
    assert seed == "seed is not given on rank 2, but 1 on ranks 0 and 1"
    assert answers({"seed": 1}, {"seed": 2}) == ["the processes differ: seed is 2 on rank 1, but 1 on rank 0"] * 2


def test_a_process_that_does_not_take_a_message_is_named(monkeypatch):
    monkeypatch.setattr(rendezvous, "end", lambda comm, text: sys.exit(text))
    first, second = comms(2)
    second.isend("here", 0, most_tags(second))
    first.isend = lambda *message: SimpleNamespace(Test=lambda: False)
    with pytest.raises(SystemExit, match=r"^rank 1 did not join rank 0 at d2l.cluster\(\) within 0.05 s; the job ends"):
        rendezvous.rendezvous(first, "here", 0.05)


def test_the_checksum_of_the_code_is_of_all_its_files(tmp_path, monkeypatch):
    package = tmp_path / "d2lmgpu"
    (package / "cluster").mkdir(parents=True)
    monkeypatch.setattr(rendezvous, "__file__", str(package / "cluster" / "rendezvous.py"))
    found = set()
    for name, text in (("a.py", "x = 1"), ("a.py", "x = 2"), ("cluster/b.py", ""), ("notes.txt", "other")):
        (package / name).write_text(text)
        found.add(checksum_of_code.__wrapped__())
    assert len(found) == 3
