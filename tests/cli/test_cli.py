"""The commands as people type them: results, exit codes, and what is printed."""

import json
import os
import signal
import subprocess
import sys

import pytest

import d2lmgpu as d2l
from d2lmgpu import cli
from d2lmgpu.devices import find_gpus

QUICK = "train --environment cpu --init he --batch-size 64"


@pytest.fixture(autouse=True)
def few_images(small, monkeypatch):
    monkeypatch.setattr("d2lmgpu.cli.train.find_data", lambda *_: (small[0][:300], small[1][:300], *small[2:]))


def test_train(tmp_path, capsys):
    words = f"{QUICK} --epochs 2 --devices 2 --json {tmp_path}/result.json --plot {tmp_path}/curve.png"
    assert cli.main(words.split()) == 0
    lines = capsys.readouterr().out.splitlines()
    result = json.loads((tmp_path / "result.json").read_text())
    assert lines[0].startswith("epoch 1/2: ") and "examples/s" in lines[0] and lines[1].startswith("epoch 2/2: ")
    assert lines[2].startswith("devices worked ") and len(lines) == 4
    assert lines[-1].startswith(f"test acc: {result['test_accuracy'][-1]:.2f}, ")
    assert lines[-1].endswith(" sec/epoch on [cpu(0), cpu(1)]")
    expected = {"devices": ["cpu(0)", "cpu(1)"], "environment": "cpu", "batch_size": 64, "lr": 0.2, "epochs": 2}
    expected |= {"seed": 0, "allreduce": "ring", "interrupted": None}
    assert expected.items() <= result.items()
    assert [len(result[key]) for key in ("train_loss", "test_accuracy", "seconds_per_epoch")] == [2, 2, 2]
    assert result["examples_per_second"] > 0 and result["phases"]
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(os.listdir(tmp_path)) == ["curve.png", "result.json"]


def test_a_trace_of_training(tmp_path):
    """As JSON for a viewer of traces, and as a picture; with gradients exchanged beside the computation."""
    file, picture = tmp_path / "trace.json", tmp_path / "trace.svg"
    assert cli.main(f"{QUICK} --epochs 1 --devices 2 --overlap --trace {file}".split()) == 0
    trace = json.loads(file.read_text())["traceEvents"]
    rows = [event["args"]["name"] for event in trace if event["ph"] == "M"]
    assert rows == ["host", "cpu(0)", "cpu(0) comm stream", "cpu(1)", "cpu(1) comm stream"]
    spans = [(rows[event["tid"]], event["name"]) for event in trace if event["ph"] == "X"]
    assert spans.count(("cpu(0) comm stream", "allreduce")) == 10  # five minibatches, two buckets
    assert cli.main(f"{QUICK} --epochs 1 --no-prefetch --trace {picture}".split()) == 0
    assert picture.read_text().startswith("<?xml")


def test_devices(tmp_path, capsys):
    file = tmp_path / "devices.json"
    assert cli.main(["devices", "--json", str(file)]) == 0
    rows = json.loads(file.read_text())["devices"]
    assert {"name", "kind", "memory_free", "memory_total", "compute_capability"} <= set(rows[0])
    out = capsys.readouterr().out
    assert all(row["name"] in out for row in rows)
    assert ("no GPU: " in out) == (find_gpus()[0] == 0)


def test_allreduce(tmp_path, capsys):
    file = tmp_path / "rows.json"
    command = ["allreduce", "--environment", "cpu", "--devices", "3", "--algorithms", "naive,ring,none"]
    assert cli.main([*command, "--sizes", "4K, 36", "--json", str(file)]) == 0
    rows = json.loads(file.read_text())["rows"]
    assert [(row["bytes"], row["algorithm"]) for row in rows] == [
        (size, name) for size in (4096, 36) for name in ("naive", "ring", "none")
    ]
    for row in rows:
        assert row["devices"] == 3 and row["algbw"] == pytest.approx(row["bytes"] / row["seconds"] / 1e9)
        assert row["busbw"] == pytest.approx(row["algbw"] * 4 / 3)
    assert rows[3]["bytes_sent_per_device"] == [72, 36, 36] and rows[3]["steps"] == 4 and rows[3]["correct"]
    assert rows[4]["bytes_sent_per_device"] == [48, 48, 48] and rows[5]["correct"] is None
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8 and lines[2].split()[:3] == ["4,096", "naive", "4"]


def test_help_and_version(capsys):
    """Each command has help; an environment is offered where it is one."""
    for command in ("--version", "--help", *(f"{command.__name__.split('.')[-1]} --help" for command in cli.COMMANDS)):
        with pytest.raises(SystemExit) as end:
            cli.main(command.split())
        said = capsys.readouterr().out
        assert end.value.code == 0 and said.startswith(("usage: d2lmgpu", f"d2lmgpu {d2l.__version__}\n"))
        if "--environment" in said:
            assert ("multi-gpu, parallel" in " ".join(said.split())) == command.startswith(("train", "predict")), said


def test_cores_that_nobody_uses_are_told(monkeypatch, capsys):
    monkeypatch.setattr(cli.train, "count_cores", lambda: 6)
    line = "no GPU here: cpu(0) takes one of 6 cores; --devices 6 takes all\n"
    for words in ("", "--devices 1", "--environment cpu"):
        assert cli.main(f"train --epochs 1 --init he {words}".split()) == 0
        assert (line in capsys.readouterr().out) is (words == "" and find_gpus()[0] == 0)


def test_import_is_light():
    """No GPU is started: CuPy is not even imported, nor what only plots and bars need."""
    code = "import sys, d2lmgpu; print(sorted({'cupy', 'matplotlib', 'tqdm', 'psutil', 'torch'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.long
def test_ctrl_c_reports_what_was_learned(tmp_path):
    file = tmp_path / "result.json"
    command = f"{sys.executable} -m d2lmgpu train --environment cpu --init he --json {file}".split()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    first = process.stdout.readline()  # when an epoch has ended
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130 and "epoch 1/10" in first, err
    result = json.loads(file.read_text())
    complete = result["interrupted"]["steps"] == 235  # it may have come while an epoch's end was evaluated
    assert result["interrupted"]["epoch"] == len(result["train_loss"]) + (not complete)
    assert "stopped after" in out and out.splitlines()[-1].startswith("test acc: ")
    assert "Traceback" not in err
