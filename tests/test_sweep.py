"""Many networks: grids, rows that equal what `train` gives, trials that fail, files to go on from, Ctrl-C."""

import functools
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import psutil
import pytest
from conftest import long

import d2lmgpu as d2l
from d2lmgpu import cli
from d2lmgpu.base.files import as_json
from d2lmgpu.experiments import executors as workers, plot_curves, sweeps as run
from d2lmgpu.experiments.scaling_plots import check_axes, plot_sweep
from d2lmgpu.experiments.trials import complete_trials, make_row
from d2lmgpu.networks import BatchNorm, Conv2d, Dense, Flatten, ReLU, sequential
from d2lmgpu.training import Settings

pytestmark = pytest.mark.threads

QUICK = {"batch_size": 64, "num_epochs": 1, "init": "he", "environment": "cpu"}
TIMES = ("seconds_per_epoch", "examples_per_second", "phases", "utilisation")


def linear(classes=10):
    return sequential((1, 28, 28), Flatten(), Dense(classes))


def own_layer():
    """A network with a layer that is made by a function of your's own."""
    return sequential((1, 28, 28), lambda shape: Flatten()(shape), Dense(10))


def without_times(history):
    return {name: value for name, value in history.items() if name not in TIMES}


def test_a_grid_is_all_combinations_in_order():
    trials = d2l.grid(devices=(1, 2), lr=np.array([0.25, 0.5]), seed=range(2), init="he")
    names = ["devices", "lr", "seed", "init"]
    values = [(k, lr, seed, "he") for k in (1, 2) for lr in (0.25, 0.5) for seed in (0, 1)]
    assert trials == [dict(zip(names, each, strict=True)) for each in values]
    complete = complete_trials(trials)
    assert json.loads(json.dumps(complete)) == complete  # np.float64 became float
    assert (complete[5]["batch_size"], complete[5]["algorithm"], complete[5]["limit"]) == (256, "ring", None)
    with pytest.raises(ValueError, match="the list of lr is empty"):
        d2l.grid(devices=[1, 2], lr=[])


@pytest.mark.parametrize(
    "trials, settings, message",
    [
        ([], {}, "no trials"),
        ([{"lr": 0.1}, {"rate": 0.1}], {}, "trial 2: setting 'rate' is unknown; choose from devices, "),
        ([{"lr": 0.1, "seed": 0}, {"lr": 0.2}, {"lr": 0.1}], {}, "trials 1 and 3 are the same"),
        ([0.1], {}, "0.1 is not a dict"),
        ([{"network": own_layer()}], {}, "layers are your own functions cannot be sent"),
        ([{"network": linear(classes=9)}], {}, "labels from 0 to 9; they should be whole numbers from 0 to 8"),
        ([{"lr": 0}], {}, "lr is 0"),
        ([{}], {"mode": "parallel"}, "simultaneous, sequential"),
        ([{}], {"workers": 0}, "workers is 0"),
        ([{}], {"workers": 2, "mode": "sequential"}, "give one of them"),
    ],
)
def test_what_makes_no_sense_is_refused_before_the_work(monkeypatch, trials, settings, message):
    monkeypatch.setattr(run, "run_trial", None)
    with pytest.raises(ValueError, match=message):
        d2l.sweep(trials, **settings)


TRIALS = [
    {"lr": 0.1, "devices": 3, "seed": 2, **QUICK},
    {"lr": 0.05, "devices": 1, "optimizer": "momentum", "limit": 333, **QUICK},
    {"lr": 0.1, "devices": 2, "loads": [1, 0.5], "network": "cnn", **QUICK, "num_epochs": 2},
]


@pytest.fixture(scope="module")
def expected(small):
    """What `train` gives, here, of each of `TRIALS`."""
    histories = []
    for trial in TRIALS:
        settings = dict(trial)
        devices, limit = [d2l.cpu(i) for i in range(settings.pop("devices"))], settings.pop("limit", None)
        data = [small[0][:limit], small[1][:limit], *small[2:]]
        histories.append(without_times(d2l.train(devices, data=data, progress=False, **settings).history.as_dict()))
    return histories


@pytest.mark.parametrize("who", ["processes", "threads", *long("in turn", "user's processes")])
def test_however_it_is_done_a_history_is_that_of_train(small, expected, who):
    if who in ("in turn", "processes"):
        mode, count = ("sequential", None) if who == "in turn" else ("simultaneous", 2)
        rows = d2l.sweep(TRIALS, mode=mode, workers=count, data=small, progress=False)
    else:
        make = (
            ThreadPoolExecutor if who == "threads" else functools.partial(ProcessPoolExecutor, 1, get_context("spawn"))
        )
        with make() as executor:
            rows = d2l.sweep(TRIALS, executor, data=small, progress=False)
    assert [row["status"] for row in rows] == ["done"] * 3
    assert [without_times(row["history"]) for row in rows] == expected
    assert all(trial.items() <= row["settings"].items() for trial, row in zip(TRIALS, rows, strict=True))
    assert json.loads(json.dumps(rows)) == rows


def test_networks_of_ones_own(small, tmp_path):
    """They are made anew wherever a trial is done, and recognised in the results."""
    small_one = sequential((1, 28, 28), Conv2d(3, 5, stride=2, padding=1), BatchNorm(), ReLU(), Flatten(), Dense(10))
    how = {"data": small, "results": tmp_path / "rows.jsonl", "progress": False}
    trials = d2l.grid(network={"small": small_one, "linear": linear(), "LeNet": "lenet"}, devices=2, lr=0.05, **QUICK)
    assert json.loads(json.dumps(trials)) == trials
    rows = d2l.sweep(trials, workers=2, **how)
    for row, network in zip(rows, (small_one, linear(), "lenet"), strict=True):
        settings = QUICK | {"lr": 0.05, "network": network}
        history, _ = d2l.train([d2l.cpu(0), d2l.cpu(1)], data=small, progress=False, **settings)
        assert without_times(row["history"]) == without_times(history.as_dict())
    assert [row["settings"]["network"]["name"] for row in rows[:2]] == ["small", "linear"]
    assert d2l.sweep([row["settings"] for row in rows], Executor(), **how) == rows  # which does no trial
    names = [trial["network"]["name"] for trial in complete_trials(d2l.grid(network=[linear(), small_one]))]
    assert all(name.startswith("custom-") for name in names) and len(set(names)) == 2


def test_lines_and_a_plot_name_networks(small, capsys):
    rows = d2l.sweep(
        d2l.grid(network={"deep": linear(), "LeNet": "cnn"}, lr=0.05, limit=64, **QUICK), mode="sequential", data=small
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("1/2: network deep: test acc: ") and lines[2].startswith("2/2: network cnn: test acc: ")
    axes = plot_sweep(rows, x="network", by="lr").axes[0]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["deep", "cnn"]


def test_each_on_all_devices(device_kind, make_devices, small):
    environment = "cpu" if device_kind == "cpu" else "gpu"
    trials = d2l.grid(devices=[2, [1]], lr=0.1, limit=100, **QUICK | {"environment": environment})
    rows = d2l.sweep(trials, mode="sequential", data=small, progress=False)
    for row, devices in zip(rows, (make_devices(2), make_devices(2)[1:]), strict=True):
        settings = {"lr": 0.1, **QUICK, "environment": environment}
        data = [small[0][:100], small[1][:100], *small[2:]]
        history, _ = d2l.train(devices, data=data, progress=False, **settings)
        assert without_times(row["history"]) == without_times(history.as_dict())
        assert row["history"]["devices"] == list(map(str, devices))


def test_trials_that_diverge_or_fail_leave_the_others(small, capsys):
    settings = [{"lr": 0.1}, {"lr": 1e4}, {"lr": 0.1, "algorithm": "nccl"}, {"lr": 0.1, "seed": 1}]
    rows = d2l.sweep([QUICK | own for own in settings], mode="sequential", data=small)
    assert [row["status"] for row in rows] == ["done", "diverged", "failed", "done"]
    assert rows[1]["message"].startswith("diverged in epoch 1: ") and rows[1]["history"]["diverged"]
    assert rows[2]["message"].startswith("DeviceError: allreduce 'nccl' needs at least two GPUs, not [cpu(0)]")
    assert rows[2]["history"] is None
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "4 trials" and lines[2].startswith("2/4: lr 10000, algorithm ring, seed 0: diverged in epoch")
    assert lines[3] == f"3/4: lr 0.1, algorithm nccl, seed 0: failed: {rows[2]['message']}"
    summary = d2l.History.from_dict(rows[3]["history"]).summary()
    assert lines[4] == f"4/4: lr 0.1, algorithm ring, seed 1: {summary}" and rows[3]["message"] is None
    assert lines[5:] == ["2 done, 1 diverged, 1 failed"]


def history(accuracy=(0.25, 0.5), losses=(2.0, 1.0)):
    """A history of some epochs, as a dict."""
    about = {"devices": ["cpu(0)"], "environment": "cpu", "settings": Settings().recorded()}
    curves = {"test_accuracy": list(accuracy), "train_loss": list(losses), "seconds_per_epoch": [1.0, 3.0]}
    return d2l.History(**about, **curves).as_dict()


def pretend(settings, *given):
    """In place of `run_trial`: the process dies if the seed is 1; nothing is trained."""
    if settings["seed"] == 1:
        time.sleep(0.3)  # others are under way
        os._exit(3)
    return make_row(settings, "done", str(os.getpid()), history((settings["lr"] / 2, settings["lr"])))


def test_a_process_that_dies(monkeypatch, tmp_path):
    """Nobody can do the rest any more; what was done is kept, and the next sweep goes on."""
    monkeypatch.setattr(run, "run_trial", pretend)
    how = {"workers": 1, "results": tmp_path / "rows.jsonl", "progress": False}
    assert d2l.sweep(d2l.grid(seed=0), **how)[0]["status"] == "done"
    rows = d2l.sweep(d2l.grid(seed=range(4)), **how)
    assert [row["status"] for row in rows] == ["done", "failed", "failed", "failed"]
    said = "BrokenProcessPool: A process in the process pool was terminated abruptly"
    assert all(row["message"].startswith(said) for row in rows[1:])
    rows = d2l.sweep(d2l.grid(seed=[0, 2, 3]), **how)
    assert [row["status"] for row in rows] == ["done"] * 3 and str(os.getpid()) not in {row["message"] for row in rows}


def tell_card(settings, *given):
    """In place of `run_trial`: a row that says which GPU the process sees, once two of them are seen."""
    card = os.getenv("CUDA_VISIBLE_DEVICES")
    Path(f"card {card}").touch()
    for _ in range(1200):
        if len([*Path().glob("card *")]) == 2:
            break
        time.sleep(0.05)
    return make_row(settings, "failed", card)


def test_a_worker_has_a_gpu_of_its_own(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert workers.visible_cards(3) == ["0", "1", "2"] or "CUDA_VISIBLE_DEVICES" in os.environ
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-5ab,7")
    cards = workers.visible_cards(2)
    assert cards == ["2", "GPU-5ab"]
    monkeypatch.setattr(run, "run_trial", tell_card)
    monkeypatch.setattr(run, "cards_of_workers", lambda *given: cards)
    rows = d2l.sweep(d2l.grid(seed=range(2)), progress=False)
    assert {row["message"] for row in rows} == {"2", "GPU-5ab"}
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "2,GPU-5ab,7"


def test_how_many_workers(monkeypatch, standin):
    trials = complete_trials(d2l.grid(seed=range(9)))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert workers.cards_of_workers(None, trials) == ["0", "1"]  # the stand-in's cards
    assert workers.cards_of_workers(5, trials) == ["0", "1", "0", "1", "0"]
    assert workers.cards_of_workers(5, trials[:3]) == ["0", "1", "0"]
    monkeypatch.setattr(workers, "count_cores", lambda: 7)
    assert workers.cards_of_workers(None, complete_trials(d2l.grid(seed=range(9), environment="cpu"))) == [None] * 7


def test_a_sweep_goes_on_where_it_was_left(monkeypatch, tmp_path, capsys):
    file, done, broken = tmp_path / "rows.jsonl", [], {2}

    def count(settings, *given):
        done.append(settings["seed"])
        if settings["seed"] in broken:
            return make_row(settings, "failed", "OSError: no space")
        return pretend(settings)

    monkeypatch.setattr(run, "run_trial", count)

    def again(**values):
        done.clear()
        rows = d2l.sweep(d2l.grid(**values), mode="sequential", results=file)
        return done, [row["status"] for row in rows]

    assert again(seed=[0, 2, 4]) == ([0, 2, 4], ["done", "failed", "done"])
    assert again(seed=[0, 2, 4]) == ([2], ["done", "failed", "done"])
    broken.clear()
    with open(file, "a") as torn:
        torn.write('{"settings": {"devi')  # by a program that was killed
    assert again(seed=[5, 4, 2, 0]) == ([5, 2], ["done"] * 4)  # the grid may grow, and be in another order
    capsys.readouterr()
    assert again(seed=[0, 2, 4]) == ([], ["done"] * 3)
    assert capsys.readouterr().out == "3 trials, 3 of them done before\n3 done\n"
    assert again(seed=[0], lr=0.2, batch_size=256) == ([], ["done"])  # said as it is by default
    assert again(seed=[0], lr=1) == again(seed=[0], lr=0.3) == ([0], ["done"])
    assert again(seed=[0], lr=1.0) == ([], ["done"])
    first, *lines = map(json.loads, file.read_text().splitlines())
    assert first == {"format": "d2lmgpu sweep", "version": 2, "data": None}
    kept = [(row["settings"]["seed"], row["settings"]["lr"]) for row in d2l.load_sweep(file)]
    assert sorted(kept) == [(0, 0.2), (0, 0.3), (0, 1), (2, 0.2), (4, 0.2), (5, 0.2)] and len(lines) == 6
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


def test_models_that_are_kept(small, tmp_path):
    file, folder = tmp_path / "rows.jsonl", tmp_path / "new" / "models"
    trials = d2l.grid(network={"linear": linear(), "bn": "lenet-bn"}, lr=[0.05, 1e4], **QUICK)
    keep = {"mode": "sequential", "data": small, "results": file, "keep_models": folder, "progress": False}
    rows = d2l.sweep(trials, **keep)
    assert [row["status"] for row in rows] == ["done", "diverged"] * 2
    files = [row["model"] for row in rows[::2]]
    assert sorted(files) == sorted(map(str, folder.iterdir())) and [row["model"] for row in rows[1::2]] == [None] * 2
    for row in rows[::2]:
        model = d2l.load_model(row["model"])
        values = [*model.params, *model.statistics]
        assert d2l.training.sha256(values) == row["history"]["final_parameters_sha256"]
    before = Path(files[0]).stat().st_mtime_ns
    assert str(d2l.sweep(trials, **keep)) == str(rows) == str(d2l.load_sweep(file))  # which takes nan for nan
    Path(files[1]).unlink()  # so it is trained again
    again = d2l.sweep(trials, **keep)
    assert without_times(again[2]["history"]) == without_times(rows[2]["history"])
    assert [row["model"] for row in again[::2]] == files and Path(files[0]).stat().st_mtime_ns == before


def test_folders_that_cannot_be(monkeypatch, tmp_path):
    monkeypatch.setattr(run, "run_trial", None)
    file = tmp_path / "file"
    file.write_text("text")
    for keep, error, message in (
        ({"keep_models": file}, OSError, f"cannot write into {file}: it is not a folder; give another name"),
        ({"results": 3}, ValueError, "results is 3"),
    ):
        with pytest.raises(error, match=message):
            d2l.sweep([{}], mode="sequential", progress=False, **keep)
    assert file.read_text() == "text"


@pytest.mark.parametrize("mode", ["sequential", "simultaneous"])
def test_curves_of_trials_that_run(small, mode):
    seen = []
    trials = d2l.grid(lr=[0.01, 0.02], **QUICK | {"num_epochs": 3, "limit": 128})
    more = {"data": small, "watch": lambda rows: seen.append(json.loads(json.dumps(rows))), "progress": False}
    rows = d2l.sweep(trials, mode=mode, **more)
    assert seen[-1] == rows and len(seen) == 8
    for row in rows:
        found = [each for part in seen for each in part if each["settings"] == row["settings"]]
        losses = [each["history"]["train_loss"] for each in found if each["status"] == "running"]
        assert sorted({*map(tuple, losses)}, key=len) == [tuple(row["history"]["train_loss"][:n]) for n in (1, 2, 3)]


def test_a_plot_of_curves():
    rows = [row for row in rows_to_plot() if row["settings"]["seed"] == 0][:3]
    rows[1]["history"]["train_loss"] = [1e9, math.nan]
    rows[1]["status"] = "diverged"
    rows[2] = rows[2] | {"status": "running"}
    failed = make_row(rows[0]["settings"] | {"lr": 9.0}, "failed", "so")
    accuracy, loss = plot_curves([*rows, failed]).axes
    for axes, name in ((accuracy, "test_accuracy"), (loss, "train_loss")):
        drawn = [(line.get_xdata().tolist(), line.get_ydata().tolist(), line.get_linestyle()) for line in axes.lines]
        styles = ["-", "--", "--"]
        expected = [([1, 2], row["history"][name], style) for row, style in zip(rows, styles, strict=True)]
        assert str(drawn) == str(expected)  # which takes nan for nan
        assert axes.get_xlim() == (0.5, 10.5)
    named = [text.get_text() for text in loss.get_legend().get_texts()]
    assert named == ["lr 0.4", "lr 0.01 (diverged)", "lr 0.1 (running)"] and loss.get_ylim()[1] == 3
    assert not plot_curves([failed]).axes[0].lines


def test_results_of_other_data(monkeypatch, tmp_path, small):
    monkeypatch.setattr(run, "run_trial", pretend)
    file = tmp_path / "rows.jsonl"
    how = {"mode": "sequential", "results": file, "progress": False}
    for data in (small, small):
        assert d2l.sweep([{"seed": 0}], data=data, **how)[0]["status"] == "done"
    before = file.read_bytes()
    for data in (None, [small[0][:-1], small[1][:-1], *small[2:]], [*small[:2], small[2][1:], small[3][1:]]):
        with pytest.raises(ValueError, match="for other data"):
            d2l.sweep([{"seed": 0}], data=data, **how)
    assert file.read_bytes() == before


DONE = make_row(complete_trials([{"lr": 0.1}])[0], "done", "so", history())
FORMAT = {"format": "d2lmgpu sweep", "version": 2, "data": None}


def lines(*values):
    return "".join(json.dumps(value) + "\n" for value in values)


@pytest.mark.parametrize(
    "change",
    [
        {"status": "diverged", "message": 3},
        {"history": history() | {"train_loss": ["high"]}},
        {"settings": DONE["settings"] | {"lr": "fast"}},
        {"settings": DONE["settings"] | {"network": {"name": "small"}}},
    ],
    ids=lambda change: ascii(change)[-70:],
)
def test_rows_that_somebody_has_put_together(tmp_path, change):
    file = tmp_path / "rows.jsonl"
    file.write_text(lines(FORMAT, DONE))
    assert d2l.load_sweep(file) == [DONE]
    file.write_text(lines(FORMAT, DONE, DONE | change))
    with pytest.raises(ValueError, match="its rows are damaged"):
        d2l.load_sweep(file)


@pytest.mark.parametrize(
    "content, message",
    [
        ("", "not a sweep's results file"),
        (json.dumps({"format": "d2lmgpu sweep", "version": 1, "rows": []}, indent=2) + "\n", "or of another version"),
        (lines(FORMAT) + "{\n", "its rows are damaged"),
        (lines(FORMAT, {"settings": {}}), "its rows are damaged"),
    ],
)
def test_a_file_of_something_else_stays_as_it_is(monkeypatch, tmp_path, content, message):
    monkeypatch.setattr(run, "run_trial", None)
    file = tmp_path / "rows.jsonl"
    file.write_text(content)
    with pytest.raises(ValueError, match=message):
        d2l.sweep(d2l.grid(lr=[0.1, 0.2]), mode="sequential", results=file)
    assert file.read_text() == content
    with pytest.raises(ValueError, match="not a sweep's results file"):
        d2l.load_sweep("/dev/zero")


def test_a_trial_as_grid_makes_it(small):
    """What it does not name is as by default, as in a sweep, one device included."""
    trials = d2l.grid(network=linear(), lr=[0.05, 0.1], **QUICK)
    row, other = d2l.run_trial(trials[1], small), d2l.sweep(trials, mode="sequential", data=small, progress=False)[1]
    assert row["status"] == "done" and without_times(row["history"]) == without_times(other["history"])
    assert row["settings"] == other["settings"] == complete_trials(trials)[1] != trials[1]
    for wrong, message in (({"lrr": 1}, "setting 'lrr' is unknown; choose from devices, "), (7, "7 is not a dict of")):
        row = d2l.run_trial(wrong, small)
        assert (row["status"], row["settings"], row["history"]) == ("failed", wrong, None) and message in row["message"]


def rows_to_plot():
    """devices 1 and 2, three rates, three seeds; accuracy is devices / 10 + lr / 2 + seed / 100."""
    rows = []
    for settings in complete_trials(d2l.grid(devices=[2, 1], lr=[0.4, 0.01, 0.1], seed=range(3))):
        accuracy = settings["devices"] / 10 + settings["lr"] / 2 + settings["seed"] / 100
        rows.append(make_row(settings, "done", "so", history([accuracy, accuracy - 0.1])))
    return rows


def heights(line):
    return np.asarray(line.get_ydata(), float)


def test_plot():
    rows = rows_to_plot()
    for row in rows:
        if row["settings"]["lr"] == 0.4 and row["settings"]["devices"] == 2:
            row["status"] = "diverged"
    rows[-1]["status"] = "failed"
    (axes,) = plot_sweep(rows).axes
    about = axes.get_ylabel(), axes.get_xlabel(), axes.get_xscale()
    assert about == ("best test accuracy", "learning rate", "log")
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0.01", "0.1", "0.4"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["2", "1"]
    assert axes.get_legend().get_title().get_text() == "devices"
    two, one = axes.containers
    np.testing.assert_allclose(heights(two[0]), [0.2 + 0.005 + 0.01, 0.2 + 0.05 + 0.01, math.nan])
    np.testing.assert_allclose(heights(one[0]), [0.115, 0.1 + 0.05 + 0.005, 0.31])  # seeds 0, 1 at rate 0.1
    least, most = map(heights, two[1])
    np.testing.assert_allclose([least, most], [[0.205, 0.25, math.nan], [0.225, 0.27, math.nan]])
    hollow = [line for line in axes.lines if line.get_markerfacecolor() == "none"]
    assert [line.get_xdata().tolist() for line in hollow] == [[0.4] * 3, [0.1]]
    assert [line.get_color() for line in hollow] == [container[0].get_color() for container in (two, one)]
    assert axes.transAxes.inverted().transform(axes.transData.transform((0.1, 0.115)))[1] > 0.1  # above the marks
    dots, lost = plot_sweep(rows).get_suptitle().split("\n")
    assert "differ in seed" in dots and lost == "hollow, at the bottom: diverged and failed"


def test_plots_of_other_settings():
    rows = [row for row in rows_to_plot() if row["settings"]["seed"] == 0]
    (axes,) = plot_sweep(rows, x="devices", y="training loss", by="lr").axes
    assert axes.get_xscale() == "linear" and [line.get_linestyle() for line, *_ in axes.containers] == ["-"] * 3
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2"]
    (axes,) = plot_sweep(rows, x="network", y="last accuracy", by="devices").axes
    assert [line.get_linestyle() for line, *_ in axes.containers] == ["None"] * 2
    np.testing.assert_allclose([line.get_ydata()[0] for line, *_ in axes.containers], [0.15, 0.05])
    rows[0]["settings"]["scale_batch"] = True
    assert plot_sweep(rows).axes[0].get_xlabel() == "learning rate, before scale_batch"
    for wrong, message in (
        ({"x": "rate"}, "x 'rate' is unknown; choose from devices, "),
        ({"y": "speed"}, "y 'speed' is unknown; choose from best accuracy, "),
        ({"by": "lr"}, "both 'lr'"),
    ):
        with pytest.raises(ValueError, match=message):
            check_axes(**{"x": "lr", "y": "best accuracy", "by": "devices"} | wrong)


COMMAND = ["sweep", "--environment", "cpu", "--limit", "200", "--epochs", "1", "--init", "he", "--batch-size", "20,40"]


@pytest.mark.long
def test_the_command(tmp_path, capsys):
    file, plot, kept = tmp_path / "sweep.json", tmp_path / "plot.png", tmp_path / "kept.jsonl"
    outputs = ["--json", str(file), "--plot", str(plot), "--x", "batch_size", "--results", str(kept)]
    command = [*COMMAND, "--lr", "0.05,1e4", "--devices", "2,1", "--scale-batch", "--warmup", "0.5"]
    assert cli.main([*command, *outputs]) == 0
    rows = json.loads(file.read_text())["rows"]
    seen = [(row["settings"]["devices"], row["settings"]["batch_size"], row["settings"]["lr"]) for row in rows]
    assert seen == [(k, batch, lr) for k in (2, 1) for batch in (20, 40) for lr in (0.05, 1e4)]
    assert [row["status"] for row in rows] == ["done", "diverged"] * 4
    assert [row["history"]["batch_size"] for row in rows] == [40, 40, 80, 80, 20, 20, 40, 40]
    assert rows[0]["history"]["warmup"] == 0.5 and plot.read_bytes().startswith(b"\x89PNG")
    assert "4 done, 4 diverged" in capsys.readouterr().out
    assert cli.main([*command, *outputs, "--mode", "sequential"]) == 0
    assert capsys.readouterr().out.startswith("8 trials, 8 of them done before\n")
    assert json.loads(file.read_text())["rows"] == rows
    assert sorted(json.loads(as_json(d2l.load_sweep(kept))), key=str) == sorted(rows, key=str)
    assert cli.main([*COMMAND, "--lr", "0.02", "--mode", "sequential", "--allreduce", "ring,nccl"]) == 1
    assert "2 done, 2 failed" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--lr", "0.1,fast"], "--lr: invalid list of float value: '0.1,fast'"),
        (["--x", "rate"], "x 'rate' is unknown; choose from devices, "),
        (["--results", "/no/such/folder/rows.json"], "cannot write"),
        (["--curves", "plot.doc"], ".png, .svg, .pdf"),
        (["--keep-models", __file__], "is not a folder; give another name"),
    ],
)
def test_bad_input_gets_one_line(capsys, arguments, message):
    try:
        code = cli.main([*COMMAND, *arguments])
    except SystemExit as exit:  # from argparse
        code = exit.code
    out, err = capsys.readouterr()
    assert (code, out) == (2, "") and err.startswith("d2lmgpu sweep: error: ")
    assert err.count("\n") == 1 and message in err


def wait_for(condition):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    raise TimeoutError


@pytest.mark.long
@pytest.mark.parametrize("how, code", [("simultaneous", 130), ("sequential", 130), ("kill -9", -9)])
def test_ctrl_c_keeps_rows_and_leaves_no_process(tmp_path, how, code):
    """The first trial ends soon, the others would take minutes. As in a terminal, all processes hear of it."""
    file = tmp_path / "rows.jsonl"
    command = [sys.executable, "-m", "d2lmgpu", *COMMAND, "--epochs", "1,5000", "--batch-size", "50"]
    mode = how if how == "sequential" else "simultaneous"
    command += ["--lr", "0.02", "--results", str(file), "--mode", mode]
    # the test runner may have been started with SIGINT ignored, which a child would inherit
    how_to = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler), "start_new_session": True}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how_to)

    wait_for(lambda: file.exists() and d2l.load_sweep(file))
    time.sleep(2)  # the other has begun, though Ctrl-C is heard at any time
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) >= (0 if how == "sequential" else 1)
    if how == "kill -9":
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == code, err
    assert psutil.wait_procs(children, timeout=20)[1] == []
    (row,) = d2l.load_sweep(file)
    assert row["settings"]["num_epochs"] == 1
    if code == 130:
        assert err == "" and "1 done, 1 interrupted" in out


PAGE = (Path(__file__).resolve().parents[1] / "docs" / "sweeps.md").read_text(encoding="utf-8")
WAYS = dict(re.findall(r"^## (By .*?)\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL))
SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
exec "{mpiexec}" -n 3 "$@"
"""


@pytest.mark.long
@pytest.mark.parametrize("package, way", [("mpi4py", "By MPI"), ("distributed", "By Dask")])
def test_executors_of_other_packages(package, way, tmp_path):
    """The programs and batch jobs of the page, with ``srun`` replaced by ``mpiexec``."""
    pytest.importorskip(package, reason=f"{package} is not installed")
    path = [str(tmp_path), str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    mpiexec = shutil.which("mpiexec", path=os.pathsep.join(path))
    if mpiexec is None:
        pytest.skip("there is no mpiexec")
    (program,) = re.findall(r"```python\n(.*?)```", WAYS[way], re.DOTALL)
    (job,) = re.findall(r"```bash\n(.*?)```", WAYS[way], re.DOTALL)
    (tmp_path / "sweep.py").write_text(program.replace("num_epochs=10", 'num_epochs=1, limit=300, environment="cpu"'))
    (tmp_path / "job").write_text(job)
    (tmp_path / "srun").write_text(SRUN.format(mpiexec=mpiexec))
    (tmp_path / "srun").chmod(0o755)
    root = str(Path(d2l.__file__).parents[1])
    environment = os.environ | {"PATH": os.pathsep.join(path), "SLURM_JOB_ID": "7", "PYTHONPATH": root}
    done = subprocess.run(["bash", "job"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = d2l.load_sweep(tmp_path / "sweep.jsonl")
    assert [row["status"] for row in rows] == ["done"] * 6 and list(WAYS) == ["By MPI", "By Dask"]
    here = d2l.run_trial(rows[0]["settings"])
    assert here["history"]["final_parameters_sha256"] == rows[0]["history"]["final_parameters_sha256"]
