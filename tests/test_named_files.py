"""Wherever a command line says that results should go: one line if they cannot, and all other files as they were.

Commands and options are taken from the parser, so that a new one is tested without being told here.
"""

import os
import re

import numpy as np
import pytest
from conftest import few
from PIL import Image

from d2lmgpu import cli
from d2lmgpu.cli.parser import make_parser

COMMANDS = make_parser(cli.COMMANDS)[1].choices
QUICK = "--epochs 1 --environment cpu --limit 64"
BASE = {  # a right command line
    "devices": "",
    "train": QUICK,
    "sweep": f"--mode sequential {QUICK}",
    "predict": "run",
    "allreduce": "--sizes 4K --environment cpu",
    "scaling": "--environment cpu --devices 1 --steps 1 --repeats 1 --batch-size 2",
    "plan": "",
    "course": "course --no-data",
    "check": "cut answer.py",
    "grade": "class --exercises cut",
}
OUTPUTS = [(command, *output) for command in COMMANDS for output in COMMANDS[command].get_default("outputs")]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A checkpoint's content."""
    path = tmp_path_factory.mktemp("run") / "run"
    assert cli.main(["train", *QUICK.split(), "--checkpoint", str(path)]) == 0
    return path.read_bytes()


@pytest.fixture
def folder(tmp_path, monkeypatch, trained):
    monkeypatch.chdir(tmp_path)
    Image.fromarray(np.zeros((4, 4), np.uint8)).save("picture.png")
    for name in ("class/ada", "course", "empty", "empty.png"):
        os.makedirs(name)
    for name in ("answer.py", "class/ada/mine.py"):
        (tmp_path / name).write_text("def cut(): 1")
    (tmp_path / "run").write_bytes(trained)
    os.symlink("/dev/full", "full.png")
    return tmp_path


def contents(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def told(capsys, command, option, place):
    """The exit code of a command line, and what it said on standard error."""
    line = [command, *BASE[command].split(), option, place]
    if option == "--html" and command == "allreduce":
        line += ["--on", "torus"]
    return cli.main(line), capsys.readouterr().err


@pytest.mark.parametrize("command, option, dest, check", OUTPUTS)
def test_a_place_that_cannot_be_written(folder, capsys, command, option, dest, check):
    """Also by root: below a file, in a folder that is not there, where the system allows no file, over a folder."""
    before = contents(folder)
    places = ["picture.png/r.png", "/proc/no.png", "full.png/r.png"]
    places += ["picture.png", "full.png"] if "folder" in check.__name__ else ["no/r.png", "empty", "empty.png"]
    for place in places:
        code, err = told(capsys, command, option, place)
        assert code == 2 and re.fullmatch(r"d2lmgpu \w+: error: .+\n", err), (place, err)
        assert contents(folder) == before


@pytest.mark.parametrize("command, option, dest, check", few(OUTPUTS, *OUTPUTS[::4]))
def test_a_full_disk(folder, capsys, command, option, dest, check):
    """One line says what could not be written."""
    before = contents(folder)
    code, err = told(capsys, command, option, "full.png" if "plot" in check.__name__ else "/dev/full")
    refused = {"--checkpoint": "exists", "--keep-best": "exists", "--results": "not a sweep.s results file"}
    said = "is not a folder" if check.__name__ == "check_folder" else refused.get(option, "No space left on device")
    assert code == 2 and re.search(rf"error: .*{said}.*\n$", err) and "Traceback" not in err, err
    after = contents(folder)
    assert {path: after.get(path) for path in before} == before
