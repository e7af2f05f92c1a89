"""``benchmarks/on_gpu.sh``, with stand-ins for NVIDIA's tool and for Python: what it runs, where, and what it tells."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mpiexec import command_of

SCRIPT = Path(__file__).parent.with_name("benchmarks") / "on_gpu.sh"
ON_STANDIN = Path(__file__).with_name("on_standin.py")

pytestmark = [
    pytest.mark.threads,
    pytest.mark.skipif(shutil.which("timeout") is None, reason="the script is for Linux: it needs timeout"),
]

PYTHON = """#!/bin/sh
case "$*" in
*getDeviceCount*) echo {cards} ;;
*"{fails}"*) echo; echo "it does not work"; echo; exit 1 ;;
*) echo "$PWD: $0 $*" ;;
esac
"""

ON_CARDS = """#!/bin/sh
case "$*" in
*getDeviceCount*) echo 2 ;;
"-m d2lmgpu train "*) shift 2; exec {python} {on_standin} '{machine}' "$@" --limit 60 --batch-size 24 --epochs 1 ;;
"-m d2lmgpu "*) shift 2; exec {python} {on_standin} '{machine}' "$@" ;;
*) echo "$*" ;;
esac
"""


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def run(tmp_path):
    """A function that runs a copy of the script, beside a .venv that has this Python, in ``tmp_path``."""
    clone, tools = tmp_path / "clone", tmp_path / "tools"
    write(clone / "benchmarks/on_gpu.sh", SCRIPT.read_text())
    (clone / "d2lmgpu").symlink_to(SCRIPT.parents[1] / "d2lmgpu")
    write(tools / "git", "#!/bin/sh\necho a commit\n")
    write(tools / "nvidia-smi", "#!/bin/sh\necho its tool: $*\n")
    write(tools / "mpiexec", "#!/bin/sh\nshift 2\necho mpiexec; exec $*\n")

    def run(*arguments, python=None, **variables):
        if python:
            write(clone / ".venv/bin/python", python)
        inherited = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHON")}
        path = os.pathsep.join([str(tools), os.environ["PATH"]])
        return subprocess.run(
            ["bash", "clone/benchmarks/on_gpu.sh", *arguments],
            cwd=tmp_path,
            env=inherited | {"PATH": path} | variables,
            capture_output=True,
            text=True,
            timeout=500,
        )

    return run


def steps_of(done):
    """{name: "ok" or "FAILED"}, in order."""
    lines = [line.split() for line in done.stdout.splitlines()]
    return {line[1]: line[0] for line in lines if line[0] in ("ok", "FAILED")}


@pytest.mark.parametrize("cards", [1, 2])
def test_all_is_run_by_the_environments_python_into_the_folder(run, tmp_path, cards):
    done = run("found/here", python=PYTHON.format(cards=cards, fails="nothing"))
    assert done.returncode == 0 and done.stderr == "" and {*steps_of(done).values()} == {"ok"}
    folder = tmp_path / "found/here"
    logs = {path.stem: path.read_text() for path in folder.glob("*.log")}
    assert steps_of(done).keys() == logs.keys()
    clone = tmp_path / "clone"
    assert (
        f"{clone}: {clone}/.venv/bin/python -m d2lmgpu devices --check --json {folder}/gpu_check.json"
        in logs["gpu_check"]
    )
    names = [*logs]
    assert ("gpu_train_2_nccl" in names) == ("gpu_train_processes_nccl" in names) == (cards == 2)
    assert ("--cards 2" in logs.get("gpu_measured_2", "")) == (cards == 2) and "--cards" not in logs["gpu_measured"]
    order = [*steps_of(done)]
    assert order.index("gpu_train_float32") < order.index("gpu_tests") < order.index("gpu_train_2_devices")
    if cards == 2:
        assert order.index("gpu_measured") < order.index("gpu_measured_2")
        assert logs["gpu_train_processes_ring"].startswith("mpiexec\n")


def test_what_fails_stops_nothing(run):
    done = run("found", python=PYTHON.format(cards=2, fails="--split zero1"))
    assert done.returncode == 1
    assert [name for name, how in steps_of(done).items() if how == "FAILED"] == ["gpu_train_split_zero1"]
    assert ": it does not work\n" in done.stdout and [*steps_of(done)][-1] == "gpu_pytorch_2048"


def test_notes_are_on_the_screen(run):
    python = PYTHON.format(cards=1, fails="nothing").replace(
        "\n*) echo", "\n*measure_gpu*) echo note: slower ;;\n*) echo"
    )
    lines = run("found", python=python).stdout.splitlines()
    place = lines.index("note: slower")
    assert lines[place - 1].startswith("ok      gpu_measured (") and lines.count("note: slower") == 1


@pytest.mark.parametrize(
    "other, options, code",
    [
        ({"train_loss": [1.0, 0.5]}, [], 0),
        ({"train_loss": [1.0001]}, ["--tolerance", "1e-3"], 0),
        ({"train_loss": [1.001]}, [], 1),
        ({"train_loss": [1.0, 0.5], "final_parameters_sha256": "a"}, ["--bits"], 0),
        ({"train_loss": [1.0, 0.5], "final_parameters_sha256": "b"}, ["--bits"], 1),
    ],
)
def test_runs_that_learned_the_same(tmp_path, monkeypatch, other, options, code):
    monkeypatch.syspath_prepend(SCRIPT.parent)
    same_runs = importlib.import_module("same_runs")
    files = [str(tmp_path / name) for name in ("one.json", "other.json")]
    one = {"train_loss": [1.0, 0.5], "final_parameters_sha256": "a"}
    for file, run in zip(files, (one, other), strict=True):
        Path(file).write_text(json.dumps(run))
    assert same_runs.main([*files, *options]) == code


@pytest.mark.long
def test_its_commands_on_two_cards(run, tmp_path):
    """Each command is one that the package knows, and does what it should: all but tests and comparisons."""
    machine, mpiexec = '{"cards": 2, "nccl": true}', command_of(2)[0]
    between = 'case "$*" in *nccl*) echo "the stand-in for NCCL is of one process" ;;'
    write(tmp_path / "clone/.venv/bin/mpiexec", f'#!/bin/sh\n{between} *) exec {mpiexec} "$@" ;; esac\n')
    python = ON_CARDS.format(python=sys.executable, on_standin=ON_STANDIN, machine=machine)
    done = run("found", "measurements", python=python)
    assert {*steps_of(done).values()} == {"ok"}, done.stdout
