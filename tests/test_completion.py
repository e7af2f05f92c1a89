"""What a shell is told with argcomplete, by its protocol; without it nothing changes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import long

import d2lmgpu
from d2lmgpu import cli
from d2lmgpu.cli.parser import make_parser
from d2lmgpu.exercises import EXERCISES

PACKAGE = Path(d2lmgpu.__file__).parent
NOTHING = set()


@pytest.fixture
def asked(tmp_path):
    """A function of a line: what may stand in the place of its last word. Two files and a folder are there."""
    for name in ("seen.json", "net.py"):
        (tmp_path / name).touch()
    (tmp_path / "pictures").mkdir()

    def asked(line):
        answer = tmp_path / ".answer"
        asks = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_IFS": "|"}
        asks |= {"_ARGCOMPLETE_STDOUT_FILENAME": str(answer), "PYTHONPATH": str(PACKAGE.parent)}
        command = [sys.executable, "-m", "d2lmgpu"]
        done = subprocess.run(command, env=os.environ | asks, cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        return {word.strip() for word in answer.read_text().split("|") if word}

    return asked


@pytest.mark.packages
@pytest.mark.parametrize(
    "line, expected",
    [
        ("d2lmgpu train --optimizer ", {"sgd", "momentum", "adam"}),
        *long(
            ("d2lmgpu tr", {"train"}),
            ("d2lmgpu train --allr", {"--allreduce"}),
            ("d2lmgpu train --environment p", {"parallel"}),
            ("d2lmgpu train --lr ", NOTHING),
            ("d2lmgpu train --devices ", NOTHING),
            ("d2lmgpu train --json s", {"seen.json"}),
            ("d2lmgpu train --network c", {"cnn"}),
            ("d2lmgpu train --network n", {"net.py"}),
            ("d2lmgpu train --data p", {"pictures/"}),
            ("d2lmgpu train --overlap --split da", {"data", "data=2,layers=2"}),
            ("d2lmgpu sweep --allreduce ring,nai", {"ring,naive"}),
            ("d2lmgpu plan --on this", {"this_machine"}),
            ("d2lmgpu predict s", {"seen.json"}),
            ("d2lmgpu check he_", {name for name in EXERCISES if name.startswith("he_")}),
            ("d2lmgpu check he_std n", {"net.py"}),
            ("d2lmgpu grade pictures --exercises he_std,train_b", {"he_std,train_batch"}),
        ),
    ],
)
def test_what_a_shell_is_told(asked, line, expected):
    pytest.importorskip("argcomplete", reason="argcomplete is not installed (pip install -e '.[completion]')")
    assert asked(line) == expected


def test_every_name_that_is_completed_is_one_that_the_command_takes():
    for parser in make_parser(cli.COMMANDS)[1].choices.values():
        for action in parser._actions:
            for name in getattr(action, "names", ()):
                assert action.type(name) and name in action.help, (parser.prog, action.dest, name)


def test_without_argcomplete_nothing_changes(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "argcomplete", None)
    monkeypatch.setenv("_ARGCOMPLETE", "1")
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"d2lmgpu {d2lmgpu.__version__}\n"


def test_a_command_does_not_import_it():
    code = "import sys; from d2lmgpu.cli import main; main(['devices']); print('argcomplete' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


@pytest.mark.parametrize("file", ["__main__.py", "cli/__init__.py"])
def test_a_shell_that_completes_everything_finds_the_mark(file):
    assert b"# PYTHON_ARGCOMPLETE_OK" in (PACKAGE / file).read_bytes()[:1024]
