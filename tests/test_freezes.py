"""Each rank frozen before each instruction in each schedule: the report names the message that is missing first.

Processes are threads here, whose watches have the patience of a second or two, or processes of MPI that are stopped.
"""

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from conftest import sampled
from exchanges_in_threads import Processes
from freezes import CASES, K, N
from mpiexec import mpiexec

from d2lmgpu.cluster import communicator, exchange, watch
from d2lmgpu.collectives import ALGORITHMS

pytestmark = pytest.mark.threads

TOGETHER = 6
"""Cases at a time: they only wait."""

GROUPS = [CASES[i::120] for i in range(120)]
"""Of several algorithms each."""


@pytest.fixture
def said(monkeypatch):
    """What ends each case, by its communicators' mail: reports, and an event that ends them."""
    found = {}

    def end(comm, lines, code=1, silent=False):
        reports, over = found[id(comm.mail)]
        reports.append((comm.rank, lines, silent))
        over.wait(60)

    monkeypatch.setattr(watch, "end", end)
    monkeypatch.setattr(communicator, "LONGEST_SLEEP", 0.02)
    monkeypatch.setattr(exchange, "PIECE", 4 * N)  # or hundreds of devices keep large buffers
    return found


def frozen(case, said, patience=2.0):
    """The reports of a case: who said what."""
    values = np.random.default_rng(case.instruction).normal(size=(K, N)).astype(np.float32)
    schedule, where = ALGORITHMS[case.algorithm](K, N), (case.frozen, case.instruction)
    first = K * (CASES.index(case) + 1)  # other cases have other devices, with their buffers
    processes = Processes(schedule, (1,) * K, values, case.algorithm, freeze=where, first=first)
    reports, over = said[id(processes.watch_comms[0].mail)] = [], threading.Event()
    for each in processes.watches:
        each.patience, each.early = patience, patience / 4
    try:
        processes.start()
        assert processes.frozen.wait(60)
        others = [rank for rank in range(K) if rank != case.frozen]
        end = time.monotonic() + 60
        while not all(
            processes.communicators[rank].waiting or not processes.threads[rank].is_alive() for rank in others
        ):
            assert time.monotonic() < end
            time.sleep(0.01)  # a patience so short begins when all have had a core
        for rank in others:
            processes.watches[rank].begin([processes.communicators[rank]])
        while not reports and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(1.5)  # whether another rank says something, too
        return list(reports)
    finally:
        for each in processes.watches:
            each._left.update(range(K))
            each._gone.set()
        over.set()
        processes.thaw.set()
        for array in processes.join():
            np.testing.assert_allclose(array, values.sum(axis=0), rtol=1e-5, atol=1e-5)


def wrong(case, said):
    """What is wrong with the reports of a case; None if nothing is."""
    reports = frozen(case, said)
    if len(reports) != 1:
        return f"{case}: {len(reports)} reports: {reports}"
    ((rank, lines, silent),) = reports
    first, second, *others = lines
    culprit = rf"rank {case.frozen} \(host{case.frozen}\), last heard from \S+ s ago, does not answer"
    wanted = rf"after \S+ s of waiting the job ends: {case.missing.replace('cpu(0)', 'cpu(.)')}heard from \S+ s ago"
    wanted = re.sub(r"cpu\\\(0\\\)", r"cpu\\(\\d\\)", wanted)  # each thread has another of one process's devices
    right = re.fullmatch(wanted, first) and re.fullmatch(culprit, second) and silent
    right = (
        right and len(others) <= K - 2 and not any(f"rank {case.frozen} (host{case.frozen}) waits" in o for o in others)
    )
    return None if right else f"{case}: {lines}"


@pytest.mark.parametrize("group", sampled(GROUPS, 24), ids=lambda group: str(group[0]))
def test_the_report_names_what_is_missing_first(group, said):
    with ThreadPoolExecutor(TOGETHER) as pool:
        found = list(pool.map(lambda case: wrong(case, said), group))
    assert found == [None] * len(group)


@pytest.mark.parametrize("case", sampled(CASES, 150), ids=str)
def test_the_report_under_mpiexec(case):
    done = mpiexec(K, Path(__file__).with_name("freezes.py"), case.algorithm, case.frozen, case.instruction)
    assert done.returncode != 0
    (first,) = [line for line in done.stderr.splitlines() if "of waiting the job ends" in line]
    assert re.search(case.missing, first), (case, done.stderr)
    assert re.search(rf"rank {case.frozen} \(\S+\) is stopped, by signal \d+ \(SIGSTOP\)", done.stderr), done.stderr


def test_all_steps_of_all_schedules_are_there():
    """With which every rank of four lacks nothing of those that stand still later."""
    assert {case.algorithm for case in CASES} == set(ALGORITHMS) - {"none"}
    for algorithm in set(ALGORITHMS) - {"none"}:
        of_it = [case for case in CASES if case.algorithm == algorithm]
        steps = {int(re.search(r"step (\d+) of", case.missing)[1]) for case in of_it}
        senders = {t.source for step in ALGORITHMS[algorithm](K, N) for t in step if t.size}
        assert steps == set(range(1, len(ALGORITHMS[algorithm](K, N)) + 1))
        assert {case.frozen for case in of_it} == senders
