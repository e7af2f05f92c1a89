"""Callbacks, event files, and how busy the devices were."""

import pytest
from test_training import quick

import d2lmgpu as d2l
from d2lmgpu import cli


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


def test_event_files_for_tensorboard(tmp_path, small, capsys):
    from tensorboardX.proto.event_pb2 import Event

    history, _ = quick([d2l.cpu(0)], small, batch_size=250, callbacks=[d2l.TensorBoard(tmp_path / "log")])
    (file,) = (tmp_path / "log").iterdir()
    content, values, start = file.read_bytes(), {}, 0
    while start < len(content):  # records of a length (8 bytes), its checksum (4), an event, its checksum (4)
        size = int.from_bytes(content[start : start + 8], "little")
        event = Event.FromString(content[start + 12 : start + 12 + size])
        for value in event.summary.value:
            values.setdefault(value.tag, []).append((event.step, value.simple_value))
        start += 16 + size
    assert [step for step, _ in values["loss/training"]] == [3, 6]
    assert [value for _, value in values["loss/training"]] == pytest.approx(history.train_loss)
    assert [value for _, value in values["accuracy/test"]] == pytest.approx(history.test_accuracy)
    assert len(values["loss/so_far"]) >= 4 and len(values["seconds/epoch"]) == 2
    command = ["train", "--environment", "cpu", "--limit", "300", "--epochs", "1"]
    assert cli.main([*command, "--tensorboard", str(tmp_path / "again")]) == 0
    assert len(list((tmp_path / "again").iterdir())) == 1
    capsys.readouterr()


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tensorboardX", None)
    with pytest.raises(ValueError, match=r"pip install 'd2lmgpu\[tensorboard\]'"):
        d2l.TensorBoard("log")


def test_how_busy_the_devices_were(make_devices, small):
    history, _ = quick(make_devices(2), small)
    assert list(history.utilisation) == history.devices
    assert all(0 < part <= 1 for part in history.utilisation.values())
    history.utilisation = {"cpu(0)": 0.9, "cpu(1)": 0.6}
    assert history.balance() == "devices worked 90%, 60% of the time, the busiest 20% more than the mean"
    history.utilisation = {"cpu(0)": 0.5, "cpu(1)": 0.5}
    assert history.balance() == "devices worked 50%, 50% of the time"
