"""A checkpoint or a model that is cut, has a flipped bit or is something else: one line, and what stood there stays.

Data files are tested in test_idx.py and test_images.py, a sweep's results in test_sweep.py.
"""

import pickle
import re
from pathlib import Path

import pytest

from d2lmgpu import cli, load_model
from d2lmgpu.training.checkpoints import CheckpointError
from d2lmgpu.training.resume import load_run

FOLDER = Path(__file__).parent / "earlier_version"
FILES = {"run.ckpt": load_run, "tiny.model": load_model}


@pytest.mark.parametrize("name", FILES)
def test_every_bit_counts(tmp_path, name):
    """In the first line a name may be another; then it is no checkpoint, or of another version."""
    content, file = (FOLDER / name).read_bytes(), tmp_path / name
    for position in [*range(content.index(b"\n") + 1), *range(200, len(content), 97)]:
        for bit in range(8) if position < 200 else (0, 5):
            changed = bytearray(content)
            changed[position] ^= 1 << bit
            file.write_bytes(changed)
            with pytest.raises(CheckpointError) as caught:
                FILES[name](file)
            assert str(caught.value).startswith(f"{file} ") and "\n" not in str(caught.value)


DAMAGED = {
    "nothing": lambda content: b"",
    "cut in the first line": lambda content: content[:50],
    "cut": lambda content: content[:-1],
    "longer": lambda content: content + b"more",
    "a flipped bit": lambda content: content[:-99] + bytes([content[-99] ^ 4]) + content[-98:],
    "a pickle": lambda _: pickle.dumps(print),
    "a picture": lambda _: b"\x89PNG\r\n\x1a\n" + bytes(100),
}
RESUME = "train --environment cpu --resume run.ckpt"
COMMANDS = {
    "predict tiny.model picture.png": "tiny.model",
    "train --environment cpu --init tiny.model": "tiny.model",
    RESUME: "run.ckpt",
    f"{RESUME} --checkpoint run.ckpt --json r.json": "run.ckpt",
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("damage", DAMAGED)
def test_commands_say_it_in_one_line(tmp_path, monkeypatch, capsys, command, damage):
    content = DAMAGED[damage]((FOLDER / COMMANDS[command]).read_bytes())
    refused_in_one_line(tmp_path, monkeypatch, capsys, command, content)


def test_a_model_is_no_run(tmp_path, monkeypatch, capsys):
    refused_in_one_line(tmp_path, monkeypatch, capsys, RESUME, (FOLDER / "tiny.model").read_bytes())


def refused_in_one_line(tmp_path, monkeypatch, capsys, command, content):
    """The command names the file, which stays as it is, and writes no other."""
    monkeypatch.chdir(tmp_path)
    file = Path(COMMANDS[command])
    file.write_bytes(content)
    assert cli.main(command.split()) == 2
    out, err = capsys.readouterr()
    assert out == "" and re.fullmatch(rf"d2lmgpu \w+: error: .*{re.escape(str(file))}.*\n", err)
    assert file.read_bytes() == content and [*tmp_path.iterdir()] == [tmp_path / file]
