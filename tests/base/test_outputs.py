"""Result files: whole or not at all, with the permissions that they had; and the one grammar of JSON."""

import errno
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from d2lmgpu.base import files as output
from d2lmgpu.base.files import backup, same_file, write_file, write_json


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_content_is_on_the_disk_before_it_gets_the_name(tmp_path, monkeypatch):
    """Until then it is in a hidden file, so who is killed leaves what was there, and the hidden part."""
    calls, file = [], tmp_path / "file"

    def fsync(descriptor):
        calls.append(("fsync", os.fstat(descriptor).st_size))

    def replace(source, target):
        part, name = names(tmp_path)
        assert name == "file" and file.read_text() == "older" and re.fullmatch(r"\.file\.\w+\.part", part)
        calls.append(("replace", os.path.getsize(source)))
        os.rename(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    file.write_text("older")
    write_file(file, lambda file: file.write(b"12345"))
    assert calls == [("fsync", 5), ("replace", 5)]
    monkeypatch.undo()
    write_file(file, lambda opened: write_file(file, lambda second: second.write(b"second")))  # as by two programs
    assert file.read_bytes() == b"" and names(tmp_path) == ["file"]


def test_a_file_is_kept_aside_under_a_name_that_is_free(tmp_path):
    """With its permissions, beside the file itself; no earlier copy is overwritten, and none is made twice."""
    folder = tmp_path / "real"
    folder.mkdir()
    file, link = folder / "file", tmp_path / "link"
    link.symlink_to(file)
    (folder / "file.before-2").symlink_to("nowhere")
    for content, expected in ((b"one", 1), (b"two", 3), (b"one", 1)):
        file.write_bytes(content)
        file.chmod(0o600)
        aside = backup(link)
        assert aside == folder / f"file.before-{expected}" and aside.read_bytes() == content == file.read_bytes()
        assert aside.stat().st_mode & 0o777 == 0o600


def full(file):
    file.write(b"half")
    file.flush()
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def interrupted(file):
    raise KeyboardInterrupt


@pytest.mark.parametrize("write, kind", [(full, OSError), (interrupted, KeyboardInterrupt)])
@pytest.mark.parametrize("older", [True, False])
def test_a_failed_write_leaves_nothing_but_the_older_file(tmp_path, write, kind, older):
    """An error of the system names the file."""
    file = tmp_path / "result.json"
    if older:
        file.write_text("older")
    with pytest.raises(kind) as caught:
        write_file(file, write)
    if kind is OSError:
        assert str(caught.value) == f"cannot write {file}: No space left on device"
        assert caught.value.errno == errno.ENOSPC
    assert names(tmp_path) == ["result.json"] * older
    assert not older or file.read_text() == "older"
    write_json(file, [1])
    assert json.loads(file.read_text()) == [1] and names(tmp_path) == ["result.json"]


def test_permissions(tmp_path):
    """Those that a person gave a file stay, also while it is written."""
    file, seen = tmp_path / "file", []

    def write(new):
        new.write(b"new")
        seen.append(os.fstat(new.fileno()).st_mode & 0o777)

    for mode in (0o600, 0o664):
        file.write_text("older")
        file.chmod(mode)
        write_file(file, write)
        assert (seen.pop(), file.stat().st_mode & 0o777, file.read_text()) == (mode, mode, "new")


def test_one_file_by_several_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("file", "another"):
        (tmp_path / name).write_text(name)
    (tmp_path / "folder").mkdir()
    (tmp_path / "soft").symlink_to("file")
    (tmp_path / "hanging").symlink_to("folder/new")
    (tmp_path / "there").symlink_to("folder")
    os.link("file", "hard")
    for name in ("file", "./file", tmp_path / "file", "folder/../file", "soft", "hard"):
        assert same_file(name, "file") and same_file("file", name) and not same_file(name, "another")
    assert same_file("folder/new", "hanging") and same_file("there/new", "hanging") and same_file("new", "new")
    assert not same_file("new", "folder/new")
    assert not same_file("/dev/stdout", "/dev/stdout")  # one after the other, nothing is lost


def test_what_json_has_not():
    value = {
        "numbers": (np.float32(0.5), np.int64(2), np.bool_(True), float("inf"), np.float64("nan")),
        "arrays": [np.array([[1, 2]], np.uint8), np.array([0.5, -np.inf]), np.array(3)],
        np.int64(7): Path("a", "b"),
        "not UTF-8": "\udcff</script>",
    }
    plain = {"numbers": [0.5, 2, True, None, None], "arrays": [[[1, 2]], [0.5, None], 3], "7": str(Path("a", "b"))}
    plain["not UTF-8"] = value["not UTF-8"]
    for text in (output.as_json(value), output.as_json_in_html(value)):
        assert text.isascii() and json.loads(text, parse_constant=pytest.fail) == plain
    assert "</script>" not in text
    with pytest.raises(ValueError, match="cannot be written as JSON: Object of type complex"):
        output.as_json([1j])
