"""Many networks: grids, rows that equal what `train` gives, trials that fail, files to go on from, pictures, Ctrl-C."""

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
from d2lmgpu.experiments import plot_curves, sweeps as run
from d2lmgpu.experiments.plots import plot_sweep
from d2lmgpu.experiments.trials import complete_trials, make_row
from d2lmgpu.networks import BatchNorm, Dense, Flatten, sequential

pytestmark = pytest.mark.threads

LINEAR = sequential((1, 4, 4), Flatten(), Dense(3))
NORM = sequential((1, 4, 4), Flatten(), BatchNorm(), Dense(3))
NETWORKS = LINEAR, LINEAR, NORM
rng = np.random.default_rng(3)
DATA = tuple(part for n in (60, 20) for part in (rng.random((n, 1, 4, 4)).astype(np.float32), rng.integers(0, 3, n)))
QUICK = {"batch_size": 16, "num_epochs": 2, "init": "he", "environment": "cpu", "network": LINEAR}
ALONE = {"mode": "sequential", "data": DATA, "progress": False}
TIMES = ("seconds_per_epoch", "examples_per_second", "phases", "utilisation")


def without_times(history):
    return {name: value for name, value in history.items() if name not in TIMES}


def trained(devices, limit=None, **settings):
    """What `train` gives, here."""
    data = DATA[0][:limit], DATA[1][:limit], *DATA[2:]
    return without_times(d2l.train(devices, data=data, progress=False, **settings).history.as_dict())


def test_a_grid_is_all_combinations_in_order():
    trials = d2l.grid(devices=(1, 2), lr=np.array([0.25, 0.5]), seed=range(2), init="he")
    values = [(k, lr, seed, "he") for k in (1, 2) for lr in (0.25, 0.5) for seed in (0, 1)]
    assert trials == [dict(zip(["devices", "lr", "seed", "init"], each, strict=True)) for each in values]
    complete = complete_trials(trials)
    assert json.loads(json.dumps(complete)) == complete  # np.float64 became float
    alone, on_all = complete_trials([{}, {"environment": "multi-gpu"}])
    assert (alone["devices"], on_all["devices"], alone["limit"]) == (1, None, None)


@pytest.mark.parametrize("who", ["in turn", "processes", *long("threads", "user's processes")])
def test_however_it_is_done_a_history_is_that_of_train(who, tmp_path):
    """Networks of one's own are made anew wherever a trial is done, and recognised in the results."""
    own = (
        {"lr": 0.1, "devices": 3, "seed": 2},
        {"optimizer": "momentum", "limit": 33},
        {"devices": 2, "loads": [1, 0.5]},
    )
    trials = [d2l.grid(**QUICK | {"network": {"own": net}})[0] | each for net, each in zip(NETWORKS, own, strict=True)]
    how = {"results": tmp_path / "rows.jsonl", "data": DATA, "progress": False}
    if who in ("in turn", "processes"):
        rows = d2l.sweep(trials, **how, **{"mode": "sequential"} if who == "in turn" else {"workers": 2})
    else:
        processes = functools.partial(ProcessPoolExecutor, 1, get_context("spawn"))
        with (ThreadPoolExecutor if who == "threads" else processes)() as executor:
            rows = d2l.sweep(trials, executor, **how)
    for row, trial, network in zip(rows, trials, NETWORKS, strict=True):
        assert row["status"] == "done" and row["settings"]["network"]["name"] == "own"
        assert without_times(row["history"]) == trained(**{"devices": 1} | trial | {"network": network})
    assert json.loads(json.dumps(rows)) == rows
    assert d2l.sweep([row["settings"] for row in rows], Executor(), **how) == rows  # which does no trial
    assert rows[0]["settings"] == complete_trials(trials)[0]


@pytest.mark.long
def test_each_on_all_devices(device_kind, make_devices):
    settings = QUICK | {"environment": "cpu" if device_kind == "cpu" else "gpu", "num_epochs": 1}
    rows = d2l.sweep(d2l.grid(devices=[2, [1]], **settings), **ALONE)
    for row, devices in zip(rows, (make_devices(2), make_devices(2)[1:]), strict=True):
        assert without_times(row["history"]) == trained(devices, **settings)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_trials_that_diverge_or_fail_leave_the_others(capsys):
    """Lines say what becomes of each, with the settings in which they differ."""
    settings = [{"lr": 0.1}, {"lr": 1e6, "network": NORM}, {"lr": 0.1, "algorithm": "nccl"}, {"lr": 0.1, "seed": 1}]
    trials, seen = [QUICK | {"loss": "squared_error"} | own for own in settings], []
    rows = d2l.sweep(trials, mode="sequential", data=DATA, watch=seen.append)
    assert seen == [rows[:number] for number in (1, 2, 3, 4)]
    assert [row["status"] for row in rows] == ["done", "diverged", "failed", "done"]
    assert rows[1]["message"].startswith("diverged in epoch ") and rows[1]["history"]["diverged"]
    assert rows[2]["message"].startswith("DeviceError: allreduce 'nccl' needs at least two GPUs, not [cpu(0)]")
    assert rows[2]["history"] is None
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "4 trials" and re.match("2/4: lr 1e.06, .*network custom-.*: diverged in epoch", lines[2])
    assert re.match("3/4: lr 0.1, .*algorithm nccl, .*: failed: DeviceError: ", lines[3])
    summary = d2l.History.from_dict(rows[3]["history"]).summary()
    assert re.match("4/4: lr 0.1, .*seed 1", lines[4]) and lines[4].endswith(f": {summary}")
    assert rows[3]["message"] is None and lines[5:] == ["2 done, 1 diverged, 1 failed"]
    for wrong, message in (({"lrr": 1}, "setting 'lrr' is unknown; choose from devices, "), (7, "7 is not a dict of")):
        row = d2l.run_trial(wrong, DATA)
        assert (row["status"], row["settings"], row["history"]) == ("failed", wrong, None) and message in row["message"]


def history(accuracy=(0.25, 0.5), losses=(2.0, 1.0)):
    """A history of some epochs, as a dict."""
    about = {"devices": ["cpu(0)"], "environment": "cpu", "settings": d2l.Settings().recorded()}
    curves = {"test_accuracy": list(accuracy), "train_loss": list(losses), "seconds_per_epoch": [1.0, 3.0]}
    return d2l.History(**about, **curves).as_dict()


def pretend(settings, *given):
    """In place of `run_trial`: the process dies if the seed is 1; nothing is trained."""
    if settings["seed"] == 1:
        time.sleep(0.3)  # others are under way
        os._exit(3)
    return make_row(settings, "done", str(os.getpid()), history((settings["lr"] / 2, settings["lr"])))


@pytest.mark.long
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


@pytest.mark.long
def test_a_worker_has_a_gpu_of_its_own(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-5ab,7")
    for cards in (["GPU-5ab"], [None]):
        with run.processes(cards) as pool:
            seen = pool.submit(os.getenv, "CUDA_VISIBLE_DEVICES").result()
        assert seen == (cards[0] or "2,GPU-5ab,7")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "2,GPU-5ab,7"


def test_how_many_workers(monkeypatch, standin):
    trials = complete_trials(d2l.grid(seed=range(9)))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-5ab,7")
    assert run.cards_of_workers(3, trials) == ["2", "GPU-5ab", "2"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert run.cards_of_workers(None, trials) == ["0", "1"]  # the stand-in's cards
    assert run.cards_of_workers(5, trials) == ["0", "1", "0", "1", "0"]
    assert run.cards_of_workers(5, trials[:3]) == ["0", "1", "0"]
    monkeypatch.setattr(run, "count_cores", lambda: 7)
    assert run.cards_of_workers(None, complete_trials(d2l.grid(seed=range(9), environment="cpu"))) == [None] * 7


def test_a_sweep_goes_on_where_it_was_left(monkeypatch, tmp_path, capsys):
    file, done, broken = tmp_path / "rows.jsonl", [], {2}

    def count(settings, *given):
        done.append(settings["seed"])
        if settings["seed"] in broken:
            return make_row(settings, "failed", "OSError: no space")
        return pretend(settings) | ({"status": "diverged"} if settings["seed"] == 5 else {})

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
    # the grid may grow, and be in another order
    assert again(seed=[5, 4, 2, 0]) == ([5, 2], ["diverged", "done", "done", "done"])
    assert again(seed=[5]) == ([], ["diverged"])
    capsys.readouterr()
    assert again(seed=[0, 2, 4]) == ([], ["done"] * 3)
    assert capsys.readouterr().out == "3 trials, 3 of them done before\n3 done\n"
    assert again(seed=[0], lr=0.2, batch_size=256) == ([], ["done"])  # said as it is by default
    assert again(seed=[0], lr=1) == again(seed=[0], lr=0.3) == ([0], ["done"])
    assert again(seed=[0], lr=1.0) == ([], ["done"])
    kept = [(row["settings"]["seed"], row["settings"]["lr"]) for row in d2l.load_sweep(file)]
    assert sorted(kept) == [(0, 0.2), (0, 0.3), (0, 1), (2, 0.2), (4, 0.2), (5, 0.2)]
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


def test_models_that_are_kept(tmp_path):
    """One that is missing is trained again, others are not."""
    keep = ALONE | {"results": tmp_path / "rows.jsonl", "keep_models": tmp_path / "new" / "models"}
    trials = [*d2l.grid(**QUICK | {"network": {"linear": LINEAR, "bn": NORM}}), QUICK | {"algorithm": "nccl"}]
    rows = d2l.sweep(trials, **keep)
    files = [row["model"] for row in rows[:2]]
    assert sorted(files) == sorted(map(str, keep["keep_models"].iterdir())) and rows[2]["model"] is None
    for row in rows[:2]:
        model = d2l.load_model(row["model"])
        values = [*model.params, *model.statistics]
        assert d2l.training.sha256(values) == row["history"]["final_parameters_sha256"]
    before = Path(files[0]).stat().st_mtime_ns
    Path(files[1]).unlink()
    again = d2l.sweep(trials, **keep)
    assert again[0] == rows[0] and without_times(again[1]["history"]) == without_times(rows[1]["history"])
    assert [row["model"] for row in again[:2]] == files and Path(files[0]).stat().st_mtime_ns == before
    kept = keep["results"].read_bytes()
    for other in ((DATA[0][:-1], DATA[1][:-1], *DATA[2:]), (*DATA[:2], DATA[2][1:], DATA[3][1:])):
        with pytest.raises(ValueError, match="for other data"):
            d2l.sweep(trials, **keep | {"data": other})
    assert keep["results"].read_bytes() == kept


def test_a_file_of_something_else_stays_as_it_is(tmp_path):
    file, head = tmp_path / "rows.jsonl", {"format": "d2lmgpu sweep", "version": 2, "data": None}
    done = make_row(complete_trials([{}])[0], "done", "so", history())
    for lines, message in (
        ([head | {"version": 1}], "or of another version"),
        ([head, done, {"settings": {}}], "its rows are damaged"),
        ([head, done, done | {"history": history() | {"train_loss": ["high"]}}], "its rows are damaged"),
        ([head, done, done | {"settings": done["settings"] | {"network": {"name": "a"}}}], "its rows are damaged"),
    ):
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        for read in (d2l.load_sweep, lambda results: d2l.sweep(d2l.grid(lr=[0.1, 0.2]), results=results)):
            with pytest.raises(ValueError, match=message):
                read(file)
        assert [*map(json.loads, file.read_text().splitlines())] == lines


def test_a_plot_of_rows_and_of_curves():
    """Devices 1 and 2, three rates, seeds 0 and 1; accuracy is devices / 10 + lr / 2 + seed / 100."""
    rows = []
    for settings in complete_trials(d2l.grid(devices=[2, 1], lr=[0.4, 0.01, 0.1], seed=range(2))):
        accuracy = settings["devices"] / 10 + settings["lr"] / 2 + settings["seed"] / 100
        rows.append(make_row(settings, "done", "so", history([accuracy, accuracy - 0.1])))
    for row in rows[:2]:  # with rate 0.4, on two devices
        row["status"], row["history"]["train_loss"] = "diverged", [1e9, math.nan]
    rows[-1]["status"] = "failed"
    (axes,) = plot_sweep(rows).axes
    assert axes.get_ylabel() == "best test accuracy"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0.01", "0.1", "0.4"]
    found = [np.array([part.get_ydata() for part in (middle, *ends)], float) for middle, ends, _ in axes.containers]
    two = [[0.21, 0.255, math.nan], [0.205, 0.25, math.nan], [0.215, 0.26, math.nan]]  # mean, least and most of seeds
    np.testing.assert_allclose(found, [two, [[0.11, 0.15, 0.305], [0.105, 0.15, 0.3], [0.115, 0.15, 0.31]]])
    hollow = [line.get_xdata().tolist() for line in axes.lines if line.get_markerfacecolor() == "none"]
    assert hollow == [[2, 2], [1]]
    accuracy, loss = plot_curves([rows[0], rows[2] | {"status": "running"}, rows[4], rows[-2]]).axes
    expected = [[0.4, 0.3], [0.205, 0.105], [0.25, 0.15], [0.15, 0.05]]
    np.testing.assert_allclose([line.get_ydata() for line in accuracy.lines], expected)
    assert [line.get_linestyle() for line in loss.lines] == ["--", "--", "-", "-"]
    named = [text.get_text() for text in loss.get_legend().get_texts()]
    assert named[:2] == ["devices 2, lr 0.4 (diverged)", "devices 2, lr 0.01 (running)"] and loss.get_ylim()[1] == 3


@pytest.mark.long
@pytest.mark.parametrize("mode, code", [("simultaneous", 130), ("sequential", 130), ("simultaneous", -9)])
def test_ctrl_c_keeps_rows_and_leaves_no_process(tmp_path, mode, code):
    """The first trial ends soon, the others would take minutes. As in a terminal, all processes hear of it."""
    file = tmp_path / "rows.jsonl"
    words = f"--environment cpu --limit 200 --batch-size 50 --epochs 1,5000,6000 --init he --results {file}"
    command, pipe = [sys.executable, "-m", "d2lmgpu", "sweep", "--mode", mode, *words.split()], subprocess.PIPE
    process = subprocess.Popen(command, start_new_session=True, stdout=pipe, stderr=pipe, text=True)
    while process.poll() is None and not (file.exists() and d2l.load_sweep(file)):
        time.sleep(0.1)
    time.sleep(2)  # the other has begun, though Ctrl-C is heard at any time
    children = psutil.Process(process.pid).children(recursive=True)
    assert children or mode == "sequential"
    process.kill() if code == -9 else os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == code and psutil.wait_procs(children, timeout=20)[1] == [], err
    assert [row["settings"]["num_epochs"] for row in d2l.load_sweep(file)] == [1]
    assert code == -9 or (err == "" and "1 done, 2 interrupted" in out)


PAGE = (Path(__file__).resolve().parents[2] / "docs" / "sweeps.md").read_text(encoding="utf-8")
WAYS = dict(re.findall(r"^## (By .*?)\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL))
SRUN = '#!/bin/bash\nwhile [[ $1 == --* ]]; do shift; done\nexec "{mpiexec}" -n 3 "$@"\n'


@pytest.mark.long
@pytest.mark.parametrize(
    "package, way", [("mpi4py", "By MPI"), pytest.param("distributed", "By Dask", marks=pytest.mark.nightly)]
)
def test_executors_of_other_packages(package, way, tmp_path):
    """The programs and batch jobs of the page, with ``srun`` replaced by ``mpiexec``."""
    pytest.importorskip(package, reason=f"{package} is not installed")
    path = os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    mpiexec = shutil.which("mpiexec", path=path) or pytest.skip("there is no mpiexec")
    (program,) = re.findall(r"```python\n(.*?)```", WAYS[way], re.DOTALL)
    (job,) = re.findall(r"```bash\n(.*?)```", WAYS[way], re.DOTALL)
    (tmp_path / "sweep.py").write_text(program.replace("num_epochs=10", 'num_epochs=1, limit=300, environment="cpu"'))
    (tmp_path / "srun").write_text(SRUN.format(mpiexec=mpiexec))
    (tmp_path / "srun").chmod(0o755)
    environment = os.environ | {"PATH": path, "SLURM_JOB_ID": "7", "PYTHONPATH": str(Path(d2l.__file__).parents[1])}
    done = subprocess.run(["bash"], input=job, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = d2l.load_sweep(tmp_path / "sweep.jsonl")
    assert [row["status"] for row in rows] == ["done"] * 6 and list(WAYS) == ["By MPI", "By Dask"]
    here = d2l.run_trial(rows[0]["settings"])
    assert here["history"]["final_parameters_sha256"] == rows[0]["history"]["final_parameters_sha256"]
