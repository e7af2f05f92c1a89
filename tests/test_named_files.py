"""Whatever files a command line names, nothing that is read is written over: refused in one line, or written whole.

Commands and options are taken from the parser, so that a new one is tested without being told here.
"""

import os
import re

import numpy as np
import pytest
from conftest import few
from PIL import Image

import d2lmgpu as d2l
from d2lmgpu import cli
from d2lmgpu.cli.parser import make_parser
from d2lmgpu.networks import Dense, Flatten, sequential

COMMANDS = make_parser(cli.COMMANDS)[1].choices
NAMED = {name: command.get_default("named") for name, command in COMMANDS.items()}
TINY = "--epochs 1 --environment cpu --network net.py --init he --lr 0.001"
BASE = {  # a right command line, with all that can be read
    "devices": "",
    "train": f"--data pictures --metrics metrics.py --resume run {TINY}",
    "sweep": f"--data pictures --mode sequential {TINY}",
    "predict": "run picture.png",
    "allreduce": "--sizes 4K --environment cpu",
    "scaling": "--data pictures --network net.py --environment cpu --devices 1 --steps 1 --repeats 1 --batch-size 2",
    "plan": "--network net.py",
    "course": "course --no-data",
    "check": "cut answer.py",
    "grade": "class --exercises cut",
}
INSTEAD = {("predict", "--data"): "run --data pictures", ("predict", "--confusion"): "run --data pictures"}
INSTEAD[("allreduce", "--html")] = "--sizes 4K --on torus"
NET = "from d2lmgpu.networks import *\ndef network(shape, n): return sequential(shape, Flatten(), Dense(n))\n"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A checkpoint's content."""
    path = tmp_path_factory.mktemp("run") / "run"
    X, y = np.zeros((4, 1, 4, 4), np.uint8), np.array([0, 1, 0, 1], np.uint8)
    net = sequential((1, 4, 4), Flatten(), Dense(2))
    d2l.train([d2l.cpu(0)], network=net, num_epochs=1, data=(X, y, X, y, ["bag", "cat"]), checkpoint=path)
    return path.read_bytes()


@pytest.fixture
def folder(tmp_path, monkeypatch, trained):
    monkeypatch.chdir(tmp_path)
    for place in ("train/bag", "train/cat", "test/bag", "test/cat"):
        os.makedirs(f"pictures/{place}")
        Image.fromarray(np.zeros((4, 4), np.uint8)).save(f"pictures/{place}/1.png")
    Image.fromarray(np.zeros((4, 4), np.uint8)).save("picture.png")
    for name in ("class/ada", "course", "empty", "empty.png"):
        os.makedirs(name)
    files = {"net.py": NET, "metrics.py": "metrics = {'ones': lambda outputs, y: len(y)}", "answer.py": "def cut(): 1"}
    for name, text in (files | {"class/ada/mine.py": "def cut(): 1"}).items():
        (tmp_path / name).write_text(text)
    (tmp_path / "run").write_bytes(trained)
    os.symlink("/dev/full", "full.png")
    return tmp_path


def contents(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def words(command, option):
    return [command, *INSTEAD.get((command, option), BASE[command]).split()]


def told(capsys, line):
    """The exit code of a command line, and what it said on standard error."""
    capsys.readouterr()
    try:
        code = cli.main(line)
    except SystemExit as end:  # of argparse
        code = end.code
    return code, capsys.readouterr().err


OUTPUTS = [(command, named.name) for command in NAMED for named in NAMED[command] if named.check]
INPUTS = [(command, named.name) for command in NAMED for named in NAMED[command] if not named.check]


def test_every_option_that_speaks_of_a_file_says_whether_it_is_read():
    for name, command in COMMANDS.items():
        known = {named.name for named in NAMED[name]}
        for action in command._actions:
            if re.search(r"FILE|DIR|FOLDER|CHECKPOINT|\b(file|folder)\b", f"{action.metavar} {action.help}"):
                assert {*action.option_strings, action.metavar} & (known | {"-h"}), (name, action)
    assert set(BASE) == set(COMMANDS)


@pytest.mark.parametrize("command, option", OUTPUTS)
def test_no_input_is_written_over(folder, capsys, command, option):
    """Not by its name, and not by a link's. Each input is given; a run may go on in its own checkpoint."""
    for line in {
        tuple(words(command, option)),
        *(tuple(words(command, other)) for name, other in INPUTS if name == command),
    }:
        options = cli.parse(cli.COMMANDS, line)
        for named in (named for named in NAMED[command] if not named.check):
            paths = named.find(options)
            for path in filter(None, paths if isinstance(paths, list) else [paths]):
                if (named.name, option) == ("--resume", "--checkpoint"):
                    continue
                if not os.path.lexists("link"):
                    os.symlink(path, "link")
                before = contents(folder)
                for output in (path, "link"):
                    code, err = told(capsys, [*line, option, output])
                    assert code == 2 and re.fullmatch(rf".*{option} \S+ would be written over .*\n", err), (named, err)
                    assert contents(folder) == before
                os.unlink("link")


@pytest.mark.parametrize("command, option", OUTPUTS)
def test_a_place_that_cannot_be_written(folder, capsys, command, option):
    """Also by root: below a file, in a folder that is not there, where the system allows no file, over a folder."""
    before = contents(folder)
    named = next(named for named in NAMED[command] if named.name == option)
    places = ["picture.png/r.png", "/proc/no.png", "full.png/r.png"]
    places += ["picture.png", "full.png"] if "folder" in named.check.__name__ else ["no/r.png", "empty", "empty.png"]
    for place in places:
        code, err = told(capsys, [*words(command, option), option, place])
        assert code == 2 and re.fullmatch(r"d2lmgpu \w+: error: .+\n", err), (place, err)
        assert contents(folder) == before


@pytest.mark.parametrize("command, option", few(OUTPUTS, *OUTPUTS[::4]))
def test_a_full_disk(folder, capsys, command, option):
    """Nothing that is read is lost, and one line says what could not be written."""
    before = contents(folder)
    line = words(command, option)
    if "--resume" in line:
        del line[line.index("--resume") : line.index("--resume") + 2]
    code, err = told(capsys, [*line, option, "full.png" if "plot" in COMMANDS[command].format_help() else "/dev/full"])
    check = next(named.check.__name__ for named in NAMED[command] if named.name == option)
    refused = {"--checkpoint": "exists", "--keep-best": "exists", "--results": "not a sweep.s results file"}
    said = "is not a folder" if check == "check_folder" else refused.get(option, "No space left on device")
    assert code == 2 and re.search(rf"error: .*{said}.*\n$", err) and "Traceback" not in err, err
    after = contents(folder)
    assert {path: after.get(path) for path in before} == before


@pytest.mark.parametrize("command, option", INPUTS)
def test_what_cannot_be_read(folder, capsys, command, option):
    before = contents(folder)
    for place in ("empty", "/dev/full", "picture.png/net.py", "no.py"):
        if command == "course" and place in ("empty", "no.py"):
            continue  # it is filled, or made
        line = words(command, option)
        if option.startswith("--"):
            line = [*line, option, place]
        else:
            action = next(action for action in COMMANDS[command]._actions if action.metavar == option)
            given = getattr(cli.parse(cli.COMMANDS, line), action.dest)
            line[line.index(given[0] if isinstance(given, list) else given)] = place
        code, err = told(capsys, line)
        assert code == 2 and re.search(r"error: .+\n$", err) and "Traceback" not in err, (place, err)
        assert contents(folder) == before
