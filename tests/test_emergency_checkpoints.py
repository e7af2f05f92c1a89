"""Where processes hang the state of the last whole step is written, and goes on with the bits of an undisturbed run."""

import contextlib
import json
import re
import threading
import time
from pathlib import Path

import pytest
from clusters_in_threads import ThreadsCluster, in_each
from conftest import few
from mpiexec import mpiexec
from test_across import learned

import d2lmgpu as d2l
from d2lmgpu.plans.store import Store
from d2lmgpu.training import load_run

WAYS = {
    "ring": {},
    "momentum": {"optimizer": "momentum", "overlap": True, "prefetch": False},
    "adam": {"optimizer": "adam", "algorithm": "tree", "lr": 0.001},
    "batch norm": {"network": "lenet-bn", "batch_statistics": "aggregated"},
    "synchronised": {"network": "lenet-bn", "batch_statistics": "synchronised", "overlap": True},
    "mixed": {"precision": "mixed", "preprocess": "flip+shift"},
    "warm-up": {"warmup": 1, "schedule": "cosine", "weight_decay": 0.01},
}
SPLITS = [(1, 1, 1), (2, 1), (1, 2)]
CASES = [(name, split) for name in WAYS for split in SPLITS]


def some(small):
    X_train, y_train, X_test, y_test = small
    return X_train[:60], y_train[:60], X_test[:11], y_test[:11]


@pytest.fixture
def emergencies(monkeypatch):
    """Of each process by its rank, as long as it trains."""
    found = {}

    @contextlib.contextmanager
    def keep(self, save):
        found[self.rank] = save.__self__
        yield

    monkeypatch.setattr(ThreadsCluster, "when_it_hangs", keep)
    return found


def run(split, data, file, **settings):
    """What all processes have learned: six steps, three an epoch."""
    settings = {"batch_size": 25, "num_epochs": 2, "init": "he", "lr": 0.05, "data": data, "progress": False} | settings
    return in_each(split, lambda cluster: d2l.train(cluster, checkpoint=file, **settings))


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


class Frozen:
    """Who updates the parameters for the n-th time on this device waits until it thaws, before it or in its midst."""

    def __init__(self, monkeypatch, is_it, n, begun=False):
        self.there, self.thaw = threading.Event(), threading.Event()
        update = Store._update

        def wait(store, *arguments):
            if store.finished == n - 1 and is_it(store.device):
                store.begun += begun
                self.freeze()
            update(store, *arguments)

        monkeypatch.setattr(Store, "_update", wait)

    def freeze(self):
        self.there.set()
        self.thaw.wait(60)


@pytest.mark.threads
@pytest.mark.parametrize("name, split", few(CASES, *CASES[::4]))
@pytest.mark.parametrize("step", few([2, 5], 5))
def test_what_is_written_goes_on_as_if_nothing_had_been(name, split, step, small, emergencies, monkeypatch, tmp_path):
    """A rank does not do its update: others wait for it in the next step, each of which could write."""
    data, told = some(small), {}
    devices = {}

    def is_it(device):
        return device is devices["frozen"]

    frozen = Frozen(monkeypatch, is_it, step)
    init = ThreadsCluster.__init__

    def note(self, rank, *arguments):
        init(self, rank, *arguments)
        if rank == len(split) - 1:
            devices["frozen"] = self.mine[-1]

    monkeypatch.setattr(ThreadsCluster, "__init__", note)

    def knows(rank, epoch, steps):
        return emergencies[rank].epoch == epoch and emergencies[rank].runner.known[0] == steps

    def look():
        try:
            frozen.there.wait(60)
            for rank in range(len(split) - 1):
                until(lambda: knows(rank, step // 3, step % 3))  # noqa: B023
                told[rank] = emergencies[rank].in_emergency()
                (tmp_path / "run.hang").rename(tmp_path / f"by {rank}")
        finally:
            frozen.thaw.set()

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    whole = run(split, data, tmp_path / "run", **WAYS[name])
    thread.join(60)
    assert len(told) == len(split) - 1
    epoch, done = divmod(step, 3)
    for rank, line in told.items():
        file = tmp_path / "run.hang"
        assert (
            line == f"the state after step {done} of epoch {epoch + 1} was written: --resume {file} goes on from there"
        )
        assert load_run(tmp_path / f"by {rank}").state["optimizer_steps"] == step
        again = run(split, data, None, resume=tmp_path / f"by {rank}", **WAYS[name])
        assert [learned(result) for result in again] == [learned(result) for result in whole]


@pytest.mark.threads
@pytest.mark.parametrize("begun", [False, True])
def test_a_device_ahead_of_another_of_its_process_or_amid_an_update(begun, small, emergencies, monkeypatch, tmp_path):
    found, told = [], []
    frozen = Frozen(monkeypatch, lambda device: found and device is found[0], 2, begun)

    def look():
        frozen.there.wait(60)
        until(lambda: emergencies[0].runner.execution.stores[0].finished == 2)  # the other device of this process
        told.append(emergencies[0].in_emergency())
        frozen.thaw.set()

    def train(cluster):
        if cluster.rank == 0:
            found.append(cluster.mine[1])
        return d2l.train(cluster, batch_size=25, num_epochs=1, data=some(small), checkpoint=tmp_path / "run")

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    in_each((2, 1), train)
    thread.join(60)
    why = "a device is in the midst of an update, or ahead of what the program knows"
    assert told == [f"no checkpoint was written of the hang: {why}"]
    assert not (tmp_path / "run.hang").exists()


@pytest.mark.long
@pytest.mark.parametrize("name", ["ring", "adam", "synchronised"])
def test_at_any_moment_what_is_written_is_whole(name, small, emergencies, tmp_path):
    """Another thread asks all the time, while nobody waits: of what it gets all is some step's state."""
    data, written, over = some(small), {}, threading.Event()

    def ask():
        until(lambda: 0 in emergencies)
        while not over.is_set():
            with contextlib.suppress(FileNotFoundError):
                emergencies[0].in_emergency()
                content = (tmp_path / "run.hang").read_bytes()
                (tmp_path / "last").write_bytes(content)
                position = load_run(tmp_path / "last").state["position"]
                written[position["epoch"], position["steps"]] = content

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    whole = run((1, 1), data, tmp_path / "run", batch_size=6, **WAYS[name])
    over.set()
    thread.join(60)
    assert written
    for content in list(written.values())[:6]:
        (tmp_path / "last").write_bytes(content)
        again = run((1, 1), data, None, batch_size=6, resume=tmp_path / "last", **WAYS[name])
        assert [learned(result) for result in again] == [learned(result) for result in whole]


@pytest.mark.threads
@pytest.mark.parametrize(
    "settings, why",
    [
        ({"network": "lenet-bn"}, r"each device has statistics of its own \(batch_statistics 'local'\)"),
        ({}, "no step was under way; the last checkpoint that was written stands"),
    ],
)
def test_what_cannot_be_had(settings, why, small, emergencies, tmp_path):
    told = []

    class Ask(d2l.Callback):
        def on_evaluate(self, history):
            if not settings:
                told.append(emergencies[0].in_emergency())

        def on_step(self, epoch, step, loss):
            if settings:
                told.append(emergencies[0].in_emergency())

    def train(cluster):
        asks = [Ask()] if cluster.rank == 0 else []
        usual = {"batch_size": 25, "num_epochs": 1, "data": some(small), "progress": False}
        return d2l.train(cluster, checkpoint=tmp_path / "run", callbacks=asks, **usual, **settings)

    in_each((1, 1), train)
    assert told and all(re.match(f"no checkpoint was written of the hang: {why}", line) for line in told), told
    assert not (tmp_path / "run.hang").exists()


@pytest.mark.threads
def test_without_a_checkpoint_there_is_nothing_to_say(small, emergencies):
    run((1, 1), some(small), None, num_epochs=1)
    assert emergencies[0].in_emergency() is None


@pytest.mark.long
@pytest.mark.parametrize("where, step", [(0, 4), (2, 13), (3, 1)])
def test_a_stopped_rank_under_mpiexec(where, step, tmp_path):
    """The lowest that answers writes, and what it wrote ends with the bits of an undisturbed run."""
    program, file = Path(__file__).with_name("faults_in_training.py"), tmp_path / "run"
    done = mpiexec(4, program, "stop", where, step, "--checkpoint", file, "--patience", 8)  # the first step may be slow
    assert done.returncode != 0, done
    assert re.search(rf"rank {where} \(\S+\) is stopped, by signal \d+ \(SIGSTOP\), for ", done.stderr), done.stderr
    epoch, steps = divmod(step, 10)
    said = re.findall(r"the state after step (\d+) of epoch (\d+) was written: --resume (\S+) goes", done.stderr)
    assert said == [(str(steps), str(epoch + 1), f"{file}.hang")], done.stderr
    sums = []
    for words in (["--resume", f"{file}.hang"], []):
        done = mpiexec(4, program, "none", 0, 1, *words, "--json", tmp_path / "json")
        assert done.returncode == 0, done
        found = json.loads((tmp_path / "json").read_text())
        sums.append([found[name] for name in ("final_parameters_sha256", "train_loss", "test_accuracy")])
    assert sums[0] == sums[1]
