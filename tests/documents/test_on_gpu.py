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

TESTS = Path(__file__).parents[1]
SCRIPT = TESTS.parent / "benchmarks" / "on_gpu.sh"

pytestmark = [
    pytest.mark.threads,
    pytest.mark.skipif(shutil.which("timeout") is None, reason="the script is for Linux: it needs timeout"),
]

PYTHON = """#!/bin/sh
case "$*" in
*getDeviceCount*) echo {cards} ;;
*"{fails}"*) echo; echo "it does not work"; echo; exit 1 ;;
*measure_gpu*) echo note: slower ;;
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
    (clone / "d2lmgpu").symlink_to(TESTS.parent / "d2lmgpu")
    write(tools / "git", "#!/bin/sh\necho a commit\n")
    write(tools / "nvidia-smi", "#!/bin/sh\necho its tool: $*\n")
    write(tools / "mpiexec", "#!/bin/sh\nshift 2\necho mpiexec; exec $*\n")

    def run(*arguments, python):
        write(clone / ".venv/bin/python", python)
        env = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHON")}
        env["PATH"] = os.pathsep.join([str(tools), os.environ["PATH"]])
        command = ["bash", "clone/benchmarks/on_gpu.sh", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=500)

    return run


def steps_of(done):
    """{name: "ok" or "FAILED"}, in order."""
    lines = [line.split() for line in done.stdout.splitlines()]
    return {line[1]: line[0] for line in lines if line[0] in ("ok", "FAILED")}


@pytest.mark.parametrize("cards, fails", [(1, "nothing"), (2, "--split zero1")])
def test_all_is_run_by_the_environments_python_into_the_folder(run, tmp_path, cards, fails):
    """What fails stops nothing."""
    done = run("found/here", python=PYTHON.format(cards=cards, fails=fails))
    failed = [name for name, how in steps_of(done).items() if how != "ok"]
    assert failed == (["gpu_train_split_zero1"] if cards == 2 else []) and done.stderr == ""
    assert done.returncode == len(failed) and (": it does not work\n" in done.stdout) == bool(failed)
    folder = tmp_path / "found/here"
    logs = {path.stem: path.read_text() for path in folder.glob("*.log")}
    assert steps_of(done).keys() == logs.keys()
    python = f"{tmp_path}/clone/.venv/bin/python"
    assert f": {python} -m d2lmgpu devices --check --json {folder}/gpu_check.json" in logs["gpu_check"]
    several = {"gpu_train_2_nccl", "gpu_train_processes_nccl", "gpu_measured_2"}
    assert several & logs.keys() == (several if cards == 2 else set())
    order = [*steps_of(done)]
    assert order.index("gpu_train_float32") < order.index("gpu_tests") < order.index("gpu_train_2_devices")
    assert cards == 1 or logs["gpu_train_processes_ring"].startswith("mpiexec\n")
    lines = done.stdout.splitlines()  # notes are on the screen
    assert lines[lines.index("note: slower") - 1].startswith("ok      gpu_measured (")


@pytest.mark.parametrize(
    "other, options, code",
    [
        ({"train_loss": [1.0001]}, ["--tolerance", "1e-3"], 0),
        ({"train_loss": [1.001]}, [], 1),
        ({"train_loss": [1.0, 0.5], "final_parameters_sha256": "a"}, ["--bits"], 0),
        ({"train_loss": [1.0, 0.5], "final_parameters_sha256": "b"}, ["--bits"], 1),
    ],
)
def test_runs_that_learned_the_same(tmp_path, other, options, code):
    files = [str(tmp_path / name) for name in ("one.json", "other.json")]
    one = {"train_loss": [1.0, 0.5], "final_parameters_sha256": "a"}
    for file, run in zip(files, (one, other), strict=True):
        Path(file).write_text(json.dumps(run))
    assert importlib.import_module("same_runs").main([*files, *options]) == code


@pytest.mark.long
def test_its_commands_on_two_cards(run, tmp_path):
    """Each command is one that the package knows, and does what it should: all but tests and comparisons."""
    machine, mpiexec = '{"cards": 2, "nccl": true}', command_of(2)[0]
    between = 'case "$*" in *nccl*) echo "the stand-in for NCCL is of one process" ;;'
    write(tmp_path / "clone/.venv/bin/mpiexec", f'#!/bin/sh\n{between} *) exec {mpiexec} "$@" ;; esac\n')
    python = ON_CARDS.format(python=sys.executable, on_standin=TESTS / "on_standin.py", machine=machine)
    done = run("found", "measurements", python=python)
    assert {*steps_of(done).values()} == {"ok"}, done.stdout
