"""Runs that go on from a checkpoint as if nothing had happened, and those that are refused since they are others."""

import os

import pytest
from conftest import long
from runs import DATA, Stopped, brief, cpus, run_until

import d2lmgpu as d2l
from d2lmgpu.networks import AvgPool2d, BatchNorm, Conv2d, Dense, Dropout, Flatten, MaxPool2d, ReLU, sequential
from d2lmgpu.training.checkpoints import Checkpoint, CheckpointError, load_checkpoint, save_checkpoint
from d2lmgpu.training.settings import SAME
from d2lmgpu.training.textbook_steps import TextbookSteps

OUTCOME = "train_loss", "train_accuracy", "test_accuracy", "final_parameters_sha256"


def outcome(history):
    return [getattr(history, name) for name in OUTCOME]


BREAKS = [(2, "cpu", "local"), (6, "cpu", "aggregated"), (11, "cpu", "local"), (15, "cpu", "aggregated")]
"""After how many of 18 steps the run breaks off, six of which are an epoch."""


@pytest.mark.parametrize(
    "steps, device_kind, batch_statistics",
    BREAKS
    + long((11, "standin", "aggregated"))
    + [pytest.param(steps, "gpu", how, marks=pytest.mark.real_gpu) for steps, _, how in BREAKS],
    indirect=["device_kind"],
)
def test_a_resumed_run_equals_an_uninterrupted_one(make_devices, tmp_path, monkeypatch, steps, batch_statistics):
    devices, file = make_devices(2), tmp_path / "file"
    settings = {"optimizer": "adam", "lr": 0.01, "num_epochs": 3, "batch_statistics": batch_statistics}
    whole = brief(devices, **settings)
    run_until(monkeypatch, steps, devices, DATA, brief, checkpoint=file, checkpoint_steps=2, **settings)
    resumed = brief(devices, resume=file, **settings)
    assert outcome(resumed.history) == outcome(whole.history)
    for array, expected in zip(resumed.statistics, whole.statistics, strict=True):
        assert array.tobytes() == expected.tobytes()


def test_everything_in_the_file_counts(tmp_path, monkeypatch):
    """So that what is equal above need not be: with other arrays a run ends elsewhere."""
    file, settings = tmp_path / "file", {"optimizer": "adam", "lr": 0.01}
    run_until(monkeypatch, 7, cpus(1), DATA, brief, checkpoint=file, checkpoint_steps=2, **settings)
    state, arrays = load_checkpoint(file)
    ends = [brief(cpus(1), resume=file, **settings).history.final_parameters_sha256]
    for name in arrays:
        others = [array + array.dtype.type(0.01) for array in arrays[name]]
        save_checkpoint(file, Checkpoint(state, arrays | {name: others}))
        ends.append(brief(cpus(1), resume=file, **settings).history.final_parameters_sha256)
    assert len(arrays) >= 3 and len(set(ends)) == len(ends)


class Break(d2l.Callback):
    """Keeps what callbacks are told of each step, and ends the run after a step, by an exception or a request."""

    def __init__(self, after=None, how=Stopped):
        self.after, self.how, self.told = after, how, []

    def on_step(self, epoch, step, loss):
        self.told.append((epoch, step, loss))
        if len(self.told) == self.after:
            if self.how is Stopped:
                raise Stopped
            return True
        return False


@pytest.mark.parametrize("split", [None, "zero1"])
def test_examples_of_the_break_count_once(tmp_path, split):
    """In the losses that callbacks are told, and in the speed: of all epochs' examples and seconds."""
    file, settings = tmp_path / "file", {"batch_size": 25, "num_epochs": 3, "split": split}
    whole, resumed = Break(), Break()
    brief(cpus(2), callbacks=[whole], **settings)
    with pytest.raises(Stopped):  # after the second epoch's last step; each has 25, 25 and 10 examples
        brief(cpus(2), checkpoint=file, checkpoint_steps=2, callbacks=[Break(6)], **settings)
    saved = load_checkpoint(file).state
    assert saved["position"]["steps"] == 2
    saved["position"]["seconds"] += 1000
    save_checkpoint(file, Checkpoint(saved, load_checkpoint(file).arrays))
    history = brief(cpus(2), resume=file, callbacks=[resumed], **settings).history
    assert resumed.told == whole.told[5:]
    first, second, third = history.seconds_per_epoch
    assert first == saved["history"]["seconds_per_epoch"][0] and 1000 < second and third < 1000
    assert history.examples_per_second == pytest.approx(3 * 60 / (first + second + third))
    assert min(history.utilisation.values()) > 1e-3  # of the seconds since the break
    assert sum(history.phases.values()) < 1000


@pytest.mark.parametrize(
    "every, together", [(1, True), (3, False), (4, True), (7, False), *long((2, False), (5, True))]
)
def test_a_checkpoint_after_every_so_many_steps(tmp_path, monkeypatch, every, together):
    """Counted in each epoch, of 6 steps, whose end is one of its own: what is in it is what these steps made.

    Also where a runner does all the steps ``together`` that it may, as on GPUs.
    """
    if together:
        one = TextbookSteps.launch
        monkeypatch.setattr(TextbookSteps, "launch", lambda self, most: sum((one(self, 1) for _ in range(most)), []))
    file, written = tmp_path / "file", []

    def save(path, checkpoint):
        written.append(tuple(checkpoint.state["position"][name] for name in ("epoch", "steps")))
        assert checkpoint.state["optimizer_steps"] == 6 * written[-1][0] + written[-1][1]

    monkeypatch.setattr("d2lmgpu.training.resume.save_checkpoint", save)
    brief(cpus(1), optimizer="momentum", checkpoint=file, checkpoint_steps=every)
    within = list(range(every, 6, every))
    assert written == [(0, steps) for steps in within] + [(1, 0)] + [(1, steps) for steps in within] + [(2, 0)]


def test_a_finished_run_goes_on_to_more_epochs(tmp_path):
    file = tmp_path / "file"
    brief(cpus(1), num_epochs=1, checkpoint=file)
    whole = brief(cpus(1), num_epochs=3, checkpoint=file, resume=file)
    again = brief(cpus(1), num_epochs=3, resume=file)  # nothing is left to do
    assert outcome(again.history) == outcome(whole.history)
    with pytest.raises(CheckpointError, match="beyond epoch 2; ask for more epochs"):
        brief(cpus(1), num_epochs=2, resume=file)


DROPOUT = sequential((1, 8, 8), Flatten(), Dense(20), Dropout(0.5), Dense(4))


def falling(progress):
    return 1 - progress / 2


@pytest.mark.parametrize(
    "first, steps, then, settings",  # epochs and steps before the break, and epochs in all
    [
        *long((2, None, 4, {"warmup": 0.5, "optimizer": "momentum", "lr": 0.02})),
        (2, 9, 4, {"optimizer": "adam", "lr": 0.002, "preprocess": "flip+shift"}),
        (2, None, 4, {"precision": "mixed", "drop_last": True, "loads": [2, 1], "schedule": lambda progress: 0.7}),
        (2, None, 4, {"network": DROPOUT, "weight_decay": 1e-3, "micro_batches": 2, "split": "layers"}),
        *long((4, 12, 4, {"schedule": "cosine"})),  # a run that was stopped
    ],
)
def test_a_resumed_run_has_the_bits_of_an_unbroken_one(tmp_path, first, steps, then, settings):
    file, settings = tmp_path / "file", {"lr": 0.1, **settings}
    whole = brief(cpus(2), num_epochs=then, **settings).history
    brief(cpus(2), num_epochs=first, checkpoint=file, callbacks=[Break(steps, "by a request")], **settings)
    resumed = brief(cpus(2), num_epochs=then, resume=file, **settings).history
    assert resumed.final_parameters_sha256 == whole.final_parameters_sha256


@pytest.mark.parametrize(
    "settings, changed",
    [
        ({}, {"flat": False, "prefetch": False}),
        ({"sums": "exact"}, {"devices": 3, "algorithm": "tree"}),
        ({"loads": "auto"}, {}),  # a resumed run does not measure again, or its sums would be rounded differently
    ],
)
def test_what_keeps_the_bits_of_a_resumed_run(tmp_path, monkeypatch, settings, changed):
    """A file for the best model is new here, too."""
    file, measured = tmp_path / "file", iter([[0.7, 0.3], [0.7, 0.3], [0.4, 0.6]])
    monkeypatch.setattr("d2lmgpu.training.make_runner.measure_loads", lambda *args: next(measured))
    settings = {"devices": 2, "network": DROPOUT} | settings
    whole = brief(**settings).history
    brief(**settings, num_epochs=1, checkpoint=file)
    resumed = brief(**settings | changed, resume=file, keep_best=tmp_path / "best").history
    assert outcome(resumed) == outcome(whole) and resumed.loads == whole.loads


OTHERS = {
    "network": "lenet-bn",
    "width": 2,
    "loss": "squared_error",
    "optimizer": "momentum",
    "weight_decay": 0.1,
    "seed": 1,
    "batch_size": 25,
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


def test_all_settings_that_make_a_run_are_compared(tmp_path):
    """Whatever decides what is learned; others decide how the same is computed, or when the run ends."""
    free = {"epochs", "allreduce", "init", "loads", "split", "pipeline", "micro_batches"}
    assert set(d2l.Settings().recorded()) - free == set(OTHERS) == set(SAME)
    X, y, X_test, y_test = (part[:12] for part in d2l.load_fashion_mnist())
    file, settings = tmp_path / "file", {"data": (X, y, X_test, y_test), "batch_size": 6, "lr": 0.01}
    brief(cpus(1), num_epochs=1, checkpoint=file, network="lenet", **settings)
    networks = {"network": "lenet-bn", "batch_statistics": "lenet-bn"}  # which goes with both of its values
    for name, value in OTHERS.items():
        other = {"network": networks.get(name, "lenet"), name: value}
        with pytest.raises(CheckpointError, match=f"this is another run: (.*; )?{name} is .* here and .* in the check"):
            brief(cpus(1), resume=file, **settings | other)


def own(pool):
    return {"network": sequential((1, 8, 8), Conv2d(2, 3), ReLU(), pool, BatchNorm(), Flatten(), Dense(4))}


def darker(X, y, rng):
    return X / 2, y


X, Y, *TEST = DATA
ANOTHER_RUN = "resume: this is another run: "


@pytest.mark.parametrize(
    "first, then, said",
    [
        ({}, {"checkpoint": "file", "resume": None}, "file exists; resume from it"),
        ({}, {"lr": 0.2, "seed": 1}, f"{ANOTHER_RUN}lr is 0.2 here and 0.1 in .*; seed is 1 here and 0 in"),
        ({}, {"network": DROPOUT}, "parameters have shapes"),
        ({}, {"data": (X[::-1], Y, *TEST)}, "the training examples are others"),
        ({"data": (255 - X, Y, *TEST), "invert": True}, {}, "invert is False here and True in the checkpoint$"),
        ({"data": (*DATA, list("abcd"))}, {}, r"classes is None here and \['a', 'b', 'c', 'd'\] in the checkpoint$"),
        ({"preprocess": darker}, {}, "preprocess is None here and 'darker' in the "),
        ({"schedule": falling}, {"schedule": "step"}, "schedule is 'step' here and 'custom' in the checkpoint"),
        (own(AvgPool2d(2)), own(MaxPool2d(2)), "the network has other layers than in the checkpoint"),
        ({"schedule": falling}, {"schedule": lambda progress: 0.9}, None),  # what a function does is not compared
    ],
)
def test_nothing_is_overwritten_or_mixed_up(tmp_path, monkeypatch, first, then, said):
    monkeypatch.chdir(tmp_path)
    brief(cpus(1), num_epochs=1, checkpoint="file", **first)
    before, then = (tmp_path / "file").read_bytes(), {"resume": "file"} | then
    if said is None:
        assert len(brief(cpus(1), **then).history.train_loss) == 2
    else:
        with pytest.raises(ValueError, match=said):
            brief(cpus(1), **then)
    assert (tmp_path / "file").read_bytes() == before and os.listdir(tmp_path) == ["file"]
