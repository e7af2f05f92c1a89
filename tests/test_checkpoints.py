"""Checkpoints: the file, and runs that go on from one as if nothing had happened."""

import dataclasses
import itertools
import json
import os
import pickle
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from conftest import long
from test_training import quick

import d2lmgpu as d2l
from d2lmgpu import cli
from d2lmgpu.training.checkpoints import Checkpoint, CheckpointError, load_checkpoint, save_checkpoint

SETTINGS = {"network": "lenet-bn", "optimizer": "adam", "lr": 0.01, "num_epochs": 3, "batch_size": 100}


def example():
    arrays = {"params": [np.arange(6.0).reshape(2, 3), np.float32([1, 2])], "statistics of 0": [np.zeros(0)]}
    return Checkpoint({"epoch": 3, "text": "é", "loss": 0.1, "list": [1, None]}, arrays)


def test_a_file_gives_back_what_was_put_in(tmp_path):
    save_checkpoint(tmp_path / "file", example())
    state, arrays = load_checkpoint(tmp_path / "file")
    assert state == example().state and arrays.keys() == example().arrays.keys()
    for name, expected in example().arrays.items():
        for array, value in zip(arrays[name], expected, strict=True):
            assert array.dtype == value.dtype and array.shape == value.shape and (array == value).all()
    assert os.listdir(tmp_path) == ["file"]


def test_files_of_others(tmp_path):
    file = tmp_path / "file"
    np.savez(tmp_path / "array.npz", x=np.zeros(3))
    foreign = [b"", b"\n", b"{}\n", b"[1]\n", b'{"format": "d2lmgpu checkpoint"}', b'"' + b"x" * 5000]
    foreign += [b"PK\x03\x04", os.urandom(5000), pickle.dumps(print), (tmp_path / "array.npz").read_bytes()]
    for content in foreign:
        file.write_bytes(content)
        with pytest.raises(CheckpointError, match="is no checkpoint of d2lmgpu"):
            load_checkpoint(file)
    save_checkpoint(file, example())
    file.write_bytes(file.read_bytes().replace(b'"version": 1', b'"version": 2', 1))
    with pytest.raises(CheckpointError, match="of version 2; this program reads version 1"):
        load_checkpoint(file)
    with pytest.raises(OSError, match="No such file"):
        load_checkpoint(tmp_path / "none")


class Stopped(Exception):
    pass


def run_until(monkeypatch, steps, devices, data, **settings):
    """Train, and end in an exception before step number ``steps``, counted over all epochs."""
    from d2lmgpu.training.graph_step import GraphStep
    from d2lmgpu.training.plan_step import PlanStep
    from d2lmgpu.training.textbook_steps import TextbookSteps

    done = itertools.count()

    def counted(launch):
        def try_launch(self, most):
            if next(done) == steps:
                raise Stopped
            return launch(self, most)

        return try_launch

    with monkeypatch.context() as patch, pytest.raises(Stopped):
        for runner in (PlanStep, GraphStep, TextbookSteps):
            patch.setattr(runner, "launch", counted(runner.launch))
        quick(devices, data, **settings)


@pytest.mark.parametrize("batch_statistics", [*long("local"), "aggregated"])
@pytest.mark.parametrize(  # 6 steps an epoch; one moment is enough for the slow stand-in
    "steps, device_kind",
    [(11, "cpu"), *long((2, "cpu"), (6, "cpu"), (15, "cpu"), (11, "standin"))]
    + [pytest.param(steps, "gpu", marks=pytest.mark.real_gpu) for steps in (2, 6, 11, 15)],
    indirect=["device_kind"],
)
def test_a_resumed_run_equals_an_uninterrupted_one(
    make_devices, device_kind, small, tmp_path, monkeypatch, steps, batch_statistics
):
    devices, file = make_devices(2), tmp_path / "file"
    settings = {**SETTINGS, "batch_statistics": batch_statistics}
    whole = quick(devices, small, **settings)
    run_until(monkeypatch, steps, devices, small, checkpoint=file, checkpoint_steps=2, **settings)
    resumed = quick(devices, small, resume=file, **settings)
    for name in ("train_loss", "train_accuracy", "test_accuracy", "final_parameters_sha256"):
        assert getattr(resumed.history, name) == getattr(whole.history, name)
    for array, expected in zip(resumed.statistics, whole.statistics, strict=True):
        assert array.tobytes() == expected.tobytes()


class Crash(d2l.Callback):
    """An exception after a step, counted over all epochs from 1."""

    def __init__(self, after):
        self.after, self.seen = after, 0

    def on_step(self, epoch, step, loss):
        self.seen += 1
        if self.seen == self.after:
            raise Stopped


class Heard(Crash):
    """What callbacks are told of each step."""

    def __init__(self, after=None):
        super().__init__(after)
        self.told = []

    def on_step(self, epoch, step, loss):
        self.told.append((epoch, step, loss))
        super().on_step(epoch, step, loss)


@pytest.mark.parametrize("split", [{}, {"split": "zero1"}], ids=["data parallelism", "a plan"])
def test_examples_of_the_break_count_once(small, tmp_path, split):
    """In the losses that callbacks are told, and in the speed: of all epochs' examples and seconds."""
    devices, file, settings = [d2l.cpu(0), d2l.cpu(1)], tmp_path / "file", {"batch_size": 250, "num_epochs": 3, **split}
    whole, resumed = Heard(), Heard()
    quick(devices, small, callbacks=[whole], **settings)
    with pytest.raises(Stopped):  # after the second epoch's last step; each has 250, 250 and 100 examples
        quick(devices, small, checkpoint=file, checkpoint_steps=2, callbacks=[Heard(6)], **settings)
    saved = load_checkpoint(file).state
    assert saved["position"]["steps"] == 2
    saved["position"]["seconds"] += 1000
    save_checkpoint(file, Checkpoint(saved, load_checkpoint(file).arrays))
    history = quick(devices, small, resume=file, callbacks=[resumed], **settings).history
    assert resumed.told == whole.told[5:]
    seconds = history.seconds_per_epoch
    assert seconds[0] == saved["history"]["seconds_per_epoch"][0] and 1000 < seconds[1] < 2000 and seconds[2] < 1000
    assert history.examples_per_second == pytest.approx(3 * 600 / sum(seconds))
    parts = list(history.utilisation.values())  # of the seconds since the break
    assert all(part > 1e-3 for part in parts) and sum(history.phases.values()) < 1000


@pytest.mark.parametrize("together", [False, True], ids=["one by one", "as graphs"])
@pytest.mark.parametrize("every", [1, 3, 4, 7, *long(2, 5, 6)])
def test_a_checkpoint_after_every_so_many_steps(small, tmp_path, monkeypatch, every, together):
    """Counted in each epoch, of 6 steps, whose end is one of its own: what is in it is what these steps made.

    Also where a runner does all the steps that it may at once, as on GPUs.
    """
    from d2lmgpu.training.textbook_steps import TextbookSteps

    if together:
        one = TextbookSteps.launch
        monkeypatch.setattr(TextbookSteps, "launch", lambda self, most: sum((one(self, 1) for _ in range(most)), []))
    devices, file, written = [d2l.cpu(0)], tmp_path / "file", []

    def save(path, checkpoint):
        written.append(tuple(checkpoint.state["position"][name] for name in ("epoch", "steps")))
        assert checkpoint.state["optimizer_steps"] == 6 * written[-1][0] + written[-1][1]
        save_checkpoint(path, checkpoint)

    monkeypatch.setattr("d2lmgpu.training.resume.save_checkpoint", save)
    quick(devices, small, batch_size=100, optimizer="momentum", checkpoint=file, checkpoint_steps=every)
    within = list(range(every, 6, every))
    assert written == [(0, steps) for steps in within] + [(1, 0)] + [(1, steps) for steps in within] + [(2, 0)]


def test_a_finished_run_goes_on_to_more_epochs(small, tmp_path):
    file, device = tmp_path / "file", [d2l.cpu(0)]
    quick(device, small, num_epochs=1, checkpoint=file)
    whole = quick(device, small, num_epochs=3, checkpoint=file, resume=file)
    again = quick(device, small, num_epochs=3, resume=file)  # nothing is left to do
    assert again.history.final_parameters_sha256 == whole.history.final_parameters_sha256
    assert again.history.train_loss == whole.history.train_loss
    assert again.history.train_accuracy == whole.history.train_accuracy
    with pytest.raises(CheckpointError, match="beyond epoch 2; ask for more epochs"):
        quick(device, small, num_epochs=2, resume=file)


class End(Crash):
    """A request to stop after a step."""

    def on_step(self, epoch, step, loss):
        self.seen += 1
        return self.seen == self.after


DROPOUT = d2l.networks.sequential(
    (1, 28, 28), d2l.networks.Flatten(), d2l.networks.Dense(20), d2l.networks.Dropout(0.5), d2l.networks.Dense(10)
)


@pytest.mark.parametrize(
    "first, steps, then, settings",  # epochs and steps before the break, and epochs in all
    [
        (2, None, 4, {"warmup": 0.5, "optimizer": "momentum", "lr": 0.02}),
        (2, 9, 4, {"optimizer": "adam", "lr": 0.002, "network": "lenet-bn", "preprocess": "flip+shift"}),
        (2, None, 4, {"precision": "mixed", "drop_last": True, "loads": [2, 1], "schedule": lambda progress: 0.7}),
        (2, None, 4, {"network": DROPOUT, "weight_decay": 1e-3, "micro_batches": 2, "split": "layers"}),
        (4, 12, 4, {"schedule": "cosine"}),  # a run that was stopped
        (4, 11, 6, {"schedule": "step"}),  # of both, the first two epochs have the same rates
        (3, 5, 4, {"schedule": "cosine", "warmup": 1}),  # as in the warm-up
        (2, None, 3, {"schedule": "step"}),  # the first half of epoch 2 had another rate, and the second half the same
        (2, None, 4, {"schedule": "cosine"}),
        (3, 9, 4, {"schedule": "cosine", "warmup": 1}),
        (4, 7, 2, {"schedule": lambda progress: 1 - progress / 2}),
    ],
)
def test_a_resumed_run_has_the_bits_of_an_unbroken_one_or_says_why_not(
    small, tmp_path, capfd, first, steps, then, settings
):
    file, devices = tmp_path / "file", [d2l.cpu(0), d2l.cpu(1)]
    settings = {"batch_size": 100, "lr": 0.1, **settings}
    whole = quick(devices, small, num_epochs=then, **settings).history
    before = quick(devices, small, num_epochs=first, checkpoint=file, callbacks=[End(steps)], **settings).history
    assert capfd.readouterr().err == ""
    resumed = quick(devices, small, num_epochs=then, resume=file, **settings).history
    said, same = capfd.readouterr().err, resumed.final_parameters_sha256 == whole.final_parameters_sha256
    assert same == (said == "")
    if said:
        rates = [rate for e in range(then) for rate in d2l.Settings(num_epochs=then, **settings).learning_rates(e, 6)]
        assert said.startswith(
            f"note: resume: the learning rate's schedule is over {then} epochs, not {first}: it goes"
        )
        assert f" on at {rates[steps or 6 * first]:.3g} after {before.learning_rate:.3g}, and the results are" in said
        assert said.count("\n") == 1


@pytest.mark.parametrize(
    "sums, changed",
    [
        ("float", {"flat": False, "prefetch": False}),
        ("exact", {"devices": 3, "algorithm": "tree"}),
    ],
)
def test_what_keeps_the_bits_of_a_resumed_run(small, tmp_path, sums, changed):
    """A file for the best model is new here, too."""
    file, best = tmp_path / "file", tmp_path / "best"
    whole = quick(2, small, sums=sums, num_epochs=2).history
    quick(2, small, sums=sums, num_epochs=1, checkpoint=file)
    resumed = quick(**{"devices": 2, "sums": sums, "num_epochs": 2} | changed, data=small, resume=file, keep_best=best)
    assert resumed.history.final_parameters_sha256 == whole.final_parameters_sha256


def test_nothing_is_overwritten_or_mixed_up(small, tmp_path):
    file, device = tmp_path / "file", [d2l.cpu(0)]
    quick(device, small, num_epochs=1, checkpoint=file)
    before = file.read_bytes()
    X, y, X_test, y_test = small
    for settings, message in [
        ({"checkpoint": file}, "file exists; resume from it"),
        ({"resume": file, "lr": 0.2}, "lr is 0.2 here and 0.1 in the checkpoint"),
        ({"resume": file, "seed": 1, "batch_size": 32}, "batch_size is 32 here and 64 in .*; seed is 1 here and 0 in"),
        ({"resume": file, "network": "cnn"}, "network is 'cnn' here .* parameters have shapes"),
        ({"resume": file, "data": (X[::-1], y, X_test, y_test)}, "the training examples are others"),
        ({"checkpoint": tmp_path / "new", "checkpoint_steps": 0}, "checkpoint_steps is 0"),
        ({"checkpoint_steps": 3}, "which needs a file; give checkpoint"),
    ]:
        with pytest.raises(ValueError, match=message):
            quick(device, **{"data": small, **settings})
    assert file.read_bytes() == before and os.listdir(tmp_path) == ["file"]


OTHERS = {
    "network": "lenet",
    "classes": (*"abcdefghij",),
    "width": 2,
    "loss": "squared_error",
    "optimizer": "momentum",
    "weight_decay": 0.1,
    "seed": 1,
    "batch_size": 250,
    "preprocess": lambda X, y, rng: (X, y),
    "drop_last": True,
    "lr": 0.02,
    "warmup": 0.5,
    "schedule": "cosine",
    "batch_statistics": "aggregated",
    "precision": "mixed",
    "sums": "exact",
}
"""For each setting in which a run and the one that goes on must agree another value."""


def test_all_settings_that_make_a_run_are_compared(small, tmp_path):
    """Whatever decides what is learned: all settings of a history but those that are known to decide nothing of it."""
    free = {"devices", "processes", "environment", "epochs", "allreduce", "init", "loads"}
    free |= {"invert"}  # data have it
    free |= {"split", "pipeline", "micro_batches"}  # by which the same is computed, see test_splits.py
    outcome = {"train_loss", "train_accuracy", "test_accuracy", "seconds_per_epoch", "examples_per_second", "phases"}
    outcome |= {"utilisation", "test_loss", "metrics", "interrupted", "diverged", "final_parameters_sha256"}
    outcome |= {"peak_memory", "learning_rate", "learning_rates"}
    told = {field.name for field in dataclasses.fields(d2l.History)} - {"settings"} | set(d2l.Settings().recorded())
    assert told - free - outcome == set(OTHERS)
    file, settings = tmp_path / "file", {"network": "lenet-bn", "batch_size": 200, "lr": 0.01}
    quick([d2l.cpu(0)], small, num_epochs=1, checkpoint=file, **settings)
    for name, value in OTHERS.items():
        data = (*small, value) if name == "classes" else small
        other = {} if name == "classes" else {name: value}
        if name == "sums":  # which local statistics do not go together with
            other["network"] = "lenet"
        with pytest.raises(CheckpointError, match=f"this is another run: (.*; )?{name} is .* here and .* in the check"):
            quick([d2l.cpu(0)], data, resume=file, **{**settings, **other})


def own(pool):
    layers = d2l.networks.Conv2d(2, 5), d2l.networks.ReLU(), pool, d2l.networks.Flatten(), d2l.networks.Dense(10)
    return d2l.networks.sequential((1, 28, 28), *layers)


def falling(progress):
    return 1 - progress / 2


def darker(X, y, rng):
    return X / 2, y


def lighter(X, y, rng):
    return np.sqrt(X), y


def test_a_function_of_ones_own_goes_on_under_its_name(small, tmp_path):
    """What it does is not compared. All schedules have one name."""
    file, settings = tmp_path / "file", {"batch_size": 200, "lr": 0.01}
    quick([d2l.cpu(0)], small, num_epochs=1, checkpoint=file, schedule=falling, **settings)
    history = quick([d2l.cpu(0)], small, num_epochs=2, resume=file, schedule=lambda progress: 0.9, **settings).history
    assert len(history.train_loss) == 2


@pytest.mark.parametrize(
    "setting, other, message",
    [
        (
            {"preprocess": darker},
            {"preprocess": lighter},
            "preprocess is 'lighter' here and 'darker' in the .*",
        ),
        ({"schedule": falling}, {"schedule": "step"}, "schedule is 'step' here and 'custom' in the checkpoint"),
        (
            {"network": own(d2l.networks.AvgPool2d(2))},
            {"network": own(d2l.networks.MaxPool2d(2))},
            "the network has other layers than in the checkpoint",
        ),
    ],
)
def test_another_function_or_layer_is_another_run(small, tmp_path, setting, other, message):
    file, settings = tmp_path / "file", {"batch_size": 200, "lr": 0.01}
    quick([d2l.cpu(0)], small, num_epochs=1, checkpoint=file, **settings, **setting)
    with pytest.raises(CheckpointError, match=f"^resume: this is another run: {message}$"):
        quick([d2l.cpu(0)], small, num_epochs=2, resume=file, **settings, **other)


COMMAND = ["train", "--environment", "cpu", "--devices", "2", "--limit", "3000", "--epochs", "5", "--init", "he"]


@pytest.mark.long
def test_killed_at_any_moment(tmp_path, capsys, rng):
    """SIGKILL, many times over, also while a checkpoint is being written: the run still ends as it should."""
    file, result = tmp_path / "file", tmp_path / "result.json"
    assert cli.main([*COMMAND, "--json", str(tmp_path / "whole.json")]) == 0
    kills = 0
    for _ in range(60):
        resume = ["--resume", str(file)] if file.exists() else []
        command = [*COMMAND, "--checkpoint", str(file), "--checkpoint-steps", "1", *resume, "--json", str(result)]
        process = subprocess.Popen([sys.executable, "-m", "d2lmgpu", *command], stdout=subprocess.DEVNULL)
        started = file.stat().st_mtime_ns if file.exists() else 0
        while process.poll() is None and kills < 20:
            if (file.stat().st_mtime_ns if file.exists() else 0) != started:
                time.sleep(float(rng.uniform(0, 0.03)))  # somewhere in the next step or its checkpoint
                process.send_signal(signal.SIGKILL)
                kills += process.wait() == -signal.SIGKILL
                break
            time.sleep(0.001)
        if process.wait() == 0:
            break
        if file.exists():
            load_checkpoint(file)
    assert kills >= 15, "the run was over too early to be killed often"
    whole, resumed = (json.loads((tmp_path / name).read_text()) for name in ("whole.json", "result.json"))
    for name in ("train_loss", "train_accuracy", "test_accuracy", "final_parameters_sha256"):
        assert resumed[name] == whole[name]
    capsys.readouterr()


def test_measured_loads_are_kept(small, tmp_path, monkeypatch):
    """A resumed run does not measure again, or its sums would be rounded differently."""
    devices, file = [d2l.cpu(0), d2l.cpu(1)], tmp_path / "file"
    monkeypatch.setattr("d2lmgpu.training.make_runner.measure_loads", lambda *args: [0.7, 0.3])
    whole = quick(devices, small, loads="auto", num_epochs=2)
    quick(devices, small, loads="auto", num_epochs=1, checkpoint=file)
    monkeypatch.setattr("d2lmgpu.training.make_runner.measure_loads", lambda *args: [0.4, 0.6])
    resumed = quick(devices, small, loads="auto", num_epochs=2, resume=file)
    assert resumed.history.loads == [0.7, 0.3]
    assert resumed.history.final_parameters_sha256 == whole.history.final_parameters_sha256


def test_invert_forgotten_when_a_run_goes_on(tmp_path, small):
    """The checksum of the data tells that they differ; the history, why."""
    file, (X, y, *test) = tmp_path / "file", small
    quick([d2l.cpu(0)], (255 - X, y, *test), num_epochs=1, invert=True, checkpoint=file)
    with pytest.raises(CheckpointError, match="another run: invert is False here and True in the checkpoint$"):
        quick([d2l.cpu(0)], small, resume=file)
