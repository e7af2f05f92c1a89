"""Interrupts and signal handlers may come between any two instructions of the host program."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from runs import DATA, PLAIN, brief, cpus

import d2lmgpu as d2l
from d2lmgpu.base import signals
from d2lmgpu.cli import main
from d2lmgpu.parallel.step import Step
from d2lmgpu.training.checkpoints import load_checkpoint

pytestmark = pytest.mark.threads
SIGNALS = signals.SIGNALS


@pytest.fixture
def sigint():
    """The handler of Ctrl-C that a program begins with, whatever the tests were started with."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    "count, seed", [pytest.param(60, 0, marks=[pytest.mark.long]), pytest.param(600, 1, marks=[pytest.mark.nightly])]
)
def test_interrupts_at_random_moments(count, seed):
    """60 are each case once."""
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, root / "tests" / "interrupts.py", "--count", str(count), "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(root)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all well" in done.stdout


def test_an_interrupt_of_train_batch_leaves_a_whole_step_or_none(monkeypatch):
    """It comes after the first, second ... piece of work that is submitted."""
    X, y, devices = d2l.to_float(DATA[0][:30]), DATA[1][:30], cpus(3)
    params = d2l.init_params(init="he", network=PLAIN)
    device_params = [d2l.get_params(params, device) for device in devices]
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
                d2l.train_batch(X, y, device_params, devices, 0.05, "ring", network=PLAIN)
            except KeyboardInterrupt:
                interrupted += 1
        first, *others = [[d2l.to_host(param).tobytes() for param in params] for params in device_params]
        assert all(other == first for other in others), number
    assert 5 < interrupted < 40


def test_a_second_ctrl_c_interrupts_at_once(sigint, monkeypatch):
    """The first asks for the end after the step; while that is waited for, the second does not wait.

    Another run finds the devices free; after one that failed, too, Ctrl-C does what it did (`sigint`).
    """
    finish, calls = Step.finish, []

    def impatient(self):
        calls.append(1)
        if len(calls) == 4:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
        return finish(self)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Step, "finish", impatient)
        brief(2)
    assert len(calls) == 4
    assert not brief(2).history.interrupted
    with pytest.raises(ZeroDivisionError):
        brief(2, preprocess=lambda X, y, rng: 1 / 0)


class Ask(d2l.Callback):
    """After a step of the run: signals, twice as batch systems may send them, or the callback's own wish."""

    def __init__(self, step, *signals):
        self.left, self.signals = step, signals

    def on_step(self, epoch, step, loss):
        self.left -= 1
        for signum in self.signals if self.left == 0 else ():
            os.kill(os.getpid(), signum)
        return self.left == 0 and not self.signals


WAYS = {"Ctrl-C": [signal.SIGINT], "SIGTERM": [signal.SIGTERM] * 2, "a callback": []}


@pytest.mark.parametrize(
    "step, where, position, way",
    [  # of 6 in an epoch, and 12 in the run
        *((5, {"epoch": 1, "steps": 5}, (0, 5), way) for way in ("Ctrl-C", "a callback")),
        *((6, {"epoch": 1, "steps": 6}, (1, 0), way) for way in WAYS),
        *((7, {"epoch": 2, "steps": 1}, (1, 1), way) for way in ("SIGTERM", "a callback")),
        *((12, None, (2, 0), way) for way in WAYS),
    ],
)
def test_a_stop_in_the_last_step(sigint, tmp_path, step, where, position, way):
    """Of an epoch: the epoch is complete, and the run is interrupted. Of the run: nothing is left to be interrupted."""
    file, whole = tmp_path / "file", brief(2).history
    with signals.listening():
        history, _ = brief(2, callbacks=[Ask(step, *WAYS[way])], checkpoint=file)
    assert history.interrupted is None if where is None else where.items() <= history.interrupted.items()
    complete = position[0]
    assert (history.train_loss, history.test_accuracy) == (whole.train_loss[:complete], whole.test_accuracy[:complete])
    state = load_checkpoint(file).state
    assert (state["position"]["epoch"], state["position"]["steps"]) == position
    resumed, _ = brief(2, resume=file)
    assert resumed.interrupted is None and resumed.final_parameters_sha256 == whole.final_parameters_sha256
    assert (resumed.train_loss, resumed.test_accuracy) == (whole.train_loss, whole.test_accuracy)


@pytest.mark.parametrize("signum", SIGNALS)
def test_signals_of_batch_systems_stop_after_the_step(signum, sigint):
    with signals.listening():
        history, _ = brief(2, callbacks=[Ask(3, signum, signum)])
        assert history.interrupted["steps"] == 3 and signals.exit_code() == 128 + signum
        assert signum in signals.listened_to()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signum)
    assert signal.getsignal(signum) is signal.SIG_DFL


@pytest.mark.parametrize("signum", SIGNALS)
def test_before_training_they_end_the_command(signum, monkeypatch, capsys):
    monkeypatch.setattr("d2lmgpu.cli.train.find_data", lambda *_: signal.raise_signal(signum))
    assert main(["train", "--environment", "cpu", "--devices", "1"]) == 128 + signum
    assert capsys.readouterr().err == "d2lmgpu train: interrupted, no result was written\n"


@pytest.mark.long
def test_the_command_is_ended_and_killed_at_any_moment(tmp_path, rng):
    """Again and again, also while a checkpoint is being written: it goes on to the bits of a run that nobody ended."""
    file, result = tmp_path / "file", tmp_path / "result.json"
    train = [sys.executable, "-m", "d2lmgpu", *"train --environment cpu --devices 2 --limit 1500 --init he".split()]
    train += ["--batch-size", "64", "--epochs", "2", "--json", result]
    subprocess.run(train, check=True, capture_output=True)
    whole = json.loads(result.read_text())
    for signum in (signal.SIGTERM, signal.SIGKILL, signal.SIGUSR1, signal.SIGKILL, signal.SIGKILL):
        before = file.stat().st_mtime_ns if file.exists() else 0
        command = [*train, "--checkpoint", file, "--checkpoint-steps", "1", *(["--resume", file] if before else [])]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while process.poll() is None and (file.stat().st_mtime_ns if file.exists() else 0) == before:
            time.sleep(0.001)
        time.sleep(float(rng.uniform(0, 0.03)))  # somewhere in the next step or its checkpoint
        process.send_signal(signum)
        _, err = process.communicate(timeout=60)
        assert process.returncode == (-signum if signum == signal.SIGKILL else 128 + signum), err
        load_checkpoint(file)
    subprocess.run([*train, "--resume", file], check=True, capture_output=True)
    resumed = json.loads(result.read_text())
    for name in ("final_parameters_sha256", "train_loss", "train_accuracy", "test_accuracy"):
        assert resumed[name] == whole[name]
