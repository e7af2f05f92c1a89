"""What commands write: through links and to streams, where a disk is full, and after training that diverges."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import few
from PIL import Image

import d2lmgpu as d2l
from d2lmgpu import cli
from d2lmgpu.experiments import plot_sweep
from d2lmgpu.pictures.plots import plot_history
from d2lmgpu.training import load_run

TRAIN = "train --environment cpu --devices 2 --epochs 2 --init he --lr 0.01 --batch-size 50"


@pytest.fixture(autouse=True)
def few_images(small, monkeypatch):
    """Commands train and test on these, and not on Fashion-MNIST as a whole."""
    few = (small[0][:300], small[1][:300], *small[2:])
    for owner in ("train", "sweep"):
        monkeypatch.setattr(f"d2lmgpu.cli.{owner}.find_data", lambda *_: few)
    monkeypatch.setattr("d2lmgpu.experiments.trials.fashion_mnist", lambda: few)
    monkeypatch.setattr("d2lmgpu.cli.predict.load_fashion_mnist", lambda: few)


def strictly(text):
    """The content of JSON, whose grammar has neither NaN nor Infinity."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"JSON has no {name}"))


def all_json(folder):
    found = [strictly(file.read_text("ascii")) for file in folder.glob("*.json")]
    return found + [strictly(line) for file in folder.glob("*.jsonl") for line in file.read_text("ascii").splitlines()]


DIVERGES = "--environment cpu --init he --epochs 2 --batch-size 50 --lr"


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_json_of_a_run_that_diverges(tmp_path, monkeypatch):
    """All that is called JSON, and that is in a checkpoint, has the grammar of JSON, and NaN comes back from it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text("metrics = {'sum of outputs': lambda outputs, y: outputs.sum()}")
    files = "--json r.json --trace t.json --checkpoint run"
    assert cli.main(f"train --devices 2 {DIVERGES} 1e6 --metrics own.py {files}".split()) == 1
    Image.fromarray(np.zeros((28, 28), np.uint8)).save("a.png")
    assert cli.main("predict run --json test.json".split()) == 0
    assert cli.main("predict run a.png --json picture.json".split()) == 0
    assert strictly((tmp_path / "picture.json").read_text())["predictions"][0]["class"] is None
    told, kept = strictly((tmp_path / "r.json").read_text()), load_run("run").state["history"]
    history = d2l.History.from_dict(told)
    assert None in told["train_loss"] and np.isnan(history.train_loss).any() and history.diverged
    assert repr(history.metrics) == repr(kept["metrics"]) and repr(history.train_loss) == repr(kept["train_loss"])
    plot_history(history)
    header, _, content = (tmp_path / "run").read_bytes().partition(b"\n")
    assert strictly(header) and strictly(np.load(io.BytesIO(content))["state"].tobytes())
    assert len(all_json(tmp_path)) == 4


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_json_of_a_sweep_of_which_some_runs_diverge(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = f"sweep {DIVERGES} 4e5,0.01 --devices 2,1 --scale-batch --warmup 0.5 --results kept.jsonl"
    assert cli.main(f"{command} --mode sequential --json s.json --plot p.png --curves c.png".split()) == 0
    assert "2 diverged, 2 done" in capsys.readouterr().out
    rows = d2l.load_sweep("kept.jsonl")
    assert [row["status"] for row in rows] == ["diverged", "done"] * 2 and np.isnan(rows[0]["history"]["train_loss"][0])
    assert [row["history"]["batch_size"] for row in rows] == [100, 100, 50, 50] and rows[0]["history"]["warmup"] == 0.5
    plot_sweep(rows, y="training loss")
    assert repr(d2l.sweep([row["settings"] for row in rows], results="kept.jsonl")) == repr(rows)
    assert len(all_json(tmp_path)) == 6
    assert cli.main(f"{command} --allreduce nccl".split()) == 1  # a trial fails
    assert capsys.readouterr().out.endswith("\n4 failed\n")


def test_results_that_cannot_be_written_leave_the_others(tmp_path, capsys):
    plot = tmp_path / "p.png"
    assert cli.main([*TRAIN.split(), "--json", "/dev/full", "--plot", str(plot), "--trace", "/dev/full"]) == 2
    out, err = capsys.readouterr()
    full = "cannot write /dev/full: No space left on device"
    assert err == f"d2lmgpu train: error: {full}\n" and out.splitlines()[-1].startswith("test acc: ")
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_a_result_through_a_link_and_at_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "real.json").write_text("older")
    (tmp_path / "link.json").symlink_to("real.json")
    assert cli.main(["devices", "--json=~/link.json"]) == 0
    assert (tmp_path / "link.json").is_symlink() and "devices" in json.loads((tmp_path / "real.json").read_text())


STREAMS = {  # by a line for the shell, which runs PYTHON: the exit code, and what is said
    "PYTHON -m d2lmgpu devices --json /dev/stdout | cat": (0, r'(?s)(?=.*memory free).*"devices": \['),
    "(PYTHON -m d2lmgpu devices --json /dev/stdout; echo end) > out; cat out": (
        0,
        r'(?s)memory free.*"devices": \[.*}\nend\n$',
    ),
    "PYTHONIOENCODING=ascii PYTHON -m d2lmgpu check he_std answer.py": (0, r"\\u2713 he_std: "),
    "PYTHONIOENCODING=utf-8 PYTHON -m d2lmgpu check he_std answer.py": (0, r"✓ he_std: "),
    "ulimit -f 0; PYTHON train.py --tensorboard log": (
        0,
        r"note: TensorBoard failed .*File too large.*; training goes on",
    ),
}
ANSWER = """
import math

def he_std(shape):
    return (2 / (math.prod(shape[1:]) if len(shape) == 4 else shape[0])) ** 0.5
"""
PROGRAM = f"""
import sys
from d2lmgpu import cli, load_fashion_mnist
X, y, X_test, y_test = load_fashion_mnist()
cli.train.find_data = lambda *_: (X[:300], y[:300], X_test[:100], y_test[:100])
sys.exit(cli.main({TRAIN.split()} + sys.argv[1:]))
"""


@pytest.mark.long
@pytest.mark.parametrize("line", STREAMS)
def test_an_output_that_nobody_takes_or_that_has_not_all_characters(tmp_path, line):
    """What was learned is kept, one line says what was not said; the link /dev/stdout is not replaced."""
    before, (code, said) = os.readlink("/dev/stdout"), STREAMS[line]
    (tmp_path / "answer.py").write_text(ANSWER)
    (tmp_path / "train.py").write_text(PROGRAM)
    command = ["bash", "-c", line.replace("PYTHON ", f"{sys.executable} ")]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    environment["PYTHONPATH"] = str(Path(d2l.__file__).parents[1])
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, encoding="utf-8")
    assert done.returncode == code and re.search(said, done.stdout + done.stderr), done
    assert os.readlink("/dev/stdout") == before


LINES = """
check allreduce @/ada/mine.py
devices
TRAIN --json @/a.json --plot @/a.png --trace @/t.json --tensorboard @/tb --checkpoint @/a.npz
allreduce --on torus --sizes 4K --html @/a.html
course @/mycourse
scaling --devices 1 --steps 1 --repeats 1 --json @/s.json
grade @ --exercises allreduce
"""  # @ is a folder


@pytest.mark.threads
@pytest.mark.parametrize("line", few(LINES.strip().splitlines(), "check allreduce @/ada/mine.py", "devices", parts=1))
def test_in_a_folder_that_was_deleted(tmp_path, monkeypatch, capsys, line):
    """What comes with the package is found, and so are paths from the root. A relative path gets one line."""
    (tmp_path / "ada").mkdir()
    shutil.copy(*Path(d2l.__file__).parents[1].glob("notebooks/solutions/04_*.py"), tmp_path / "ada" / "mine.py")
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    line = line.replace("TRAIN", TRAIN)
    assert cli.main(line.replace("@", str(tmp_path)).split()) == 0
    if "@" in line:
        capsys.readouterr()
        assert cli.main(line.replace("@/", "").replace("@", ".").split()) == 2
        (told,) = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("no GPU here: ")]
        assert re.search(r"the current folder no longer exists|: .*[Nn]o such file|is not a Python file", told)
