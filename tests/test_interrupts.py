"""Interrupts and signal handlers may come between any two instructions of the host program."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import d2lmgpu as d2l
from d2lmgpu.base import signals
from d2lmgpu.cli import main
from d2lmgpu.parallel.step import Step
from d2lmgpu.training.checkpoints import load_checkpoint
from d2lmgpu.training.textbook_steps import TextbookSteps

pytestmark = pytest.mark.threads


@pytest.fixture
def sigint():
    """The handler of Ctrl-C that a program begins with, whatever the tests were started with."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


@pytest.mark.long
def test_interrupts_at_random_moments():
    """A sample of what `python tests/interrupts.py` does, which takes some 10 s: each case once."""
    root = Path(__file__).resolve().parents[1]
    command = [sys.executable, str(root / "tests" / "interrupts.py"), "--count", "60", "--seed", str(os.getpid())]
    paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all well" in done.stdout


@pytest.mark.parametrize("k", [2, 3])
def test_a_signal_handler_may_use_the_devices(k):
    """Between any two instructions of a loop that uses them, too; and it may wait for results."""
    devices = [d2l.cpu(i) for i in range(k)]
    data = [d2l.put(np.zeros(100), device) for device in devices]
    results, wanted = [], 200

    def handler(signum, frame):
        i = len(results) % k
        mine = [d2l.put(np.full(7, i + 1.0), device) for device in devices]
        d2l.allreduce(mine, "ring")
        results.append((i, devices[i].run(lambda: i).result(timeout=60), d2l.to_host(mine[i]).tolist()))
        if len(results) == wanted:
            signal.setitimer(signal.ITIMER_REAL, 0)

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        while len(results) < wanted:
            for array, device in zip(data, devices, strict=True):
                device.run(np.add, array, 1)
            d2l.allreduce(data, "ring")
            d2l.to_host(d2l.put(data[0], devices[1]))
            d2l.cpu(k)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert all(seen == i and total == [k * (i + 1.0)] * 7 for i, seen, total in results)


def test_an_interrupt_of_train_batch_leaves_a_whole_step_or_none(small, monkeypatch):
    """It comes after the first, second ... piece of work that is submitted."""
    X, y = d2l.to_float(small[0][:30]), small[1][:30]
    devices = [d2l.cpu(i) for i in range(3)]
    device_params = [d2l.get_params(d2l.init_params(init="he"), device) for device in devices]
    interrupted, submit_to_all = 0, d2l.devices.Batch.submit_to_all
    for number in range(40):
        pieces = []

        def submit(*args, number=number, pieces=pieces):
            if len(pieces) == number:
                raise KeyboardInterrupt
            pieces.append(1)
            return submit_to_all(*args)

        with monkeypatch.context() as patch:
            patch.setattr("d2lmgpu.devices.Batch.submit_to_all", submit)
            try:
                d2l.train_batch(X, y, device_params, devices, 0.05, "ring")
            except KeyboardInterrupt:
                interrupted += 1
        first, *others = [[d2l.to_host(param).tobytes() for param in params] for params in device_params]
        assert all(other == first for other in others), number
    assert 10 < interrupted < 40


def quick(data, **settings):
    devices = [d2l.cpu(0), d2l.cpu(1)]
    return d2l.train(devices, 32, 0.05, 2, init="he", data=data, progress=False, **settings)


class Press(d2l.Callback):
    """Ctrl-C after a step, again and again."""

    def __init__(self, *steps):
        self.steps, self.seen = steps, 0

    def on_step(self, epoch, step, loss):
        self.seen += 1
        if self.seen in self.steps:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture(scope="module")
def some(small):
    X, y, X_test, y_test = small
    return X[:320], y[:320], X_test[:50], y_test[:50]


@pytest.mark.parametrize("k", [1, 2])
def test_a_stop_is_wanted_as_a_step_is_submitted(some, k):
    """Ctrl-C between the loop's look and the step."""
    X, y, *_ = some
    runner = TextbookSteps.of(X, y, d2l.init_params(), [d2l.cpu(i) for i in range(k)], batch_size=32)
    runner.start_epoch(np.arange(320), 0.01)
    runner.stop.wanted = True
    runner.launch(1)
    assert sum(runner.pause()[0]) > 0 and runner.stop.requested and runner.known[0] == 1
    runner.close()


def test_ctrl_c_does_what_it_did_after_a_run_that_failed(some, sigint):
    with pytest.raises(ZeroDivisionError):
        quick(some, preprocess=lambda X, y, rng: 1 / 0)
    assert signal.getsignal(signal.SIGINT) is sigint


def test_a_second_ctrl_c_interrupts_at_once(some, sigint, monkeypatch):
    """The first asks for the end after the step; while that is waited for, the second does not wait."""
    finish, calls = Step.finish, []

    def impatient(self):
        calls.append(1)
        if len(calls) == 4:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
        return finish(self)

    monkeypatch.setattr(Step, "finish", impatient)
    with pytest.raises(KeyboardInterrupt):
        quick(some)
    assert len(calls) == 4
    monkeypatch.undo()
    assert not quick(some)[0].interrupted  # and another run finds the devices free


class Tell(d2l.Callback):
    """A signal after a step, twice, as batch systems may send it; anything else is said after an epoch."""

    def __init__(self, signum, step):
        self.signum, self.step, self.seen = signum, step, 0

    def on_step(self, epoch, step, loss):
        self.seen += 1
        if self.seen == self.step:
            os.kill(os.getpid(), self.signum)
            os.kill(os.getpid(), self.signum)


class Ask(d2l.Callback):
    """A callback's own wish to stop: after a step, or in another of its methods, each time that it is called."""

    def __init__(self, step, method="on_step"):
        self.step, self.seen = step, 0
        if method != "on_step":
            self.step = None
            setattr(self, method, lambda history: len(history.train_loss) + (method == "on_evaluate") == step // 10)

    def on_step(self, epoch, step, loss):
        self.seen += 1
        return self.seen == self.step


WAYS = {
    "Ctrl-C": Press,
    "SIGTERM": lambda step: Tell(signal.SIGTERM, step),
    "a callback": Ask,
    "before the evaluation": lambda step: Ask(step, "on_evaluate"),
    "after the epoch": lambda step: Ask(step, "on_epoch"),
}


@pytest.mark.parametrize(
    "step, where, position, way",
    [  # of 10 in an epoch, and 20 in the run
        *((9, {"epoch": 1, "steps": 9}, (0, 9), way) for way in ("Ctrl-C", "a callback")),
        *((10, {"epoch": 1, "steps": 10}, (1, 0), way) for way in WAYS),
        *((11, {"epoch": 2, "steps": 1}, (1, 1), way) for way in ("SIGTERM", "a callback")),
        *((20, None, (2, 0), way) for way in WAYS),
    ],
)
def test_a_stop_in_the_last_step(some, sigint, tmp_path, step, where, position, way):
    """Of an epoch: the epoch is complete, and the run is interrupted. Of the run: nothing is left to be interrupted."""
    file, whole = tmp_path / "file", quick(some)[0]
    with signals.listening():
        history, _ = quick(some, callbacks=[WAYS[way](step)], checkpoint=file)
    assert where is None or where.items() <= history.interrupted.items()
    assert (history.interrupted is None) is (where is None)
    complete = position[0]
    assert (history.train_loss, history.test_accuracy) == (whole.train_loss[:complete], whole.test_accuracy[:complete])
    state = load_checkpoint(file).state
    assert (state["position"]["epoch"], state["position"]["steps"]) == position
    resumed, _ = quick(some, resume=file)
    assert resumed.interrupted is None and resumed.final_parameters_sha256 == whole.final_parameters_sha256
    assert (resumed.train_loss, resumed.test_accuracy) == (whole.train_loss, whole.test_accuracy)


@pytest.mark.parametrize("signum", signals.SIGNALS)
def test_signals_of_batch_systems_stop_after_the_step(some, signum, sigint):
    with signals.listening():
        history, _ = quick(some, callbacks=[Tell(signum, 3)])
        assert history.interrupted["steps"] == 3 and signals.exit_code() == 128 + signum
        assert signum in signals.listened_to()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signum)
    assert signal.getsignal(signum) is signal.SIG_DFL


def test_whoever_handles_such_a_signal_goes_on_to(some):
    came, before = [], signal.signal(signal.SIGTERM, lambda *_: came.append(1))
    try:
        with signals.listening():
            history, _ = quick(some, callbacks=[Tell(signal.SIGTERM, 3)])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not history.interrupted and len(came) == 2


@pytest.mark.long
@pytest.mark.parametrize("signum", signals.SIGNALS)
def test_the_command_writes_a_checkpoint_when_it_is_told_to_end(signum, tmp_path):
    """And goes on from there to the bits of a run that nobody ended."""
    command = [sys.executable, "-m", "d2lmgpu", "train", "--devices", "2", "--environment", "cpu", "--epochs", "2"]
    command += ["--limit", "2560", "--batch-size", "64", "--init", "he"]
    result, file = tmp_path / "result.json", tmp_path / "checkpoint.npz"
    subprocess.run([*command, "--json", result], check=True, capture_output=True)
    process = subprocess.Popen(
        [*command, "--checkpoint", file, "--checkpoint-steps", "3"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    until = time.monotonic() + 60
    while not file.exists() and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(signum)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signum, err
    whole = json.loads(result.read_text())
    done = subprocess.run([*command, "--resume", file, "--json", result], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    resumed = json.loads(result.read_text())
    assert resumed["final_parameters_sha256"] == whole["final_parameters_sha256"]
    assert resumed["train_loss"] == whole["train_loss"]


@pytest.mark.parametrize("signum", signals.SIGNALS)
def test_before_training_they_end_the_command(signum, monkeypatch, capsys):
    monkeypatch.setattr("d2lmgpu.cli.train.find_data", lambda *_: signal.raise_signal(signum))
    assert main(["train", "--environment", "cpu", "--devices", "1"]) == 128 + signum
    assert capsys.readouterr().err == "d2lmgpu train: interrupted, no result was written\n"
