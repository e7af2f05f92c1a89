"""Callbacks, event files, and how busy the devices were."""

import io

import numpy as np
import pytest
from conftest import LONG_ON_STANDIN
from test_training import quick

import d2lmgpu as d2l
from d2lmgpu import cli
from d2lmgpu.devices.timeline import Timeline
from d2lmgpu.training import monitor


class Record(d2l.Callback):
    def __init__(self, end_at=None):
        self.calls, self.end_at = [], end_at

    def on_start(self, history, steps):
        self.calls.append(("start", history.network, steps))

    def on_step(self, epoch, step, loss):
        self.calls.append(("step", epoch, step, loss))
        return ("step", epoch, step) == self.end_at

    def on_epoch(self, history):
        self.calls.append(("epoch", len(history.train_loss)))
        return self.calls[-1] == self.end_at

    def on_end(self, history):
        self.calls.append(("end", history.final_parameters_sha256, history.interrupted))


@LONG_ON_STANDIN
def test_what_is_called_when(make_devices, small):
    record = Record()
    history, _ = quick(make_devices(2), small, batch_size=250, callbacks=[record, d2l.Callback()])
    names = [call[:3] if call[0] == "step" else call[:2] for call in record.calls]
    steps = [[("step", epoch, step) for step in (1, 2, 3)] for epoch in (0, 1)]
    end = ("end", history.final_parameters_sha256)
    assert names == [("start", "lenet"), *steps[0], ("epoch", 1), *steps[1], ("epoch", 2), end]
    assert record.calls[0][2] == 3 and record.calls[-1][2] is None
    losses = [call[3] for call in record.calls if call[0] == "step"]
    assert all(loss is None or 0 <= loss < 10 for loss in losses)


def test_the_loss_so_far_is_of_the_steps_that_were_waited_for(small, tmp_path):
    """A step ahead of the devices, that is what the run without prefetching said a step before."""
    file = tmp_path / "run.npz"
    runs, settings = {}, {"batch_size": 250, "num_epochs": 1}  # 250, 250, 100 examples
    for prefetch in (False, True):
        record = Record()
        history, _ = quick([d2l.cpu(0)], small, **settings, prefetch=prefetch, callbacks=[record])
        runs[prefetch] = [call[3] for call in record.calls if call[0] == "step"]
    assert runs[False][-1] == pytest.approx(history.train_loss[0]) and runs[False][0] > 2  # a guess costs 2.3
    assert runs[True] == [None, *runs[False][:-1]]
    quick([d2l.cpu(0)], small, **settings, checkpoint=file, callbacks=[Record(("step", 0, 2))])
    quick([d2l.cpu(0)], small, **settings, resume=file, callbacks=[record := Record()])
    assert [call[3] for call in record.calls if call[0] == "step"] == runs[False][1:2]


@pytest.mark.parametrize("end_at", [("step", 1, 2), ("epoch", 1)])
def test_a_callback_ends_training(small, end_at):
    record = Record(end_at)
    history, params = quick([d2l.cpu(0)], small, batch_size=250, num_epochs=4, callbacks=[record])
    epoch, steps = (2, 2) if end_at[0] == "step" else (1, 3)
    assert (history.interrupted["epoch"], history.interrupted["steps"]) == (epoch, steps)
    assert len(history.train_loss) == 1 and record.calls[-1][0] == "end" and len(params) == 8


@pytest.mark.parametrize("network, split", [("lenet-bn", None), ("lenet", "layers")])
def test_the_model_as_it_is_now(small, network, split):
    """After each epoch, as a run of so many epochs would have it; a copy, which later steps do not change."""
    models = []

    class Keep(d2l.Callback):
        def on_epoch(self, history):
            models.append(self.model())

    how = {"batch_size": 150, "network": network, "split": split, "init": "he"}
    keep = Keep()
    result = quick(2, small, num_epochs=2, callbacks=[keep], **how)
    for model, expected in zip(models, (quick(2, small, num_epochs=1, **how), result), strict=True):
        for one, other in zip(
            [*model.params, *model.statistics], [*expected.params, *expected.statistics], strict=True
        ):
            np.testing.assert_array_equal(one, other)
    for callback in (Keep(), keep):  # which lets go of the run, and of what it has on the devices
        with pytest.raises(ValueError, match="while train calls it"):
            callback.model()


def events(file):
    """(step, value) of an event file, with tensorboardX's protocol buffers."""
    from tensorboardX.proto.event_pb2 import Event

    content, start = file.read_bytes(), 0
    while start < len(content):  # records of a length (8 bytes), its checksum (4), an event, its checksum (4)
        size = int.from_bytes(content[start : start + 8], "little")
        event = Event.FromString(content[start + 12 : start + 12 + size])
        yield from ((event.step, value) for value in event.summary.value)
        start += 16 + size


def test_histograms_for_tensorboard(tmp_path, small):
    result = quick([d2l.cpu(0)], small, num_epochs=2, callbacks=[d2l.TensorBoard(tmp_path, histograms=True)])
    (file,) = tmp_path.iterdir()
    found = [(step, value.tag, value.histo) for step, value in events(file) if value.tag.startswith("parameters/")]
    assert [tag for _, tag, _ in found] == [f"parameters/{i}" for _ in range(2) for i in range(8)]
    for (step, _, histogram), param in zip(found[8:], result.params, strict=True):
        assert step == 2 * found[0][0] and histogram.num == param.size
        assert (histogram.min, histogram.max) == pytest.approx((param.min(), param.max()))
        assert sum(histogram.bucket) == param.size
    with pytest.raises(ValueError, match="histograms is 2; it should be True or False"):
        d2l.TensorBoard(tmp_path, histograms=2)


def test_event_files_for_tensorboard(tmp_path, small):
    history, _ = quick([d2l.cpu(0)], small, batch_size=250, callbacks=[d2l.TensorBoard(tmp_path / "log")])
    (file,) = (tmp_path / "log").iterdir()
    values = {}
    for step, value in events(file):
        values.setdefault(value.tag, []).append((step, value.simple_value))
    assert [step for step, _ in values["loss/training"]] == [3, 6]
    assert [value for _, value in values["loss/training"]] == pytest.approx(history.train_loss)
    assert [value for _, value in values["accuracy/training"]] == pytest.approx(history.train_accuracy)
    assert [value for _, value in values["accuracy/test"]] == pytest.approx(history.test_accuracy)
    steps = [step for step, _ in values["loss/so_far"]]
    assert {2, 3, 5, 6} <= set(steps) <= set(range(1, 7)) and steps == sorted(
        set(steps)
    )  # 3 an epoch, one after another
    assert len(values["seconds/epoch"]) == 2
    command = ["train", "--environment", "cpu", "--limit", "300", "--epochs", "1"]
    assert cli.main([*command, "--tensorboard", str(tmp_path / "again")]) == 0
    assert len(list((tmp_path / "again").iterdir())) == 1


def test_what_is_told_where_there_is_no_terminal(small, capsys, monkeypatch):
    """Lines on standard error, as often as there was silence; the test set is evaluated in parts."""
    monkeypatch.setattr("d2lmgpu.training.accuracy.EVALUATION_BATCH", 60)
    settings = {"batch_size": 250, "num_epochs": 1, "progress": True}
    monkeypatch.setattr(monitor, "SILENCE", -1)
    quick([d2l.cpu(0), d2l.cpu(1)], small, **settings)
    out, err = capsys.readouterr()
    examples = [f"epoch 1/1: {n} of 600 examples" for n in (250, 500, 600)]
    images = [f"epoch 1/1: evaluating, {n} of 100 images" for n in (0, 60, 100)]
    assert [line.partition(", loss")[0] for line in err.splitlines()] == [*examples, *images]
    assert err.count(", loss ") == 2 and out.startswith("epoch 1/1: loss ") and out.count("\n") == 1
    monkeypatch.setattr(monitor, "SILENCE", 1000)
    quick([d2l.cpu(0)], small, **settings)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(monitor, "SILENCE", -1)
    quick([d2l.cpu(0)], small, **settings | {"progress": False})
    assert capsys.readouterr() == ("", "")


def test_a_bar_tells_of_the_evaluation(small, monkeypatch):
    class Terminal(io.StringIO):
        isatty = lambda self: True  # noqa: E731

    monkeypatch.setattr("d2lmgpu.training.accuracy.EVALUATION_BATCH", 60)
    monkeypatch.setattr(monitor, "SILENCE", -1)
    monkeypatch.setattr("sys.stderr", Terminal())
    quick([d2l.cpu(0)], small, num_epochs=1, progress=True)
    shown = __import__("sys").stderr.getvalue()
    assert all(f"epoch 1/1, evaluating {n}/100" in shown for n in (0, 60, 100)) and "of 600 examples" not in shown


@pytest.mark.parametrize("end_at", [None, ("step", 1, 2)])
def test_callbacks_hear_of_the_evaluation(small, end_at):
    class Hear(Record):
        def on_evaluate(self, history):
            self.calls.append(("evaluate", len(history.train_loss)))

    quick([d2l.cpu(0)], small, batch_size=250, callbacks=[hear := Hear(end_at)])
    calls = [call[:2] if call[0] == "step" else call[:1] for call in hear.calls]
    first, second = ([*[("step", epoch)] * 3, ("evaluate",), ("epoch",)] for epoch in (0, 1))
    expected = [("start",), *first, *second]
    if end_at:
        expected = [*expected[:-3], ("evaluate",)]
    assert calls == [*expected, ("end",)]


class Busy(d2l.Callback):
    """Lets devices work between the epochs, which is no training."""

    def __init__(self, devices, images):
        X, y = d2l.to_float(images), np.zeros(len(images), int)
        self.arrays = [(d2l.put(X, d), d2l.put(y, d), d2l.get_params(d2l.init_params(), d)) for d in devices]

    def on_epoch(self, history):
        for _ in range(2):
            for arrays in self.arrays:
                arrays[0].device.run(d2l.loss_and_grads, *arrays)


@LONG_ON_STANDIN
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("loads", [None, [1, 0], [0, 0, 1]])
def test_phases_are_those_of_the_epochs_alone(make_devices, small, loads, overlap):
    """The test set is as large as the training set, and callbacks use the devices: nothing of that is training."""
    devices = make_devices(len(loads or "ab"))
    X, y, _, _ = (array[:16] for array in small)
    settings = {"loads": loads, "overlap": overlap, "batch_size": 10, "num_epochs": 2, "graphs": False}
    history, _ = quick(devices, (X, y, X, y), **settings, callbacks=[Busy(devices, X)])
    seconds = sum(history.seconds_per_epoch)
    phases = dict(history.phases)
    evaluation, data = phases.pop("evaluate"), phases.pop("data")
    assert evaluation > 0 and data > 0 and min(phases.values()) >= 0
    assert sum(phases.values()) == pytest.approx(seconds)
    shares = list(history.utilisation.values())
    assert list(history.utilisation) == history.devices
    assert [share > 0 for share in shares] == [load > 0 for load in loads or [1, 1]]
    assert sum(shares) / len(devices) == pytest.approx((phases["forward"] + phases["backward"]) / seconds)


def test_what_is_measured_of_long_epochs_takes_no_memory(small, monkeypatch):
    """It is summed now and then, which changes nothing."""
    held = {2: [], 10**6: []}
    runs = {}
    for steps, most in held.items():
        monkeypatch.setattr("d2lmgpu.training.loop.SETTLE_EVERY", steps)
        timeline = Timeline([d2l.cpu(0), d2l.cpu(1)])

        class Look(d2l.Callback):
            def on_step(self, epoch, step, loss, timeline=timeline, most=most):
                most.append(len(timeline._readings))

        runs[steps] = quick(timeline.devices, small, batch_size=30, timeline=timeline, callbacks=[Look()]).history
    assert 4 * max(held[2]) < max(held[10**6])
    assert runs[2].final_parameters_sha256 == runs[10**6].final_parameters_sha256
    for history in runs.values():
        phases = {name: seconds for name, seconds in history.phases.items() if name not in ("data", "evaluate")}
        assert sum(phases.values()) == pytest.approx(sum(history.seconds_per_epoch))
        assert min(phases["forward"], phases["backward"], phases["allreduce"], phases["update"]) > 0


def test_how_busy_the_devices_were():
    history = d2l.History(["cpu(0)", "cpu(1)"], "cpu", d2l.Settings().recorded())
    history.utilisation = {"cpu(0)": 0.9, "cpu(1)": 0.6}
    assert history.balance() == "devices worked 90%, 60% of the time, the busiest 20% more than the mean"
    history.utilisation = {"cpu(0)": 0.5, "cpu(1)": 0.5}
    assert history.balance() == "devices worked 50%, 50% of the time"
