"""Callbacks, event files, and how busy the devices were."""

import numpy as np
import pytest
from conftest import LONG_ON_STANDIN
from runs import DATA, PLAIN, TINY, brief, cpus

import d2lmgpu as d2l
from d2lmgpu.devices.timeline import Timeline
from d2lmgpu.training import monitor

THREE_STEPS = {"batch_size": 25}
"""An epoch: of 25, 25 and 10 examples."""


class Record(d2l.Callback):
    """What is called when. ``end_at``: the beginning of a call that asks for the end."""

    def __init__(self, end_at=()):
        self.calls, self.end_at = [], end_at

    def _note(self, *call):
        self.calls.append(call)
        return self.end_at != () and call[: len(self.end_at)] == self.end_at

    def on_start(self, history, steps):
        self._note("start", history.network, steps)

    def on_step(self, epoch, step, loss):
        return self._note("step", epoch, step, loss)

    def on_evaluate(self, history):
        return self._note("evaluate", len(history.train_loss))

    def on_epoch(self, history):
        return self._note("epoch", len(history.train_loss))

    def on_end(self, history):
        self._note("end", history.final_parameters_sha256)

    def losses(self):
        return [call[3] for call in self.calls if call[0] == "step"]


@LONG_ON_STANDIN
def test_what_is_called_when(make_devices):
    record = Record()
    history, _ = brief(make_devices(2), network=PLAIN, callbacks=[record, d2l.Callback()], **THREE_STEPS)
    steps = [[("step", epoch, step) for step in (1, 2, 3)] for epoch in (0, 1)]
    epochs = [[*steps[epoch], ("evaluate", epoch), ("epoch", epoch + 1)] for epoch in (0, 1)]
    end = ("end", history.final_parameters_sha256)
    assert [call[:3] for call in record.calls] == [("start", "custom", 3), *epochs[0], *epochs[1], end]
    assert all(loss is None or 0 <= loss < 10 for loss in record.losses())


@pytest.mark.parametrize(
    "end_at, epoch, steps, then",
    [
        (("step", 1, 2), 2, 2, [("evaluate", 1)]),
        (("step", 0, 3), 1, 3, [("evaluate", 0), ("epoch", 1)]),
        (("evaluate", 0), 1, 3, [("epoch", 1)]),
        (("epoch", 1), 1, 3, []),
    ],
)
def test_a_callback_ends_training(end_at, epoch, steps, then):
    record = Record(end_at)
    history, params = brief(cpus(1), num_epochs=4, callbacks=[record], **THREE_STEPS)
    assert (history.interrupted["epoch"], history.interrupted["steps"]) == (epoch, steps)
    assert len(history.train_loss) == 1 and len(params) == 6
    calls = [call[:3] for call in record.calls]
    assert calls[calls.index(end_at) + 1 :] == [*then, ("end", history.final_parameters_sha256)]


def test_the_loss_so_far_is_of_the_steps_that_were_waited_for():
    """A step ahead of the devices, that is what the run without prefetching said a step before."""
    runs, settings = {}, {"num_epochs": 1, **THREE_STEPS}
    for prefetch in (False, True):
        record = Record()
        history, _ = brief(cpus(1), **settings, prefetch=prefetch, callbacks=[record])
        runs[prefetch] = record.losses()
    assert runs[False][-1] == pytest.approx(history.train_loss[0]) and runs[False][0] > 1  # a guess costs 1.4
    assert runs[True] == [None, *runs[False][:-1]]


@pytest.mark.parametrize("network, split", [(TINY, None), (PLAIN, "layers")])
def test_the_model_as_it_is_now(network, split):
    """After each epoch, as a run of so many epochs would have it; a copy, which later steps do not change."""
    models = []

    class Keep(d2l.Callback):
        def on_epoch(self, history):
            models.append(self.model())

    keep, settings = Keep(), {"network": network, "split": split}
    result = brief(2, callbacks=[keep], **settings)
    for model, expected in zip(models, (brief(2, num_epochs=1, **settings), result), strict=True):
        for one, other in zip(model.params + model.statistics, expected.params + expected.statistics, strict=True):
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


def test_histograms_for_tensorboard(tmp_path):
    result = brief(cpus(1), callbacks=[d2l.TensorBoard(tmp_path, histograms=True)])
    (file,) = tmp_path.iterdir()
    found = [(step, value.tag, value.histo) for step, value in events(file) if value.tag.startswith("parameters/")]
    assert [tag for _, tag, _ in found] == [f"parameters/{i}" for _ in range(2) for i in range(6)]
    for (step, _, histogram), param in zip(found[6:], result.params, strict=True):
        assert step == 2 * found[0][0] and histogram.num == sum(histogram.bucket) == param.size
        assert (histogram.min, histogram.max) == pytest.approx((param.min(), param.max()))


def test_event_files_for_tensorboard(tmp_path):
    history, _ = brief(cpus(1), callbacks=[d2l.TensorBoard(tmp_path / "log")], **THREE_STEPS)
    (file,) = (tmp_path / "log").iterdir()
    values = {}
    for step, value in events(file):
        values.setdefault(value.tag, []).append((step, value.simple_value))
    for tag, told in (("loss/training", history.train_loss), ("accuracy/training", history.train_accuracy)):
        assert values[tag] == [(3, pytest.approx(told[0])), (6, pytest.approx(told[1]))]
    assert [value for _, value in values["accuracy/test"]] == pytest.approx(history.test_accuracy)
    steps = [step for step, _ in values["loss/so_far"]]
    assert {2, 3, 5, 6} <= set(steps) <= set(range(1, 7)) and steps == sorted(set(steps))  # one after another
    assert len(values["seconds/epoch"]) == 2


def test_what_is_told_where_there_is_no_terminal(capsys, monkeypatch):
    """Lines on standard error, as often as there was silence."""
    settings = {"num_epochs": 1, "progress": True, **THREE_STEPS}
    monkeypatch.setattr(monitor, "SILENCE", -1)
    brief(cpus(2), **settings)
    out, err = capsys.readouterr()
    examples = [f"epoch 1/1: {n} of 60 examples" for n in (25, 50, 60)]
    assert [line.partition(", loss")[0] for line in err.splitlines()] == examples
    assert err.count(", loss ") == 2 and out.startswith("epoch 1/1: loss ") and out.count("\n") == 1
    brief(cpus(1), **settings | {"progress": False})
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(monitor, "SILENCE", 1000)
    brief(cpus(1), **settings)
    assert capsys.readouterr().err == ""


class Busy(d2l.Callback):
    """Lets devices work between the epochs, which is no training."""

    def __init__(self, devices):
        self.arrays = [d2l.put(np.zeros((500, 500)), device) for device in devices]

    def on_epoch(self, history):
        for x in self.arrays:
            x.device.run(np.matmul, x, x)


@LONG_ON_STANDIN
@pytest.mark.parametrize("loads, overlap", [(None, True), ([1, 0], False), ([0, 0, 1], True), (None, False)])
def test_phases_are_those_of_the_epochs_alone(make_devices, loads, overlap):
    """The test set is as large as the training set, and callbacks use the devices: nothing of that is training."""
    devices = make_devices(len(loads or "ab"))
    X, y = DATA[0][:16], DATA[1][:16]
    settings = {"loads": loads, "overlap": overlap, "graphs": False, "network": PLAIN}
    history, _ = brief(devices, (X, y, X, y), **settings, callbacks=[Busy(devices)])
    seconds, phases = sum(history.seconds_per_epoch), dict(history.phases)
    assert phases.pop("evaluate") > 0 and phases.pop("data") > 0 and min(phases.values()) >= 0
    assert sum(phases.values()) == pytest.approx(seconds)
    shares = list(history.utilisation.values())
    assert list(history.utilisation) == history.devices
    assert [share > 0 for share in shares] == [load > 0 for load in loads or [1, 1]]
    assert sum(shares) / len(devices) == pytest.approx((phases["forward"] + phases["backward"]) / seconds)


@pytest.mark.parametrize("every, most", [(2, 100), (10**6, 10**6)])
def test_what_is_measured_of_long_epochs_takes_no_memory(monkeypatch, every, most):
    """It is summed now and then, which changes nothing."""
    monkeypatch.setattr("d2lmgpu.training.loop.SETTLE_EVERY", every)
    timeline, held = Timeline(cpus(2)), []

    class Look(d2l.Callback):
        def on_step(self, epoch, step, loss):
            held.append(len(timeline._readings))

    history = brief(timeline.devices, batch_size=3, timeline=timeline, callbacks=[Look()]).history
    assert max(held) < most and (max(held) > 100) == (most > 100)
    phases = {name: seconds for name, seconds in history.phases.items() if name not in ("data", "evaluate")}
    assert sum(phases.values()) == pytest.approx(sum(history.seconds_per_epoch))
    assert min(phases["forward"], phases["backward"], phases["allreduce"], phases["update"]) > 0
