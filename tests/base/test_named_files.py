"""Wherever a command line says that results should go: one line if they cannot, and all other files as they were.

Commands and options are taken from the parser, so that a new one is tested without being told here.
"""

import os
import re

import numpy as np
import pytest
from conftest import long
from PIL import Image

import d2lmgpu as d2l
from d2lmgpu import cli
from d2lmgpu.cli.options import make_parser
from d2lmgpu.networks import Dense, Flatten, sequential

COMMANDS = make_parser(cli.COMMANDS)[1].choices
QUICK = "--epochs 1 --environment cpu --limit 8 --data pictures --network own.py"
BASE = {  # a right command line
    "devices": "",
    "train": QUICK,
    "sweep": f"--mode sequential {QUICK}",
    "predict": "run --data pictures",
    "allreduce": "--sizes 4K --environment cpu",
    "scaling": "--environment cpu --devices 1 --steps 1 --repeats 1 --batch-size 2",
    "plan": "",
    "course": "course --no-data",
    "check": "cut answer.py",
    "grade": "class --exercises cut",
}
OUTPUTS = [(command, *output) for command in COMMANDS for output in COMMANDS[command].get_default("outputs")]
TRAINING = [output for output in OUTPUTS if output[0] in ("train", "predict") and output[1] != "--plot"]
OTHERS = long(*[output for output in OUTPUTS if output not in TRAINING])
OWN = """from d2lmgpu.networks import Dense, Flatten, sequential
network = lambda shape, classes: sequential(shape, Flatten(), Dense(classes))"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("class/ada", "course", "empty", "empty.png"):
        os.makedirs(name)
    for name, text in {"answer.py": "def cut(): 1", "class/ada/mine.py": "def cut(): 1", "own.py": OWN}.items():
        (tmp_path / name).write_text(text)
    for name in ("train/a", "train/b", "test/a", "test/b"):
        os.makedirs(f"pictures/{name}")
        Image.fromarray(np.full((8, 8), 9 * ord(name[-1]) % 256, np.uint8)).save(f"pictures/{name}/1.png")
    Image.new("L", (4, 4)).save("picture.png")
    network = sequential((1, 8, 8), Flatten(), Dense(2))
    d2l.Model(network, d2l.init_params(network=network), classes=["a", "b"]).save("run")
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


@pytest.mark.parametrize("command, option, dest, check", TRAINING + OTHERS)
def test_a_place_that_cannot_be_written(folder, capsys, command, option, dest, check):
    """Also by root: below a file, in a folder that is not there, where the system allows no file, over a folder."""
    before = contents(folder)
    places = ["picture.png/r.png", "/proc/no.png", "full.png/r.png"]
    places += ["picture.png", "full.png"] if "folder" in check.__name__ else ["no/r.png", "empty", "empty.png"]
    for place in places:
        code, err = told(capsys, command, option, place)
        assert code == 2 and re.fullmatch(r"d2lmgpu \w+: error: .+\n", err), (place, err)
        assert contents(folder) == before


@pytest.mark.parametrize("command, option, dest, check", TRAINING + OTHERS)
def test_a_full_disk(folder, capsys, command, option, dest, check):
    """One line says what could not be written."""
    before = contents(folder)
    code, err = told(capsys, command, option, "full.png" if "plot" in check.__name__ else "/dev/full")
    refused = {"--checkpoint": "exists", "--keep-best": "exists", "--results": "not a sweep.s results file"}
    said = "is not a folder" if check.__name__ == "check_folder" else refused.get(option, "No space left on device")
    assert code == 2 and re.search(rf"error: .*{said}.*\n$", err) and "Traceback" not in err, err
    after = contents(folder)
    assert {path: after.get(path) for path in before} == before
