"""The notebook for Colab and Kaggle: what its first cell installs, and that the others run."""

import configparser
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "notebooks" / "online" / "two_gpus.ipynb"
PAGE = ROOT / "docs" / "colab.md"
HEAD = "| NVIDIA-SMI 570.86.15              Driver Version: 570.86.15      {}     |\n"


def address():
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", "utf-8")
    return parser["metadata"]["url"]


def code():
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.parametrize("file", [ROOT / "README.md", PAGE, NOTEBOOK], ids=lambda path: path.name)
def test_addresses_are_those_of_the_project(file):
    """As setup.cfg has it, also within the addresses of Colab and Kaggle; what is shown there exists."""
    text = file.read_text("utf-8")
    found = re.findall(r"github(?:\.com)?/([\w.-]+/d2lmgpu)\b(?:/blob/main/([\w./]+))?", text)
    assert found and {f"https://github.com/{name}" for name, _ in found} == {address()}
    assert all((ROOT / path).exists() for _, path in found)


@pytest.mark.parametrize(
    "cuda, capabilities, extra, other",
    [
        ("CUDA Version: 12.4", ["7.5", "7.5"], "[gpu-cuda12]", "cupy-cuda13x"),
        ("CUDA UMD Version: 13.2", ["9.0"], "[gpu]", "cupy-cuda12x"),
        ("CUDA Version: 13.0", ["9.0", "6.0"], "[gpu-cuda12]", "cupy-cuda13x"),
        ("CUDA Version: 11.8", ["7.5"], "", None),
        (None, [], "", None),
    ],
)
def test_the_first_cell_chooses_by_what_nvidia_smi_says(tmp_path, monkeypatch, cuda, capabilities, extra, other):
    """nvidia-smi is a script; what pip is told is only kept."""
    if cuda:
        answers = {"head": HEAD.format(cuda), "capabilities": "".join(f"{value}\n" for value in capabilities)}
        for name, text in answers.items():
            (tmp_path / name).write_text(text)
        script = (
            f'#!/bin/sh\ncd {tmp_path}\ncase "$*" in "") /bin/cat head;; *compute_cap*) /bin/cat capabilities;; esac\n'
        )
        (tmp_path / "nvidia-smi").write_text(script)
        (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    told, run = [], subprocess.run

    def keep(command, **more):
        if command[0] != sys.executable:
            return run(command, **more)
        told.append(command[1:])

    monkeypatch.setattr(subprocess, "run", keep)
    exec(code()[0], {})
    removed = [["-m", "pip", "uninstall", "-q", "-y", other]] if other else []
    assert told == [*removed, ["-m", "pip", "install", "-q", f"d2lmgpu{extra} @ git+{address()}"]]


@pytest.mark.long
@pytest.mark.packages
def test_the_other_cells_run(tmp_path, monkeypatch):
    """In IPython, on virtual devices: the course is copied, and notebook 5 runs in it."""
    pytest.importorskip("IPython", reason="IPython is missing (pip install -e '.[notebooks]')")
    (tmp_path / "d2lmgpu").write_text(f'#!/bin/sh\nexec {sys.executable} -m d2lmgpu "$@"\n')
    (tmp_path / "d2lmgpu").chmod(0o755)
    cells = [cell.replace("--epochs 3", "--epochs 1 --limit 4096 --environment cpu") for cell in code()[1:]]
    (tmp_path / "program.ipy").write_text("\n".join(cells))
    known = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "D2LMGPU_QUICK": "1"}
    known |= {"MPLBACKEND": "agg", "IPYTHONDIR": str(tmp_path / "ipython"), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "IPython", "--no-banner", "--quick", "program.ipy"]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | known, capture_output=True, encoding="utf-8")
    said = done.stdout + done.stderr
    assert done.returncode == 0 and "Traceback" not in said, said
    for part in ("the kernels", "epoch on [cpu(0)]", "epoch on [cpu(0), cpu(1)]", "shards:"):
        assert part in said
    assert (tmp_path / "course" / "mine.py").exists()
