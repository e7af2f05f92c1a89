"""The commands as people type them: results, exit codes, and one line for each kind of bad input."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import long

import d2lmgpu
from d2lmgpu import cli
from d2lmgpu.cli.parser import make_parser
from d2lmgpu.data import fashion_mnist
from d2lmgpu.devices import find_gpus

QUICK = ["train", "--environment", "cpu", "--limit", "300", "--epochs", "1", "--init", "he", "--batch-size", "64"]


def test_train(tmp_path, capsys):
    json_file, plot = tmp_path / "result.json", tmp_path / "curve.png"
    assert cli.main([*QUICK, "--epochs", "2", "--devices", "2", "--json", str(json_file), "--plot", str(plot)]) == 0
    lines = capsys.readouterr().out.splitlines()
    result = json.loads(json_file.read_text())
    assert [line.split(":")[0] for line in lines[:2]] == ["epoch 1/2", "epoch 2/2"]
    assert lines[2].startswith("devices worked ") and lines[3].startswith("test acc: ") and len(lines) == 4
    assert "examples/s" in lines[0]
    assert lines[-1].startswith(f"test acc: {result['test_accuracy'][-1]:.2f}, ")
    assert lines[-1].endswith(" sec/epoch on [cpu(0), cpu(1)]")
    expected = {"devices": ["cpu(0)", "cpu(1)"], "environment": "cpu", "batch_size": 64, "lr": 0.2, "epochs": 2}
    expected |= {"seed": 0, "allreduce": "ring", "interrupted": None}
    assert expected.items() <= result.items()
    assert [len(result[key]) for key in ("train_loss", "test_accuracy", "seconds_per_epoch")] == [2, 2, 2]
    assert result["examples_per_second"] > 0 and result["phases"]
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["curve.png", "result.json"]


@pytest.mark.long
def test_a_trace_of_training(tmp_path):
    """As JSON for a viewer of traces, and as a picture; with gradients exchanged beside the computation."""
    file, picture = tmp_path / "trace.json", tmp_path / "trace.svg"
    assert cli.main([*QUICK, "--devices", "2", "--overlap", "--trace", str(file)]) == 0
    trace = json.loads(file.read_text())["traceEvents"]
    rows = [event["args"]["name"] for event in trace if event["ph"] == "M"]
    assert rows == ["host", "cpu(0)", "cpu(0) comm stream", "cpu(1)", "cpu(1) comm stream"]
    spans = [(rows[event["tid"]], event["name"]) for event in trace if event["ph"] == "X"]
    for row, name, count in [("host", "data", 5), ("cpu(1)", "update", 10), ("cpu(0) comm stream", "allreduce", 10)]:
        assert spans.count((row, name)) == count  # five minibatches, two buckets
    assert all(event["dur"] >= 0 for event in trace if event["ph"] == "X")
    assert cli.main([*QUICK, "--no-prefetch", "--trace", str(picture)]) == 0
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


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--algorithms", "naive,star"], "'star' is unknown"),
        (["--sizes", "4K,big"], "size 'big'"),
        (["--sizes", "3"], "at least 4"),
        (["--devices", "0"], "at least 1"),
        (["--algorithms", "nccl"], "needs at least two GPUs"),
    ],
)
def test_bad_input_to_allreduce(capsys, arguments, message):
    code, err = failure(capsys, "allreduce", "--environment", "cpu", *arguments)
    assert code == 2 and err.startswith("d2lmgpu allreduce: error: ") and err.count("\n") == 1 and message in err


def failure(capsys, *arguments):
    """Exit code and standard error of a command that should fail."""
    try:
        code = cli.main(arguments)
    except SystemExit as exit:  # from argparse
        code = exit.code
    out, err = capsys.readouterr()
    assert out == ""
    return code, err


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--devices", "0"], "at least 1"),
        (["--devices", "two"], "give how many, such as 2, or which"),
        (["--patience", "5"], "--patience is for several processes; add --environment parallel"),
        (["--environment", "tpu"], "choose from auto"),
        (["--batch-size", "0"], "batch_size is 0"),
        (["--lr", "nan"], "lr is nan"),
        (["--allreduce", "star"], "'star' is unknown; choose from naive, sharded,"),
        (["--allreduce", "none"], "drift apart"),
        (["--precision", "tf32"], "'tf32' is unknown; choose from float32, mixed"),
        (["--loads", "1,half"], "--loads: invalid numbers_or_auto value: '1,half'"),
        (["--devices", "9" * 30], "at most 4,096"),
        (["--epochs", "1" + "0" * 5000], "'10"),
        (["--lr", "1e300"], "at most 1e+06"),
        (["--memory-limit", "1.5"], "at least 4"),
        (["--json", ""], "--json: the name is ''"),
        (["--checkpoint-steps", "1.5"], "--checkpoint-steps: invalid int value: '1.5'"),
        (["--checkpoint-steps", "2"], "give checkpoint, too"),
        (["--resume", "/"], "/: Is a directory"),
        (["--data", "nothere"], "nothere: no such folder"),
        (["--loads", "1,1,1"], "give 1 numbers"),
        (["--warmup", "10"], "less than all"),
        (["--plot", "/no/such/folder/plot.png"], "cannot write /no/such/folder/plot.png"),
        (["--plot", "plot.doc"], ".png, .svg, .pdf"),
        (["--speed", "9"], "unknown argument '--speed'; did you mean --seed? (see d2lmgpu train --help)"),
        (["--sp\need"], "unknown argument"),
        (["more", "words"], "unknown arguments 'more', 'words' (see d2lmgpu train --help)"),
    ],
)
def test_bad_input_gets_one_line(capsys, arguments, message):
    code, err = failure(capsys, *QUICK, *arguments)
    assert code == 2
    assert err.startswith("d2lmgpu") and ": error: " in err and err.count("\n") == 1 and message in err


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["trian"], "d2lmgpu: error: 'trian' is not a command; choose from devices, train, .*; did you mean train?"),
        (["train", "--devices", "cpu:" + "9" * 30], "should be a name such as cpu:0"),
        (["sweep", "--workers", "0"], "workers is 0"),
        (["scaling", "--width", "inf"], "width is inf; it should be a finite number, at least 0.05 and at most 100"),
        (["scaling", "--devices", "1,0"], "different whole numbers"),
        (["predict", "/"], "/: Is a directory"),
        (["predict"], r"are required: CHECKPOINT \(see"),
        (["check", "rng", "file.py"], "did you mean ring?"),
    ],
)
def test_bad_input_to_other_commands(capsys, arguments, message):
    code, err = failure(capsys, *arguments)
    assert code == 2 and err.count("\n") == 1 and re.search(message.replace("?", "\\?"), err), err


def test_an_environment_is_offered_where_it_is_one(capsys):
    for command in ("sweep", "allreduce", "train", "predict", "scaling"):
        options = make_parser(cli.COMMANDS)[1].choices[command]._option_string_actions
        assert ("parallel" in options["--environment"].help) == (command in ("train", "predict"))
    code, err = failure(capsys, "allreduce", "--environment", "parallel")
    assert code == 2 and "'parallel' is for commands in processes" in err
    code, err = failure(capsys, *QUICK, "--environment", "tpu")
    assert code == 2 and "choose from auto, cpu, gpu, multi-gpu; devices are" in err


def test_the_version(capsys):
    with pytest.raises(SystemExit) as exit:
        cli.main(["--version"])
    assert exit.value.code == 0 and capsys.readouterr().out == f"d2lmgpu {d2lmgpu.__version__}\n"


def test_a_limit_with_a_point(capsys):
    try:
        assert cli.main([*QUICK, "--memory-limit", "0.25M"]) == 2
        said = capsys.readouterr().err
        assert "split data needs 1,233,760 bytes on cpu(0), 971,616 more than its limit; more devices help, a" in said
    finally:
        d2lmgpu.cpu(0).limit_memory(None)


def test_a_home_in_the_name_of_a_file(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cli.main(["devices", "--json=~/table.json"]) == 0 and (tmp_path / "table.json").exists()


@pytest.mark.long
def test_an_output_that_has_not_all_characters(tmp_path):
    """A right answer stays right, and what there is instead can be read."""
    file = tmp_path / "answer.py"
    inputs = "math.prod(shape[1:]) if len(shape) == 4 else shape[0]"
    file.write_text(f"import math\n\ndef he_std(shape):\n    return (2 / ({inputs})) ** 0.5\n")
    command = [*installed(), "check", "he_std", str(file)]
    for encoding, mark in (("ascii", "\\u2713"), ("utf-8", "✓")):
        done = subprocess.run(command, capture_output=True, env=os.environ | {"PYTHONIOENCODING": encoding})
        assert done.returncode == 0 and done.stdout.decode(encoding).startswith(f"{mark} he_std: "), done


@pytest.mark.threads
@pytest.mark.packages
def test_nine_gpus_where_there_are_none(capsys):
    if find_gpus()[0]:
        pytest.skip("there is a GPU")
    code, err = failure(capsys, *QUICK, "--devices", "9", "--environment", "gpu")
    assert code == 2 and err.count("\n") == 1 and "needs a GPU: CuPy" in err


def test_a_truncated_data_file_gets_one_line(capsys, tmp_path, monkeypatch):
    shipped = Path(__file__).resolve().parents[1] / "data" / "fashion-mnist"
    for name in fashion_mnist.FILES:
        shutil.copy(shipped / name, tmp_path)
    file = tmp_path / "train-images-idx3-ubyte.gz"
    file.write_bytes(file.read_bytes()[:1_000_000])
    monkeypatch.setenv("D2LMGPU_DATA", str(tmp_path))
    code, err = failure(capsys, *QUICK)
    assert code == 2 and err.count("\n") == 1 and f"{file} is truncated or altered: expected MD5 8d4fb7e6c" in err


@pytest.mark.long
def test_a_result_to_standard_output(tmp_path):
    """Standard output may be a pipe or a file; neither it nor the link /dev/stdout may be replaced."""
    before = os.readlink("/dev/stdout")
    for redirect in ("| cat", f"> {tmp_path}/out; cat {tmp_path}/out"):
        command = f"'{sys.executable}' -m d2lmgpu devices --json /dev/stdout {redirect}"
        out = subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout
        assert "memory free" in out and '"devices": [' in out
    assert os.readlink("/dev/stdout") == before


def test_a_result_through_a_link(tmp_path):
    (tmp_path / "real.json").write_text("older")
    (tmp_path / "link.json").symlink_to("real.json")
    assert cli.main(["devices", "--json", str(tmp_path / "link.json")]) == 0
    assert (tmp_path / "link.json").is_symlink() and "devices" in json.loads((tmp_path / "real.json").read_text())


def installed():
    return [sys.executable, "-m", "d2lmgpu"]


@pytest.mark.long
def test_ctrl_c_reports_what_was_learned(tmp_path):
    file = tmp_path / "result.json"
    command = [*installed(), "train", "--environment", "cpu", "--init", "he", "--json", str(file)]
    # the test runner may have been started with SIGINT ignored, which a child would inherit
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    first = process.stdout.readline()  # when an epoch has ended
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130 and "epoch 1/10" in first, err
    result = json.loads(file.read_text())
    complete = result["interrupted"]["steps"] == 235  # it may have come while an epoch's end was evaluated
    assert result["interrupted"]["epoch"] == len(result["train_loss"]) + (not complete)
    assert "stopped after" in out and out.splitlines()[-1].startswith("test acc: ")
    assert "Traceback" not in err


@pytest.mark.long
def test_help_of_every_command():
    for command in ([], ["train"], ["sweep"], ["devices"], ["allreduce"]):
        done = subprocess.run([*installed(), *command, "--help"], capture_output=True, text=True, check=True)
        assert "usage: d2lmgpu" in done.stdout


def test_import_is_light():
    """No GPU is started: CuPy is not even imported, nor what only plots and bars need."""
    code = "import sys, d2lmgpu; print(sorted({'cupy', 'matplotlib', 'tqdm', 'psutil', 'torch'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "words, said", [([], True), *long((["--devices", "1"], False), (["--environment", "cpu"], False))]
)
def test_cores_that_nobody_uses_are_told(monkeypatch, capsys, words, said):
    monkeypatch.setattr(cli.train, "count_cores", lambda: 6)
    assert cli.main(["train", "--limit", "50", "--epochs", "1", "--init", "he", *words]) == 0
    line = "no GPU here: cpu(0) takes one of 6 cores; --devices 6 takes all\n"
    assert (line in capsys.readouterr().out) is (said and find_gpus()[0] == 0)


SHORT = "train --environment cpu --limit 64 --epochs 1"
LINES = (  # @ is a folder
    *("devices", SHORT, "allreduce --on torus --sizes 4K --html @/a.html", "course @/mycourse"),
    f"{SHORT} --json @/a.json --plot @/a.png --trace @/t.json --tensorboard @/tb --checkpoint @/a.npz",
    *(f"{SHORT} --network @/net.py", f"{SHORT} --metrics @/own.py", "plan --split layers --devices 2 --html @/p.html"),
    "scaling --devices 1 --steps 1 --repeats 1 --json @/s.json",
    *("check allreduce @/ada/mine.py", "grade @ --exercises allreduce"),
)


@pytest.mark.threads
@pytest.mark.parametrize("line", LINES)
def test_in_a_folder_that_was_deleted(tmp_path, monkeypatch, capsys, line):
    """What comes with the package is found, and so are paths from the root. A relative path gets one line."""
    (tmp_path / "ada").mkdir()
    shutil.copy(*Path(d2lmgpu.__file__).parents[1].glob("notebooks/solutions/04_*.py"), tmp_path / "ada" / "mine.py")
    (tmp_path / "net.py").write_text("from d2lmgpu.networks import LENET\nnetwork = lambda *_: LENET")
    (tmp_path / "own.py").write_text("metrics = {'one': lambda outputs, labels: len(labels)}")
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert cli.main(line.replace("@", str(tmp_path)).split()) == 0
    if "@" in line:
        capsys.readouterr()
        assert cli.main(line.replace("@/", "").replace("@", ".").split()) == 2
        (told,) = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("no GPU here: ")]
        assert re.search(r"the current folder no longer exists|: .*[Nn]o such file|is not a Python file", told)
