"""Many networks: grids, rows that equal what `train` gives, trials that fail, files to go on from, Ctrl-C."""

import contextlib
import itertools
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import types
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import psutil
import pytest
from conftest import long

import d2lmgpu as d2l
from d2lmgpu import cli, measuring
from d2lmgpu.networks import BatchNorm, Conv2d, Dense, Flatten, ReLU, sequential
from d2lmgpu.output import as_json
from d2lmgpu.sweeps import DEFAULTS, plot_curves, results, run, workers
from d2lmgpu.sweeps.plot import check_axes, plot_sweep
from d2lmgpu.sweeps.progress import Record
from d2lmgpu.sweeps.results import document
from d2lmgpu.sweeps.trial import CURVES, make_row
from d2lmgpu.sweeps.trials import complete_trials

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
    assert [(t["devices"], t["lr"], t["seed"], t["init"]) for t in trials] == [
        (k, lr, seed, "he") for k in (1, 2) for lr in (0.25, 0.5) for seed in (0, 1)
    ]
    assert list(trials[0]) == ["devices", "lr", "seed", "init"]
    complete = complete_trials(trials)
    assert json.loads(json.dumps(complete)) == complete  # np.float64 became float
    assert (complete[5]["batch_size"], complete[5]["algorithm"], complete[5]["limit"]) == (256, "ring", None)
    with pytest.raises(ValueError, match="the list of lr is empty"):
        d2l.grid(devices=[1, 2], lr=[])


@pytest.mark.parametrize(
    "trials, settings, message",
    [
        ([], {}, "no trials"),
        (
            [{"lr": 0.1}, {"rate": 0.1, "passes": 3}],
            {},
            "trial 2: rate, passes: no such setting; choose from devices, ",
        ),
        ([{"progress": True}], {}, "progress: no such setting"),
        ([{"lr": 0.1, "seed": 0}, {"lr": 0.2}, {"lr": 0.1}], {}, "trials 1 and 3 are the same"),
        ([0.1], {}, "0.1 is not a dict"),
        ([{"network": "vgg"}], {}, "'vgg' is unknown"),
        ([{"network": len}], {}, "network is a builtin"),
        ([{"network": own_layer()}], {}, "layers are your own functions cannot be sent"),
        ([{"network": {"layers": []}}], {}, "not a description of a network, with input_shape and layers"),
        ([{"network": {"input_shape": [1, 28, 28], "layers": [["Sigmoid", {}]]}}], {}, "layer 'Sigmoid' is unknown"),
        ([{"network": linear()}, {"network": linear()}], {}, "trials 1 and 2 are the same"),
        (lambda: d2l.grid(network={"a": linear(), "b": linear()}), {}, "trials 1 and 2 are the same"),
        (lambda: d2l.grid(network={"cnn": linear(), "b": "cnn"}), {}, "two different networks are both called 'cnn'"),
        (lambda: d2l.grid(network={}), {}, "the list of network is empty"),
        ([{"network": linear(classes=9)}], {}, r"images of shape \(1, 28, 28\) and has 9 classes; Fashion-MNIST has"),
        ([{"optimizer": "rmsprop"}], {}, "choose from sgd, momentum, adam"),
        ([{"init": "zeros"}], {}, "normal, he"),
        ([{"algorithm": "none"}], {}, "drift apart"),
        ([{"precision": "tf32"}], {}, "'tf32' is unknown; choose from float32, mixed"),
        ([{"batch_statistics": "global"}], {}, "local, aggregated"),
        ([{"schedule": len}], {}, "schedule is a builtin"),
        ([{"lr": "fast"}], {}, "trial 1: "),
        ([{"lr": 0}], {}, "lr is 0"),
        ([{"num_epochs": 2, "warmup": 2}], {}, "less than all"),
        ([{"limit": 0}], {}, "limit is 0"),
        ([{"devices": 0}], {}, "at least 1"),
        ([{"devices": [0, 0]}], {"mode": "sequential"}, "twice"),
        ([{"devices": [0, 2]}], {}, "mode 'sequential'"),
        ([{"devices": 2, "loads": [1, 1, 1]}], {}, "give 2 numbers"),
        ([{"environment": "tpu"}], {}, "choose from auto"),
        ([{}], {"mode": "parallel"}, "simultaneous, sequential"),
        ([{}], {"workers": 0}, "workers is 0"),
        ([{}], {"workers": 2, "mode": "sequential"}, "leave out workers"),
        ([{}], {"executor": ThreadPoolExecutor(1), "mode": "sequential"}, "leave out mode"),
        (
            [{}],
            {"data": [np.zeros(shape, np.uint8) for shape in ((3, 1, 28, 28), 2, (3, 1, 28, 28), 3)]},
            "3 images and 2",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_before_the_work(monkeypatch, trials, settings, message):
    monkeypatch.setattr(run, "run_trial", None)
    with pytest.raises(ValueError, match=message):
        d2l.sweep(trials() if callable(trials) else trials, **settings)


class AtOnce(Executor):
    """The least that is an executor."""

    def submit(self, function, /, *args):
        future = Future()
        future.set_result(function(*args))
        return future


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


@pytest.mark.parametrize("who", ["processes", "threads", *long("in turn", "own", "user's processes")])
def test_however_it_is_done_a_history_is_that_of_train(small, expected, who):
    if who in ("in turn", "processes"):
        mode, count = ("sequential", None) if who == "in turn" else ("simultaneous", 2)
        rows = d2l.sweep(TRIALS, mode=mode, workers=count, data=small, progress=False)
    else:
        make = {"threads": lambda: ThreadPoolExecutor(3), "own": AtOnce}
        make["user's processes"] = lambda: ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        with make[who]() as executor:
            rows = d2l.sweep(TRIALS, executor, data=small, progress=False)
    assert [row["status"] for row in rows] == ["done"] * 3 and [row["message"] for row in rows] == [None] * 3
    assert [without_times(row["history"]) for row in rows] == expected
    assert all(trial.items() <= row["settings"].items() for trial, row in zip(TRIALS, rows, strict=True))
    assert json.loads(json.dumps(rows)) == rows


@pytest.mark.parametrize("who", ["threads", *long("processes", "user's processes")])
def test_networks_of_ones_own(small, tmp_path, who):
    """They are made anew wherever a trial is done, and recognised whatever they are called."""
    small_one = sequential((1, 28, 28), Conv2d(3, 5, stride=2, padding=1), BatchNorm(), ReLU(), Flatten(), Dense(10))
    networks = {"small": small_one, "linear": linear(), "LeNet": "lenet"}
    file = tmp_path / "rows.json"
    trials = d2l.grid(network=networks, devices=2, lr=0.05, **QUICK)
    assert json.loads(json.dumps(trials)) == trials
    ways = {"threads": lambda: ThreadPoolExecutor(2), "processes": contextlib.nullcontext}
    ways["user's processes"] = lambda: ProcessPoolExecutor(2, mp_context=get_context("spawn"))
    with ways[who]() as executor:
        rows = d2l.sweep(trials, executor, data=small, results=file, progress=False)
    for row, network in zip(rows, (small_one, linear(), "lenet"), strict=True):
        settings = QUICK | {"lr": 0.05, "network": network}
        history, _ = d2l.train([d2l.cpu(0), d2l.cpu(1)], data=small, progress=False, **settings)
        assert without_times(row["history"]) == without_times(history.as_dict())
    assert [row["settings"]["network"] for row in rows][2] == "lenet"
    assert [row["settings"]["network"]["name"] for row in rows[:2]] == ["small", "linear"]
    again = d2l.sweep([row["settings"] for row in rows], AtOnce(), data=small, results=file, progress=False)
    assert again == rows
    trials = d2l.grid(network=[linear(), small_one], devices=2, lr=0.05, **QUICK)  # of which nothing is trained
    names = [row["settings"].pop("network")["name"] for row in d2l.sweep(trials, Nobody(), data=small, results=file)]
    assert all(name.startswith("custom-") for name in names) and len(set(names)) == 2


class Nobody(Executor):
    """Does no trial."""


def test_a_table_and_a_plot_name_networks(small, capsys):
    rows = d2l.sweep(
        d2l.grid(network={"deep": linear(), "LeNet": "cnn"}, lr=0.05, limit=64, **QUICK), mode="sequential", data=small
    )
    lines = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert lines[3:6] == [["network", "best"], ["deep", f"{rows[0]['history']['test_accuracy'][0]:.3f}"], lines[5]]
    (axes,) = plot_sweep(rows, x="network", by="lr").axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["deep", "cnn"]
    assert plot_sweep(rows[:1]).get_suptitle().startswith("deep, sgd, 1 epoch")


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
    trials = [
        {"lr": 0.1, **QUICK},
        {"lr": 1e4, **QUICK},
        {"lr": 0.1, **QUICK, "algorithm": "nccl"},
        {"lr": 0.1, **QUICK, "seed": 1},
    ]
    rows = d2l.sweep(trials, mode="sequential", data=small)
    assert [row["status"] for row in rows] == ["done", "diverged", "failed", "done"]
    assert rows[1]["message"].startswith("diverged in epoch 1: ") and rows[1]["history"]["diverged"]
    assert rows[2]["message"].startswith("DeviceError: allreduce 'nccl' needs at least two GPUs, not [cpu(0)]")
    assert rows[2]["history"] is None
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "4 trials" and lines[2] == "2/4: lr 10000, algorithm ring, seed 0: diverged in epoch 1"
    table = [line.split() for line in lines[5:10]]
    assert table[0][:3] == ["lr", "algorithm", "seed"] and table[3][:5] == [
        "0.1",
        "nccl",
        "0",
        "failed:",
        "DeviceError:",
    ]
    assert table[1][3] == f"{rows[0]['history']['test_accuracy'][0]:.3f}"
    assert lines[10] == "2 done, 1 diverged, 1 failed"
    best = max((rows[0], rows[3]), key=lambda row: row["history"]["test_accuracy"][0])
    assert lines[11].startswith(f"best: lr 0.1, algorithm ring, seed {best['settings']['seed']}: best acc ")
    assert len(lines) == 12


def pretend(settings, *given):
    """In place of `run_trial`: the process dies if the seed is 1; nothing is trained."""
    if settings["seed"] == 1:
        time.sleep(0.3)  # others are under way
        os._exit(3)
    accuracy = [settings["lr"] / 2, settings["lr"]]
    history = {"test_accuracy": accuracy, "train_loss": [2.0, 1.0], "seconds_per_epoch": [1.0, 3.0]}
    return make_row(settings, "done", None, float(os.getpid()), history)


def test_a_worker_that_dies_takes_one_trial_with_it(monkeypatch):
    monkeypatch.setattr(run, "run_trial", pretend)
    rows = d2l.sweep(d2l.grid(seed=range(6)), workers=2, progress=False)
    assert [row["status"] for row in rows] == ["done", "failed", *["done"] * 4]
    assert rows[1]["message"] == "WorkerDied: the process for this trial ended with exit code 3"
    assert os.getpid() not in {row["seconds"] for row in rows}


def stop_or_wait(settings, *given):
    """In place of `run_trial`: the worker of seed 0 is stopped, as by Ctrl-Z; afterwards it hears whether to end."""
    if settings["seed"] == 0:
        given[-1]({name: [0.5] for name in CURVES})  # an epoch, of which watch hears
        os.kill(os.getpid(), signal.SIGSTOP)
        wait_for(given[-2])
        return make_row(settings, "interrupted", "as asked", 1.0)
    return pretend(settings | {"seed": 2})


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="processes cannot be stopped")
def test_a_worker_that_is_stopped_is_told_and_does_not_keep_a_sweep_from_its_end(monkeypatch):
    """The others go on; Ctrl-C wakes it, so that it ends after its step as they do."""
    monkeypatch.setattr(run, "run_trial", stop_or_wait)
    said = []
    monkeypatch.setattr(workers, "say", said.append, raising=False)

    def watch(rows):
        if [row["status"] for row in rows] == ["running", "done", "done", "done"]:
            threading.Thread(target=lambda: (wait_for(lambda: said), os.kill(os.getpid(), signal.SIGINT))).start()

    timer = threading.Timer(300, os._exit, [3])  # for a sweep that does not end
    timer.start()
    rows = d2l.sweep(d2l.grid(seed=range(4)), workers=2, progress=False, watch=watch)
    timer.cancel()
    assert [row["status"] for row in rows] == ["interrupted", "done", "done", "done"]
    (line,) = said
    assert re.fullmatch(
        r"process (\d+) of this sweep is stopped, and its trial waits; kill -CONT \1 lets it go on", line
    )


def test_a_worker_that_is_killed_as_it_starts(monkeypatch):
    """Its trial has failed, and says why: nothing is wrong with the program. The next has another process."""
    monkeypatch.setattr(run, "run_trial", pretend)
    begin, begun = workers.CONTEXT.Process, []

    def process(**settings):
        first = {"target": signal.raise_signal, "args": (signal.SIGKILL,)} if not begun else {}
        begun.append(begin(**settings | first))
        return begun[-1]

    monkeypatch.setattr(workers.CONTEXT, "Process", process)
    rows = d2l.sweep(d2l.grid(seed=[0, 2, 3]), workers=1, progress=False)
    assert [row["status"] for row in rows] == ["failed", "done", "done"]
    wanted = "WorkerDied: the process for this trial was killed by signal 9 (SIGKILL), perhaps for want of memory"
    assert rows[0]["message"] == wanted


def test_an_executor_that_breaks(monkeypatch, tmp_path):
    """Nobody can do the rest any more; what was done is kept, and the next sweep goes on."""
    monkeypatch.setattr(run, "run_trial", pretend)
    file = tmp_path / "rows.json"
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        assert d2l.sweep(d2l.grid(seed=0), executor, results=file, progress=False)[0]["status"] == "done"
        for _ in range(2):  # the second finds it broken
            rows = d2l.sweep(d2l.grid(seed=range(4)), executor, results=file, progress=False)
            assert [row["status"] for row in rows] == ["done", "failed", "failed", "failed"]
            assert all(row["message"].startswith("BrokenProcessPool: ") for row in rows[1:])
    assert [row["status"] for row in d2l.load_sweep(file)] == ["done", "failed", "failed", "failed"]


def tell_card(settings, *given):
    """In place of `run_trial`: a row that says which GPU the process sees."""
    time.sleep(0.3)  # so that another process has the next trial
    return make_row(settings, "failed", os.getenv("CUDA_VISIBLE_DEVICES"), 1.0)


def test_a_worker_has_a_gpu_of_its_own(monkeypatch):
    assert workers.visible_cards(3) == ["0", "1", "2"] or "CUDA_VISIBLE_DEVICES" in os.environ
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-5ab,7")
    cards = workers.visible_cards(2)
    assert cards == ["2", "GPU-5ab"]
    monkeypatch.setattr(run, "run_trial", tell_card)
    monkeypatch.setattr(run, "cards_of_workers", lambda *given: cards)
    rows = d2l.sweep(d2l.grid(seed=range(6)), progress=False)
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
    file, done, broken = tmp_path / "rows.json", [], {2}

    def count(settings, *given):
        done.append(settings["seed"])
        if settings["seed"] in broken:
            return make_row(settings, "failed", "OSError: no space", 1.0)
        return pretend(settings)

    monkeypatch.setattr(run, "run_trial", count)

    def again(**values):
        done.clear()
        rows = d2l.sweep(d2l.grid(**values), mode="sequential", results=file)
        return done, [row["status"] for row in rows]

    assert again(seed=[0, 2, 4]) == ([0, 2, 4], ["done", "failed", "done"])
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"{file} has what was done; the same sweep")
    assert again(seed=[0, 2, 4]) == ([2], ["done", "failed", "done"])
    broken.clear()
    assert again(seed=[5, 4, 2, 0]) == ([5, 2], ["done"] * 4)  # the grid may grow, and be in another order
    assert again(seed=[0, 2, 4]) == ([], ["done"] * 3)
    assert "\n3 trials, 3 of them done before\nseed  best acc" in capsys.readouterr().out
    assert again(seed=[0], lr=0.2, batch_size=256) == ([], ["done"])  # said as it is by default
    assert again(seed=[0], lr=0.3) == ([0], ["done"])
    content = json.loads(file.read_text())
    assert (content["format"], content["version"], content["data"]) == ("d2lmgpu sweep", 1, None)
    assert [row["settings"]["seed"] for row in d2l.load_sweep(file)] == [0, 4, 5, 2, 0]
    assert [path.name for path in tmp_path.iterdir()] == ["rows.json"]


def test_rows_are_kept_at_once(monkeypatch, tmp_path):
    file = tmp_path / "rows.json"
    kept = []

    def look(settings, *given):
        kept.append(len(d2l.load_sweep(file)) if file.exists() else None)
        return make_row(settings, "diverged", "diverged in epoch 1: so", 1.0)

    monkeypatch.setattr(run, "run_trial", look)
    d2l.sweep(d2l.grid(seed=range(3)), mode="sequential", results=file, progress=False)
    assert kept == [None, 1, 2]


def after(steps):
    """Asks to stop after so many looks, one a step."""
    looks = itertools.count()
    return lambda: next(looks) >= steps


LONGER = {"network": "lenet-bn", "optimizer": "adam", "lr": 0.01, "devices": 3, "seed": 5, "preprocess": "flip+shift"}
LONGER = QUICK | LONGER | {"num_epochs": 3, "limit": 300, "batch_size": 50, "warmup": 1.5}  # six steps an epoch


@pytest.mark.parametrize("stops", [[3, 2, 1], [5], *long([1], [6], [11, 1])])
def test_a_trial_goes_on_where_it_was(small, tmp_path, stops):
    """After so many steps of an epoch, at its end, or several times: as if there had been no break, bit for bit."""
    (settings,) = complete_trials([LONGER])
    file = tmp_path / "trial"
    for steps in stops:
        row = d2l.run_trial(settings, small, False, file, after(steps))
        assert row["status"] == "interrupted" and row["history"]["interrupted"]
    row = d2l.run_trial(settings, small, False, file)
    assert row["status"] == "done"
    alone = d2l.run_trial(settings, small)
    assert without_times(row["history"]) == without_times(alone["history"])
    again = d2l.run_trial(settings, small, False, file)  # as if its row had been lost
    assert without_times(again["history"]) == without_times(row["history"])


def test_a_trial_that_diverged_and_whose_row_was_lost(small, tmp_path):
    (settings,) = complete_trials([QUICK | {"lr": 1e4, "num_epochs": 3}])
    first, again = (d2l.run_trial(settings, small, False, tmp_path / "trial") for _ in range(2))
    assert first["status"] == again["status"] == "diverged" and first["message"] == again["message"]
    assert str(without_times(first["history"])) == str(without_times(again["history"]))  # which takes nan for nan


def stopping(steps):
    """In place of `run_trial`: what it does, but each trial is interrupted after so many steps."""
    return lambda *given: d2l.run_trial(*given[:-2], after(steps), given[-1])


def test_a_sweep_goes_on_within_a_trial(monkeypatch, small, tmp_path):
    file, folder = tmp_path / "rows.json", tmp_path / "rows.json.trials"
    trials = d2l.grid(**LONGER | {"num_epochs": 2, "seed": [5, 6]})
    with monkeypatch.context() as patch:
        patch.setattr(run, "run_trial", stopping(8))
        rows = d2l.sweep(trials, mode="sequential", data=small, results=file, progress=False)
    assert [row["message"] for row in rows] == ["interrupted in epoch 2", "not begun"]
    (left,) = folder.iterdir()
    assert d2l.load_model(left).network.classes == 10
    steps = []

    def counting(*given):
        steps.append([])  # of which None is appended at each look, which says not to stop
        return d2l.run_trial(*given[:-2], lambda: steps[-1].append(None), given[-1])

    monkeypatch.setattr(run, "run_trial", counting)
    rows = d2l.sweep(trials, mode="sequential", data=small, results=file, progress=False)
    assert [len(looks) for looks in steps] == [12 - 9, 12]
    expected = [d2l.run_trial(settings, small)["history"] for settings in complete_trials(trials)]
    assert [without_times(row["history"]) for row in rows] == list(map(without_times, expected))
    assert [path.name for path in tmp_path.iterdir()] == ["rows.json"] and [row["model"] for row in rows] == [None] * 2


def test_models_that_are_kept(small, tmp_path, capsys):
    file, folder = tmp_path / "rows.json", tmp_path / "new" / "models"
    trials = d2l.grid(network={"linear": linear(), "bn": "lenet-bn"}, lr=[0.05, 1e4], **QUICK)
    keep = {"mode": "sequential", "data": small, "results": file, "keep_models": folder}
    rows = d2l.sweep(trials, **keep)
    assert [row["status"] for row in rows] == ["done", "diverged"] * 2
    files = sorted(str(path) for path in folder.iterdir())
    assert sorted(row["model"] for row in rows[::2]) == files and [row["model"] for row in rows[1::2]] == [None] * 2
    lines = capsys.readouterr().out.splitlines()
    assert lines[5].endswith("seconds  model") and lines[6].endswith(f"  {Path(rows[0]['model']).name}")
    for row in rows[::2]:
        model = d2l.load_model(row["model"])
        assert model.evaluate(*small[2:], [d2l.cpu(0)]) == row["history"]["test_accuracy"][-1]
        values = [*model.params, *model.statistics]
        assert d2l.training.sha256(values) == row["history"]["final_parameters_sha256"]
    before = [Path(name).stat().st_mtime_ns for name in files]
    assert d2l.sweep(trials, **keep | {"progress": False}) == rows == sorted(d2l.load_sweep(file), key=rows.index)
    Path(rows[2]["model"]).unlink()  # so it is trained again
    again = d2l.sweep(trials, **keep | {"progress": False})
    assert [row["model"] for row in again] == [row["model"] for row in rows]
    assert [without_times(row["history"]) for row in again] == [without_times(row["history"]) for row in rows]
    after = [Path(name).stat().st_mtime_ns for name in files]
    assert [old == new for old, new in zip(before, after, strict=True)] == [name != rows[2]["model"] for name in files]
    assert d2l.sweep(trials, **keep | {"keep_models": None, "progress": False}) == again  # and nothing is removed
    assert sorted(str(path) for path in folder.iterdir()) == files


def test_a_trial_that_fails_leaves_its_checkpoint(small, tmp_path):
    """With a way out: it is not trained over something that may be of use."""
    trials, keep = [LONGER], {"mode": "sequential", "data": small, "progress": False, "keep_models": tmp_path}
    (settings,) = complete_trials(trials)
    first = d2l.sweep(trials, **keep)[0]
    file = Path(first["model"])
    content = file.read_bytes()
    for spoilt, why in (
        (content[:-9], "is cut short"),
        (content + b"more", "was altered"),
        (b"", "is no checkpoint"),
    ):
        file.write_bytes(spoilt)
        (row,) = d2l.sweep(trials, **keep)
        assert (row["status"], row["model"]) == ("failed", None) and file.read_bytes() == spoilt
        assert why in row["message"] and row["message"].endswith("; without the file the trial begins anew")
    file.unlink()
    (row,) = d2l.sweep(trials, **keep)
    assert without_times(row["history"]) == without_times(first["history"]) and row["model"] == str(file)


def test_a_file_is_that_of_one_trial(small, tmp_path):
    """Of its settings and data, whatever its network is called and whichever settings are left as they are."""
    named = {"mode": "sequential", "progress": False, "keep_models": tmp_path, "data": small}
    quick = QUICK | {"limit": 64, "lr": 0.05}
    (first,) = d2l.sweep(d2l.grid(network={"a": linear()}, **quick), **named)
    (same,) = d2l.sweep(d2l.grid(network={"b": linear()}, weight_decay=0, **quick), **named)
    assert same["model"] == first["model"] and same["history"]["train_loss"] == first["history"]["train_loss"]
    others = [quick | {"seed": 1}, quick | {"limit": 65}, quick | {"num_epochs": 2}]
    models = {row["model"] for row in d2l.sweep([other | {"network": linear()} for other in others], **named)}
    data = [small[0][::-1], small[1][::-1], *small[2:]]
    models |= {d2l.sweep(d2l.grid(network=linear(), **quick), **named | {"data": data})[0]["model"], first["model"]}
    assert {Path(model) for model in models} == set(tmp_path.iterdir()) and len(models) == 5


def test_folders_that_cannot_be(monkeypatch, tmp_path):
    monkeypatch.setattr(run, "run_trial", None)
    file = tmp_path / "file"
    file.write_text("text")
    for keep, error, message in (
        ({"keep_models": file}, OSError, f"cannot write into {file}: it is not a folder; give another name"),
        ({"keep_models": file / "models"}, OSError, f"cannot write {file}/models: Not a directory"),
        ({"keep_models": ""}, ValueError, "keep_models is ''"),
        (
            {"keep_models": tmp_path / "x", "results": tmp_path / "x"},
            ValueError,
            "are the same file; give each its own",
        ),
        ({"results": tmp_path / "rows"}, OSError, "rows.trials: it is not a folder; give another name"),
    ):
        (tmp_path / "rows.trials").touch()
        with pytest.raises(error, match=message):
            d2l.sweep([{}], mode="sequential", progress=False, **keep)
    assert file.read_text() == "text" and {path.name for path in tmp_path.iterdir()} == {"file", "rows.trials"}


@pytest.mark.parametrize("who", ["in turn", "threads", "processes", *long("user's processes")])
def test_curves_of_trials_that_run(monkeypatch, small, tmp_path, who):
    monkeypatch.setattr(measuring, "PAUSE", 0)
    monkeypatch.setattr(measuring, "COST", math.inf)
    file, seen, kept = tmp_path / "rows.json", [], []

    def watch(rows):
        seen.append(json.loads(json.dumps(rows)))
        kept.append(d2l.load_sweep(file, running=True))
        assert [row["status"] for row in d2l.load_sweep(file)].count("running") == 0

    trials = d2l.grid(lr=[0.01, 0.02], **QUICK | {"num_epochs": 3, "limit": 128})
    more = {"data": small, "results": file, "watch": watch, "progress": False}
    if who in ("in turn", "processes"):
        mode, count = ("sequential", None) if who == "in turn" else ("simultaneous", 2)
        rows = d2l.sweep(trials, mode=mode, workers=count, **more)
    else:
        make = {"threads": lambda: ThreadPoolExecutor(2)}
        make["user's processes"] = lambda: ProcessPoolExecutor(2, mp_context=get_context("spawn"))
        with make[who]() as executor:
            rows = d2l.sweep(trials, executor, **more)
    assert seen[-1] == rows and (len(seen) == 2 if who == "user's processes" else len(seen) > 2)
    for i in range(2):
        final = {name: rows[i]["history"][name] for name in CURVES}
        lengths = []
        for part in seen:
            for row in part:
                if row["settings"] == rows[i]["settings"] and row["status"] == "running":
                    lengths.append(len(row["history"]["train_loss"]))
                    assert row["history"] == {name: values[: lengths[-1]] for name, values in final.items()}
        assert lengths == sorted(lengths)
        assert set(lengths) >= {"in turn": {1, 2, 3}, "threads": {1, 2}}.get(who, set())
    if who == "in turn":
        assert kept == [sorted(part, key=lambda row: row["status"] == "running") for part in seen]
    assert "running" not in json.loads(file.read_text())


def test_curves_after_an_interruption(monkeypatch, small, tmp_path):
    """They begin where the run did, not where it goes on."""
    trials, seen = [LONGER], []
    more = {"mode": "sequential", "data": small, "results": tmp_path / "rows.json", "progress": False}
    with monkeypatch.context() as patch:
        patch.setattr(run, "run_trial", stopping(13))
        d2l.sweep(trials, **more)
    assert "running" not in json.loads((tmp_path / "rows.json").read_text())
    (row,) = d2l.sweep(trials, watch=lambda rows: seen.append(len(rows[0]["history"]["train_loss"])), **more)
    assert seen == [2, 3, 3] and len(row["history"]["train_loss"]) == 3


def test_who_watches_and_fails(small, capsys):
    trials = d2l.grid(lr=[0.01, 0.02], **QUICK | {"limit": 64})
    rows = d2l.sweep(trials, mode="sequential", data=small, watch=lambda rows: 1 / 0)
    assert [row["status"] for row in rows] == ["done", "done"]
    said = "watch failed (ZeroDivisionError: division by zero); the sweep goes on without it"
    assert capsys.readouterr().out.count(said) == 1


def test_running_trials_that_somebody_has_put_together(tmp_path):
    file, curves = tmp_path / "rows.json", {name: [1.0] for name in CURVES}
    good = make_row(DONE["settings"], "running", "not done yet", None, curves)
    for running in ([], [good]):
        file.write_text(json.dumps(GOOD | {"running": running}))
        assert d2l.load_sweep(file, running=True) == [DONE, *running] and d2l.load_sweep(file) == [DONE]
    changes = [{"status": "done"}, {"history": None}, {"history": {}}]
    changes += [{"history": curves | {"train_loss": [value]}} for value in ("a", True, 10**400)]
    for running in (None, {}, [1], *([good | change] for change in changes)):
        file.write_text(json.dumps(GOOD | {"running": running}))
        with pytest.raises(ValueError, match="its rows are damaged"):
            d2l.load_sweep(file)


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
    many = [rows[0] | {"settings": rows[0]["settings"] | {"seed": i}} for i in range(21)]
    assert plot_curves(many).axes[1].get_legend() is None
    assert not plot_curves([failed]).axes[0].lines


def test_data_with_names_of_classes(small):
    """Which say how many classes there are, as for `train`."""
    y = [part % 3 for part in small[1::2]]
    data = small[0], y[0], small[2], y[1], ["bag", "coat", "shirt"]
    (row,) = d2l.sweep([QUICK | {"lr": 0.02}], mode="sequential", data=data, progress=False)
    assert row["status"] == "done" and row["history"]["classes"] == ["bag", "coat", "shirt"]
    with pytest.raises(ValueError, match="labels from 0 to 2; they should be whole numbers from 0 to 1"):
        d2l.sweep([QUICK], mode="sequential", data=[*data[:4], ["bag", "coat"]], progress=False)


def test_results_of_other_data(monkeypatch, tmp_path, small):
    monkeypatch.setattr(run, "run_trial", pretend)
    file = tmp_path / "rows.json"
    for data in (small, small):
        assert (
            d2l.sweep([{"seed": 0}], mode="sequential", results=file, data=data, progress=False)[0]["status"] == "done"
        )
    before = file.read_bytes()
    for data in (None, [small[0][:-1], small[1][:-1], *small[2:]], [*small[:2], small[2][1:], small[3][1:]]):
        with pytest.raises(ValueError, match="for other data"):
            d2l.sweep([{"seed": 0}], mode="sequential", results=file, data=data, progress=False)
    assert file.read_bytes() == before


MEASURED = {"test_accuracy": [0.5], "train_loss": [1.0], "seconds_per_epoch": [2]}
DONE = make_row(DEFAULTS | {"devices": 1, "lr": 0.1}, "done", None, 1.0, MEASURED)
GOOD = document([DONE])


@pytest.mark.parametrize(
    "change",
    [
        {"status": "finished"},
        {"status": ["done"]},
        {"status": "diverged", "message": 3},
        {"settings": [1]},
        {"seconds": "long"},
        {"history": None},
        {"history": [1]},
        *({"history": MEASURED | {name: value}} for name in MEASURED for value in (None, 0.5, ["high"])),
        *({"history": MEASURED | {name: []}} for name in ("train_loss", "seconds_per_epoch")),
        *({"history": MEASURED | {"train_loss": value}} for value in ([None], 0.5, [10**400], [True], [[1.0]])),
        {"history": {"test_loss": [1.0], "train_loss": [1.0], "seconds_per_epoch": [2]}},
        *({"status": "diverged", "message": "so", "history": value} for value in (1, MEASURED | {"train_loss": 1})),
        {"seconds": 10**400},
        {"seconds": True},
        *({"settings": DONE["settings"] | {"lr": value}} for value in (10**400, "fast", math.nan)),
        *({"settings": DONE["settings"] | {"num_epochs": value}} for value in (10**20, 1.5)),
        *({"settings": DONE["settings"] | {"devices": value}} for value in (10**20, "two")),
        {"settings": DONE["settings"] | {"network": {"name": "small"}}},
        {"settings": DONE["settings"] | {"speed": 9}},
    ],
    ids=lambda change: ascii(change)[-70:],
)
def test_rows_that_somebody_has_put_together(tmp_path, change):
    file = tmp_path / "rows.json"
    file.write_text(json.dumps(GOOD))
    assert d2l.load_sweep(file) == [DONE]
    file.write_text(json.dumps(document([DONE, DONE | change])))
    with pytest.raises(ValueError, match="its rows are damaged"):
        d2l.load_sweep(file)


@pytest.mark.parametrize("epochs", [1, 10**6])
def test_rows_from_a_file_are_plotted(tmp_path, epochs):
    """Settings that are left out are as by default; numbers may be whole, and of as many digits as a float can be."""
    file, history = tmp_path / "rows.json", {name: [10**20] for name in MEASURED}
    done = make_row({"lr": 1, "num_epochs": epochs}, "done", None, 10**20, history)
    goes_on = done | {"status": "running", "message": "not done yet"}
    rows = [done, make_row({"lr": 2}, "diverged", "so", 1.0)]
    file.write_text(json.dumps(GOOD | {"rows": rows, "running": [goes_on]}))
    rows = d2l.load_sweep(file, running=True)
    expected = {"lr": 1, "num_epochs": epochs}, {"lr": 2}, {"lr": 1, "num_epochs": epochs}
    assert [row["settings"] for row in rows] == [DONE["settings"] | settings for settings in expected]
    assert len(plot_sweep(rows).axes) == 2 and len(plot_curves(rows).axes) == 2


@pytest.mark.parametrize(
    "content, message",
    [
        ("", "not a sweep's results file"),
        (json.dumps(GOOD)[:-9], "not a sweep's results file"),
        ("[1, 2]", "not a sweep's results file"),
        ('{"devices": []}', "not a sweep's results file"),
        (json.dumps(GOOD | {"version": "1"}), "not a sweep's results file"),
        (json.dumps(GOOD | {"version": 2}), "not a sweep's results file, or damaged, or of a newer"),
        (json.dumps(GOOD | {"rows": {}}), "its rows are damaged"),
        (json.dumps(GOOD | {"rows": [{"settings": {}}]}), "its rows are damaged"),
    ],
)
def test_a_file_of_something_else_stays_as_it_is(monkeypatch, tmp_path, content, message):
    monkeypatch.setattr(run, "run_trial", None)
    file = tmp_path / "rows.json"
    file.write_text(content)
    with pytest.raises(ValueError, match=message):
        d2l.sweep(d2l.grid(lr=[0.1, 0.2]), mode="sequential", results=file)
    assert file.read_text() == content
    with pytest.raises(ValueError, match="not a regular file"):
        d2l.sweep(d2l.grid(lr=[0.1, 0.2]), results="/dev/null")


def test_a_trial_that_is_asked_to_stop(small):
    """As Ctrl-C asks the threads of a user's executor."""
    (settings,) = complete_trials([{**QUICK, "lr": 0.1}])
    row = d2l.run_trial(settings, small, stop=lambda: True)
    assert (row["status"], row["message"]) == ("interrupted", "interrupted in epoch 1")
    assert row["history"]["interrupted"]["steps"] == 1


def test_a_trial_as_grid_makes_it(small):
    """What it does not name is as by default, as in a sweep, one device included."""
    trials = d2l.grid(network=linear(), lr=[0.05, 0.1], **QUICK)
    row, other = d2l.run_trial(trials[1], small), d2l.sweep(trials, mode="sequential", data=small, progress=False)[1]
    assert row["status"] == "done" and without_times(row["history"]) == without_times(other["history"])
    assert row["settings"] == other["settings"] == complete_trials(trials)[1] != trials[1]
    for wrong, message in (({"lrr": 1}, "lrr: no such setting; choose from devices, "), (7, "7 is not a dict of")):
        row = d2l.run_trial(wrong, small)
        assert (row["status"], row["settings"], row["history"]) == ("failed", wrong, None) and message in row["message"]


def test_a_table_that_is_redrawn(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *_, **__: os.terminal_size((30, 7)))
    monkeypatch.setenv("TERM", "xterm")
    trials = complete_trials(d2l.grid(seed=range(9)))
    rows = [pretend(settings) for settings in trials if settings["seed"] != 1]
    record = Record([make_row(settings, "waiting", "waiting") for settings in trials], results.Results(None))
    for i in range(6):
        record.runs(i, {name: [] for name in CURVES})
        record.end(i, make_row(trials[i], "failed", "words " * 20))
    pictures = capsys.readouterr().out.split("\x1b[6F\x1b[J")  # six lines up, and clear
    lines = pictures[-1].splitlines()
    assert len(pictures) == 12 and all(len(line) < 30 for picture in pictures for line in picture.splitlines())
    assert [line.split()[:2] for line in lines[1:]] == [
        *(["5", "failed:"], ["6", "waiting"], ["7", "waiting"], ["8", "waiting"]),
        ["6/9", "trials"],
    ]
    record.rows = [rows[0]] * 9
    record.complete()
    last = capsys.readouterr().out
    assert last.startswith("\x1b[6F\x1b[J") and len(last.splitlines()) == 12


def rows_to_plot():
    """devices 1 and 2, three rates, three seeds; accuracy is devices / 10 + lr / 2 + seed / 100."""
    rows = []
    for settings in complete_trials(d2l.grid(devices=[2, 1], lr=[0.4, 0.01, 0.1], seed=range(3))):
        accuracy = settings["devices"] / 10 + settings["lr"] / 2 + settings["seed"] / 100
        history = {"test_accuracy": [accuracy, accuracy - 0.1], "train_loss": [2.0, 1.0], "seconds_per_epoch": [1.0]}
        rows.append(make_row(settings, "done", None, 1.0, history))
    return rows


def heights(line):
    return np.asarray(line.get_ydata(), float)


def test_plot():
    rows = rows_to_plot()
    for row in rows:
        if row["settings"]["lr"] == 0.4 and row["settings"]["devices"] == 2:
            row["status"] = "diverged"
    rows[-1]["status"] = "failed"
    top, bottom = plot_sweep(rows).axes
    assert (top.get_ylabel(), bottom.get_xlabel(), bottom.get_xscale()) == (
        "best test accuracy",
        "learning rate",
        "log",
    )
    assert [tick.get_text() for tick in bottom.get_xticklabels()] == ["0.01", "0.1", "0.4"]
    assert [text.get_text() for text in top.get_legend().get_texts()] == ["2", "1"]
    assert top.get_legend().get_title().get_text() == "devices"
    two, one = (container for container in top.containers)
    np.testing.assert_allclose(heights(two[0]), [0.2 + 0.005 + 0.01, 0.2 + 0.05 + 0.01, math.nan])
    np.testing.assert_allclose(heights(one[0]), [0.115, 0.1 + 0.05 + 0.005, 0.31])  # seeds 0, 1 at rate 0.1
    least, most = map(heights, two[1])
    np.testing.assert_allclose([least, most], [[0.205, 0.25, math.nan], [0.225, 0.27, math.nan]])
    assert np.all(two[0].get_xdata() < one[0].get_xdata()) and np.all(one[0].get_xdata() < 1.2 * two[0].get_xdata())
    assert [tick.get_text() for tick in bottom.get_yticklabels()] == ["diverged", "failed"]
    marks = [(line.get_ydata().tolist(), line.get_color()) for line in bottom.lines]
    colours = [container[0].get_color() for container in (two, one)]
    assert marks == [([0], colours[0]), ([1], colours[1])] and colours[0] != colours[1]
    assert [text.get_text() for text in bottom.texts] == ["3"]
    title = plot_sweep(rows).get_suptitle()
    assert title.startswith("lenet, sgd, 10 epochs, batch 256, normal weights\n") and "differ in seed" in title
    assert title.endswith("\nlines side by side: a point belongs to the nearest mark of the axis")


@pytest.mark.parametrize("x", ["lr", "devices", "network"])
def test_a_point_is_where_its_value_is(x):
    """Unless there are several trials of a value: then the title says that lines lie side by side."""
    rows = [row for row in rows_to_plot() if row["settings"]["seed"] == 0]
    rows = rows[:1] if x == "network" else rows
    figure = plot_sweep(rows, x=x, by="lr" if x == "devices" else "devices")
    expected = {"lr": [0.01, 0.1, 0.4], "devices": [1, 2], "network": [0]}[x]
    for line, *_ in figure.axes[0].containers:
        np.testing.assert_allclose(np.asarray(line.get_xdata(), float), expected)
    assert "side by side" not in figure.get_suptitle()
    rows = [row for row in rows_to_plot() if row["settings"]["devices"] == 1]
    assert "side by side" not in plot_sweep(rows, x="lr").get_suptitle()  # one line alone


@pytest.mark.parametrize(
    ("scaled", "lr", "batch_size"),
    [
        ([False], "learning rate", "minibatch (examples)"),
        ([True], "learning rate / devices", "minibatch / devices (examples)"),
        ([True, False], "learning rate, before scale_batch", "minibatch (examples), before scale_batch"),
    ],
)
def test_an_axis_says_where_rates_are_scaled(scaled, lr, batch_size):
    values = {"devices": [1, 4], "lr": [0.1, 0.2], "batch_size": [32, 64], "num_epochs": 1}
    trials = complete_trials(d2l.grid(scale_batch=scaled, **values))
    rows = [pretend(settings) for settings in trials]
    figure = plot_sweep(rows, x="lr", by="batch_size")
    assert figure.axes[-1].get_xlabel() == lr
    assert figure.axes[0].get_legend().get_title().get_text() == batch_size
    assert ", 1 epoch," in figure.get_suptitle()
    assert ("batch and lr times the number of devices" in figure.get_suptitle()) == (scaled == [True])


def test_plots_of_other_settings():
    rows = [row for row in rows_to_plot() if row["settings"]["seed"] == 0]
    (axes,) = plot_sweep(rows, x="devices", y="training loss", by="lr").axes
    assert axes.get_xscale() == "linear" and [line.get_linestyle() for line, *_ in axes.containers] == ["-"] * 3
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2"]
    (axes,) = plot_sweep(rows, x="network", y="last accuracy", by="devices").axes
    assert [line.get_linestyle() for line, *_ in axes.containers] == ["None"] * 2
    np.testing.assert_allclose([line.get_ydata()[0] for line, *_ in axes.containers], [0.15, 0.05])
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
    file, plot, kept = tmp_path / "sweep.json", tmp_path / "plot.png", tmp_path / "kept.json"
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


@pytest.mark.long
def test_plots_are_drawn_as_a_sweep_goes_on(monkeypatch, tmp_path):
    monkeypatch.setattr(measuring, "PAUSE", 0)
    monkeypatch.setattr(measuring, "COST", math.inf)
    drawn = []

    def draw(rows):
        drawn.append([(row["status"], len(row["history"]["train_loss"])) for row in rows])
        return plot_curves(rows)

    monkeypatch.setattr("d2lmgpu.cli.sweep.plot_curves", draw)
    plots = tmp_path / "plot.png", tmp_path / "curves.svg"
    command = [*COMMAND, "--lr", "0.02", "--epochs", "2", "--mode", "sequential"]
    assert cli.main([*command, "--plot", str(plots[0]), "--curves", str(plots[1])]) == 0
    first, second, done = ("running", 1), ("running", 2), ("done", 2)
    assert drawn == [[first], [second], [done], [done, first], [done, second], [done, done], [done, done]]
    assert plots[0].read_bytes().startswith(b"\x89PNG") and b"<svg" in plots[1].read_bytes()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--lr", "0.1,fast"], "--lr: invalid list of float value: '0.1,fast'"),
        (["--lr", "0.1,-1"], "lr is -1"),
        (["--devices", "1,0"], "at least 1"),
        (["--init", "he,"], "init '' is unknown"),
        (["--seed", "0,0"], "trials 1 and 2 are the same"),
        (["--optimizer", "sgd,rmsprop"], "'rmsprop' is unknown"),
        (["--mode", "both"], "simultaneous, sequential"),
        (["--x", "rate"], "x 'rate' is unknown; choose from devices, "),
        (["--results", "/no/such/folder/rows.json"], "cannot write"),
        (["--plot", "plot.doc"], ".png, .svg, .pdf"),
        (["--curves", "plot.doc"], ".png, .svg, .pdf"),
        (["--curves", "a.png", "--plot", "a.png"], "--curves a.png and --plot a.png are the same file"),
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
@pytest.mark.parametrize("how, code", [("terminal", 130), ("sequential", 130), ("kill -9", -9)])
def test_ctrl_c_keeps_rows_and_leaves_no_process(tmp_path, how, code):
    """The first trial ends soon, the others would take minutes. In a terminal all processes hear of it."""
    file = tmp_path / "rows.json"
    command = [sys.executable, "-m", "d2lmgpu", *COMMAND, "--epochs", "1,5000", "--batch-size", "50"]
    mode = how if how == "sequential" else "simultaneous"
    command += ["--lr", "0.02", "--results", str(file), "--mode", mode]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # the test runner may have been started with SIGINT ignored, which a child would inherit
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    files = (tmp_path / "rows.json.trials").glob

    def one_is_done_and_the_other_has_begun():
        # the first has a checkpoint, too, which is written before its row and removed after it
        done = file.exists() and len(d2l.load_sweep(file)) == 1
        return done and [f.stat().st_mtime_ns > file.stat().st_mtime_ns for f in files("*.ckpt")] == [True]

    wait_for(one_is_done_and_the_other_has_begun)
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) >= (0 if how == "sequential" else 1)
    if how == "kill -9":
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert psutil.wait_procs(children, timeout=20)[1] == []
    (row,) = d2l.load_sweep(file)
    assert row["settings"]["num_epochs"] == 1
    (left,) = files("*.ckpt")  # of the other, which had begun
    assert d2l.load_model(left)
    if code == 130:
        assert err == "" and "1 done, 1 interrupted" in out and "started again with it" in out


@pytest.mark.long
def test_a_program_that_starts_workers_as_it_is_imported(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import d2lmgpu as d2l\nprint(d2l.sweep([{}], progress=False))\n")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True)
    assert done.returncode == 1 and "under if __name__ == '__main__':" in done.stderr.splitlines()[-1]


PROGRAM = """
import d2lmgpu as d2l
{imports}
if __name__ == "__main__":
    trials = d2l.grid(devices=[1, 3], seed=[0, 1], lr=0.1, limit=300, num_epochs=1, init="he", environment="cpu")
    trials.append({{"algorithm": "nccl"}})
    {start}
        rows = d2l.sweep(trials, executor, results="rows.json")
    here = d2l.sweep(trials, mode="sequential", progress=False)
    sums = [[row["history"] and row["history"]["final_parameters_sha256"] for row in part] for part in (rows, here)]
    assert sums[0] == sums[1], sums
    assert [row["status"] for row in rows] == ["done"] * 4 + ["failed"], rows
"""


def find_program(name):
    """Beside this Python, where packages put theirs, or anywhere."""
    return shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))


@pytest.mark.long
@pytest.mark.parametrize("package", ["mpi4py", "distributed"])
def test_executors_of_other_packages(tmp_path, package):
    pytest.importorskip(package, reason=f"{package} is not installed")
    program, command = tmp_path / "program.py", [sys.executable]
    if package == "mpi4py":
        mpiexec = find_program("mpiexec")
        if mpiexec is None:
            pytest.skip("there is no mpiexec")
        command = [mpiexec, "-n", "3", sys.executable, "-m", "mpi4py.futures"]
        imports, start = "from mpi4py.futures import MPIPoolExecutor", "with MPIPoolExecutor() as executor:"
    else:
        imports = "from distributed import Client"
        start = "with Client(n_workers=2, dashboard_address=None) as client, client.get_executor() as executor:"
    program.write_text(PROGRAM.format(imports=imports, start=start))
    done = subprocess.run([*command, program], capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr
    assert len(d2l.load_sweep(tmp_path / "rows.json")) == 5


def test_trials_that_run_are_not_written_again_at_once(monkeypatch, tmp_path):
    file, clock = tmp_path / "rows.json", types.SimpleNamespace(now=100.0, perf_counter=lambda: clock.now)
    monkeypatch.setattr(measuring, "time", clock)
    kept = results.Results(file)
    running = make_row({"lr": 0.5}, "running", history={name: [] for name in CURVES})
    kept.add(make_row({"lr": 0.25}, "failed", "OSError: no space", 1.0))
    counts = []
    for clock.now in (100.0 + measuring.PAUSE / 2, 100.0 + measuring.PAUSE * 1.5):
        kept.show([running])
        counts.append(len(json.loads(file.read_text()).get("running", [])))
    assert counts == [0, 1]
