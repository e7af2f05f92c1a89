"""Plans across processes, which are threads here: what one process with all devices computes, bit for bit."""

import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from clusters_in_threads import ThreadsCluster, in_each
from mpi_in_threads import comms
from one_device import PLAIN, examples, first_params
from training_runs import cpus

import d2lmgpu as d2l
from d2lmgpu.cluster import communicator, exchange as part, members
from d2lmgpu.cluster.communicator import Communicator, ProgressThread
from d2lmgpu.cluster.watchdog import Watch
from d2lmgpu.devices import Task
from d2lmgpu.plans import PLANS, Execution, copies_of, execute, prove
from d2lmgpu.plans.execution.lower import actions_of
from d2lmgpu.plans.execution.step import StepOfPlan
from d2lmgpu.plans.proof.check import check_plan

pytestmark = pytest.mark.threads

PROCESSES = [(1, 1), (2, 1), (1, 1, 1), (2, 2), (1, 3), (1, 1, 1, 1), (1, 2, 1)]
"""How many devices each has."""

MADE = {name: (lambda k, m, name=name: PLANS[name](k, m, network=PLAIN)) for name in PLANS}
MADE["data=2,1f1b"] = lambda k, m: copies_of("1f1b", 2, k // 2, m, network=PLAIN)
MADE["data=2,channels"] = lambda k, m: copies_of("channels", 2, k // 2, m, network=PLAIN)
CASES = [(True, name, split) for name in MADE for split in PROCESSES if "=" not in name or sum(split) % 2 == 0]
OFTEN = [(number % 2 == 0, *CASES[number][1:]) for number in range(0, len(CASES), 9)]


def minibatches(sizes):
    return [examples(PLAIN, n, np.float32, seed=seed) for seed, n in enumerate(sizes)]


def trained(plan, devices, sizes):
    """Steps of Adam: losses, right answers, parameters, the optimiser's state."""
    execution, found = Execution(plan, first_params(PLAIN, np.float32), devices, "adam"), []
    for X, y in minibatches(sizes):
        found += [execution.step(X, y, 0.01), execution.correct]
    state = execution.gather_state()
    execution.scatter_state([2 * array for array in state])
    arrays = [*execution.params(), *state, *execution.gather_state()]
    return found, [array.tobytes() for array in arrays]


@pytest.mark.parametrize("eager, name, split", OFTEN + [pytest.param(*row, marks=pytest.mark.nightly) for row in CASES])
def test_processes_have_the_bits_of_one(name, split, eager, rng):
    """Ragged minibatches, also with fewer examples than micro-batches."""
    k = sum(split)
    plan, sizes = MADE[name](k, int(rng.integers(1, 6))), [int(rng.integers(5, 30)), 1, int(rng.integers(2, 9))]
    expected = trained(plan, cpus(k), sizes)
    for found in in_each(split, lambda cluster: trained(plan, cluster, sizes), eager):
        assert found == expected


@pytest.mark.parametrize("name", ["1f1b", "zero3", "channels", "data=2,1f1b"])
def test_bytes_between_processes_are_those_of_the_proof(name, monkeypatch):
    """Each process notes what its devices send and receive; what is told after a step is left out."""

    class Quiet(part.ProcessPart):
        def note(self, everybody, itemsize):
            return {}

    monkeypatch.setattr(members, "part_of", lambda *arguments: Quiet(**vars(part.part_of(*arguments))))
    plan, (X, y) = MADE[name](4, 2), minibatches([12])[0]
    params = first_params(PLAIN, np.float32)
    with d2l.record_transfers() as transfers:
        in_each((2, 1, 1), lambda cluster: execute(plan, X, y, params, cluster))
    between = [t for t in transfers if "host" not in (t.source, t.destination)]
    for there in ("source", "destination"):  # of what two processes note, what one of them does
        assert sum(t.nbytes for t in between if " of rank " not in getattr(t, there)) == sum(prove(plan, 12).sent)


def test_what_processes_cannot_do(monkeypatch):
    plan, (X, y), params = MADE["1f1b"](2, 3), minibatches([6])[0], first_params(PLAIN, np.float32)
    assert communicator.MIN_TAGS == 32_767  # as MPI's standard has it, in "Environmental Inquiries"
    monkeypatch.setattr(communicator, "MIN_TAGS", 5)
    with pytest.raises(ValueError, match="the plan has 6 messages between processes, .* no more than 5; use fewer"):
        in_each((1, 1), lambda cluster: Execution(plan, params, cluster))
    monkeypatch.setattr(communicator, "MIN_TAGS", 6)
    in_each((1, 1), lambda cluster: Execution(plan, params, cluster).step(X, y, 0.1))


class Faulty:
    """Clusters in threads, each of which does a step of the plan; ``before(step, number, action)`` is called first."""

    def __init__(self, plan, split, monkeypatch, before, eager=True):
        names = "device", "comm stream", "progress"
        communicators = [
            dict(zip(names, own, strict=True)) for own in zip(*(comms(len(split), eager) for _ in names), strict=True)
        ]
        self.clusters = [ThreadsCluster(rank, split, communicators[rank]) for rank in range(len(split))]
        hosts = [f"host{rank}" for rank in range(len(split))]
        self.watches = [Watch(cluster.progress.comm, hosts, 1.0) for cluster in self.clusters]
        for watch, cluster in zip(self.watches, self.clusters, strict=True):
            watch.communicators = [cluster.progress]
        self.errors, add = {}, StepOfPlan._add

        def add_noting(step, number, action):
            before(step, number, action)
            add(step, number, action)

        monkeypatch.setattr(StepOfPlan, "_add", add_noting)
        self.threads = [threading.Thread(target=self._run, args=(plan, c), daemon=True) for c in self.clusters]
        for thread in self.threads:
            thread.start()

    def _run(self, plan, cluster):
        try:
            execution = Execution(plan, first_params(PLAIN, np.float32), cluster)
            execution.step(*minibatches([7])[0], 0.1)
        except Exception as error:
            self.errors[cluster.rank] = error

    def join(self):
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive()


@pytest.mark.parametrize("name, what", [("1f1b", "to send it, last"), ("zero3", "for elements 0 to ")])
def test_a_missing_message_is_named(name, what, monkeypatch):
    """Rank 0 does not take part in its first message."""
    plan, thaw = MADE[name](2, 2), threading.Event()

    def freeze(step, number, action):
        if step.across.group.rank == 0 and len(action.devices) > 1:
            step.batch.submit(step.execution.store[0].device, thaw.wait, 60)

    faulty = Faulty(plan, (1, 1), monkeypatch, freeze)
    try:
        said = until_said(faulty, 0, f"waits in training step 1 of plan {plan.name}, device 1, step ")
        assert what in said
    finally:
        thaw.set()
    faulty.join()
    assert not faulty.errors


def until_said(faulty, rank, wanted):
    """What another process says that waits there, for this rank; ``wanted`` is part of it."""
    end, said = time.monotonic() + 30, None
    watches = [watch for i, watch in enumerate(faulty.watches) if i != rank]
    while time.monotonic() < end:
        said = [watch.explain(waits) for watch in watches if (waits := watch.waits())]
        found = [one for one in said if wanted in one and f"of rank {rank} (host{rank})" in one]
        if found:
            return found[0]
        time.sleep(0.005)
    pytest.fail(f"{wanted}: {said}")


def test_what_was_sent_and_is_not_taken_is_named(monkeypatch):
    """Messages that only leave when they are received, as long ones: rank 0 waits before it frees what it has sent."""
    plan, thaw = MADE["1f1b"](2, 2), threading.Event()
    actions = actions_of(plan, check_plan(plan))
    free = next(action for action in actions if action.devices == (0,) and str(action).startswith("free of y"))

    def freeze(step, number, action):
        if step.across.group.rank == 1 and action.what == "receive":
            step.batch.submit(step.execution.store[1].device, thaw.wait, 60)

    faulty = Faulty(plan, (1, 1), monkeypatch, freeze, eager=False)
    try:
        where = f"device 0, step {free.step} ({free})"
        until_said(faulty, 1, f"plan 1f1b, {where}, for cpu(0) of rank 1 (host1) to take it, last heard from ")
    finally:
        thaw.set()
    faulty.join()


@pytest.mark.parametrize("name", ["1f1b", "zero3"])
def test_an_error_in_one_process(name, monkeypatch):
    """It is raised there, though the others never do their part; and no plan goes on in that process."""
    plan = MADE[name](2, 2)

    def fail(step, number, action):
        if step.across.group.rank == 1 and action.what == "F":
            step.batch.submit(step.execution.store[1].device, divide)

    def divide():
        raise ArithmeticError("no step today")

    faulty = Faulty(plan, (1, 1), monkeypatch, fail)
    faulty.threads[1].join(60)
    assert isinstance(faulty.errors[1], ArithmeticError)
    with pytest.raises(ValueError, match="a step across processes has failed in this process; restart all processes"):
        Execution(plan, first_params(PLAIN, np.float32), faulty.clusters[1])
    faulty.clusters[0].progress.give_up(ConnectionError("the job ends"))
    faulty.threads[0].join(60)
    assert not faulty.threads[0].is_alive()
    assert str(faulty.errors[0]) == "the job ends"


def test_a_request_after_all_was_given_up():
    """It has the error of what was given up: nothing that it should have received is taken for received."""
    progress, event = ProgressThread(comms(1)[0], [0.0]), Task()
    progress.give_up(ConnectionError("rank 1 is gone"))
    progress.follow(SimpleNamespace(Test=lambda: False), event)
    assert event.done() and str(event.error) == "rank 1 is gone"


def test_a_request_that_mpi_cannot_test():
    """Everything that is under way is given up: MPI may never say that any of it has arrived."""

    def test():
        if threading.current_thread() is not threading.main_thread():
            raise ConnectionError("no route to rank 1")

    progress, events = ProgressThread(comms(1)[0], [0.0]), [Task(), Task()]
    for event, look in zip(events, (lambda: False, test), strict=True):
        progress.follow(SimpleNamespace(Test=look), event)
    assert all(event.wait(60) and str(event.error) == "no route to rank 1" for event in events)


def test_a_librarys_collective_that_fails_is_not_waited_for():
    """Else the watch would report a hang, sometime later."""
    communicator = Communicator(None, [0.0])

    with pytest.raises(ConnectionError, match="rank 1"), communicator.wait_in("MPI_Allreduce"):
        assert [waiting.what for waiting in communicator.waits] == ["MPI_Allreduce"]
        raise ConnectionError("no route to rank 1")
    assert not communicator.waits
