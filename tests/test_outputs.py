"""Result files: whole or not at all, with the permissions that they had."""

import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import d2lmgpu as d2l
from d2lmgpu import cli
from d2lmgpu.base import files as output
from d2lmgpu.base.files import backup, check_writable, same_file, write_file, write_json
from d2lmgpu.experiments import plot_sweep
from d2lmgpu.pictures.plots import plot_history
from d2lmgpu.training import load_run
from d2lmgpu.training.checkpoints import load_checkpoint


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def python(code, *arguments, **settings):
    """A process that runs ``code``, after this module's imports."""
    imports = "import os, signal, sys\nfrom d2lmgpu.base.files import *\n"
    return subprocess.Popen([sys.executable, "-c", imports + code, *map(str, arguments)], text=True, **settings)


def test_the_content_is_on_the_disk_before_it_gets_the_name(tmp_path, monkeypatch):
    calls = []

    def fsync(descriptor):
        calls.append(("fsync", os.fstat(descriptor).st_size))

    def replace(source, target):
        calls.append(("replace", os.path.getsize(source)))
        os.rename(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    write_file(tmp_path / "file", lambda file: file.write(b"12345"))
    assert calls == [("fsync", 5), ("replace", 5)]


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
    with pytest.raises(FileNotFoundError, match="nothing"):
        backup(tmp_path / "nothing")


def full(file):
    file.write(b"half")
    file.flush()
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def interrupted(file):
    raise KeyboardInterrupt


def wrong(file):
    raise TypeError("no figure")


@pytest.mark.parametrize(
    "write, kind", [(full, OSError), (interrupted, KeyboardInterrupt), (wrong, TypeError)], ids=lambda x: x.__name__
)
@pytest.mark.parametrize("older", [True, False])
def test_a_failed_write_leaves_nothing_but_the_older_file(tmp_path, write, kind, older):
    file = tmp_path / "result.json"
    if older:
        file.write_text("older")
    with pytest.raises(kind):
        write_file(file, write)
    assert names(tmp_path) == ["result.json"] * older
    assert not older or file.read_text() == "older"
    write_json(file, [1])
    assert json.loads(file.read_text()) == [1] and names(tmp_path) == ["result.json"]


def test_an_error_names_the_file(tmp_path):
    file = tmp_path / "result.json"
    with pytest.raises(OSError, match=f"^cannot write {file}: No space left on device$") as caught:
        write_file(file, full)
    assert caught.value.errno == errno.ENOSPC
    with pytest.raises(OSError, match="^cannot write /dev/full: No space left on device$"):
        write_json("/dev/full", [1])
    long = tmp_path / ("x" * 253)  # which exists, but nothing can be written beside it
    long.write_text("older")
    with pytest.raises(OSError, match="x: File name too long$"):
        check_writable(long)


def test_permissions(tmp_path):
    """Those that a person gave a file stay; a new one has what the umask says."""
    file = tmp_path / "file"
    for mode in (0o600, 0o640, 0o664):
        file.write_text("older")
        file.chmod(mode)
        seen = []
        write_file(file, lambda new: (new.write(b"new"), seen.append(os.fstat(new.fileno()).st_mode & 0o777)))  # noqa: B023
        assert (seen, file.stat().st_mode & 0o777, file.read_text()) == ([mode], mode, "new")
    before = os.umask(0o027)
    try:
        write_file(tmp_path / "new", lambda new: new.write(b"new"))
    finally:
        os.umask(before)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o640


def test_a_program_that_is_killed_leaves_the_older_file(tmp_path):
    """And a hidden part of the new one, which is in nobody's way."""
    file = tmp_path / "result.json"
    write_json(file, [1])
    code = "write_file(sys.argv[1], lambda file: (file.write(b'half'), file.flush(), os.kill(os.getpid(), 9)))"
    assert python(code, file).wait() == -signal.SIGKILL
    assert json.loads(file.read_text()) == [1]
    part, name = names(tmp_path)
    assert name == "result.json" and re.fullmatch(r"\.result\.json\.\w+\.part", part)
    write_json(file, [2])
    assert json.loads(file.read_text()) == [2] and names(tmp_path) == [part, name]


def test_two_programs_that_write_one_file(tmp_path):
    """The file is always one of theirs, whole."""
    file = tmp_path / "file"

    def write_first(opened):
        opened.write(b"first")
        write_file(file, lambda second: second.write(b"second"))
        assert file.read_bytes() == b"second"

    write_file(file, write_first)
    assert file.read_bytes() == b"first" and names(tmp_path) == ["file"]


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


@pytest.mark.parametrize(
    "command, message",
    [
        ("predict model --json new.png --confusion ./new.png", "--confusion ./new.png and --json new.png are the same"),
        ("predict model picture.png --json link", "--json link would be written over model, which is read"),
        ("check ring model --json model", "--json model would be written over model, which is read"),
        ("train --checkpoint model --trace link", "--checkpoint model and --trace link are the same file"),
        ("train --resume model --json /dev/stdout --trace /dev/stdout", "is no checkpoint of d2lmgpu"),  # a stream
    ],
)
def test_two_results_in_one_file(tmp_path, monkeypatch, capsys, command, message):
    """Exit code 2 before anything begins, and all files as they were."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").write_text("text")
    (tmp_path / "link").symlink_to("model")
    assert cli.main(command.split()) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1
    assert names(tmp_path) == ["link", "model"] and (tmp_path / "model").read_text() == "text"


BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def test_a_table_that_nobody_takes(tmp_path):
    """What is written only as the program ends fails within it, too; the result is kept."""
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "d2lmgpu", "devices", "--json", "r.json"]
        done = subprocess.run(command, cwd=tmp_path, env=BUFFERED, stdout=full, stderr=subprocess.PIPE, text=True)
    line = "d2lmgpu: error: cannot write to standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (2, line) and names(tmp_path) == ["r.json"]


TRAIN = ["train", "--environment", "cpu", "--devices", "2", "--epochs", "2", "--init", "he", "--lr", "0.01"]
COMMAND = """
from d2lmgpu import cli, load_fashion_mnist
X, y, X_test, y_test = load_fashion_mnist()
cli.train.find_data = lambda *_: (X[:300], y[:300], X_test[:100], y_test[:100])
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.mark.long
@pytest.mark.parametrize("nobody", ["full", "closed"])
def test_training_whose_output_nobody_takes(tmp_path, nobody):
    """A full disk, and a pipe that is closed: what was learned is kept, one line says what was not said."""
    reader, writer = os.pipe()
    os.close(reader)
    with open("/dev/full", "w") if nobody == "full" else os.fdopen(writer, "w") as out:
        files = ["--json", "r.json", "--checkpoint", "c"]
        process = python(COMMAND, *TRAIN, *files, cwd=tmp_path, env=BUFFERED, stdout=out, stderr=subprocess.PIPE)
        _, err = process.communicate()
    said = "No space left on device" if nobody == "full" else "Broken pipe"
    assert err == f"d2lmgpu: error: cannot write to standard output: {said}\n"
    assert process.returncode == 2 and names(tmp_path) == ["c", "r.json"]
    assert len(json.loads((tmp_path / "r.json").read_text())["train_loss"]) == 2
    assert load_checkpoint(tmp_path / "c").state["position"]["epoch"] == 2


def test_results_that_cannot_be_written_leave_the_others(tmp_path, capsys, small, monkeypatch):
    monkeypatch.setattr("d2lmgpu.cli.train.find_data", lambda *_: small)
    plot = tmp_path / "p.png"
    assert cli.main([*TRAIN, "--json", "/dev/full", "--plot", str(plot), "--trace", "/dev/full"]) == 2
    out, err = capsys.readouterr()
    full = "cannot write /dev/full: No space left on device"
    assert err == f"d2lmgpu train: error: {full}\n" and out.splitlines()[-1].startswith("test acc: ")
    assert plot.read_bytes().startswith(b"\x89PNG")


def strictly(text):
    """The content of JSON, whose grammar has neither NaN nor Infinity."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"JSON has no {name}"))


DIVERGES = "--environment cpu --init he --epochs 2 --batch-size 50 --lr"
COMMANDS = {  # and the exit code
    f"train --devices 2 {DIVERGES} 1e6 --metrics own.py --json r.json --trace t.json --checkpoint run": 1,
    f"sweep {DIVERGES} 1e6,0.01 --mode sequential --results kept.jsonl --json s.json --plot p.png --curves c.png": 0,
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("command", COMMANDS)
def test_every_json_of_a_run_that_diverges(tmp_path, monkeypatch, small, command):
    """All that is called JSON, and that is in a checkpoint, has the grammar of JSON, and NaN comes back from it."""
    monkeypatch.chdir(tmp_path)
    for owner in ("cli.train", "cli.sweep"):
        monkeypatch.setattr(f"d2lmgpu.{owner}.find_data", lambda *_: small)
    monkeypatch.setattr("d2lmgpu.experiments.trials.fashion_mnist", lambda: small)
    monkeypatch.setattr("d2lmgpu.cli.predict.load_fashion_mnist", lambda: small)
    (tmp_path / "own.py").write_text("metrics = {'sum of outputs': lambda outputs, y: outputs.sum()}")
    assert cli.main(command.split()) == COMMANDS[command]
    if command.startswith("train"):
        assert cli.main("predict run --json test.json".split()) == 0
        Image.fromarray(small[0][0, 0]).save("a.png")
        assert cli.main("predict run a.png --json picture.json".split()) == 0
        assert strictly((tmp_path / "picture.json").read_text())["predictions"][0]["class"] is None
        told, kept = strictly((tmp_path / "r.json").read_text()), load_run("run").state["history"]
        history = d2l.History.from_dict(told)
        assert None in told["train_loss"] and np.isnan(history.train_loss).any() and history.diverged
        assert repr(history.metrics) == repr(kept["metrics"]) and repr(history.train_loss) == repr(kept["train_loss"])
        plot_history(history)
        header, _, content = (tmp_path / "run").read_bytes().partition(b"\n")
        assert strictly(header) and strictly(np.load(io.BytesIO(content))["state"].tobytes())
    if command.startswith("sweep"):
        rows = d2l.load_sweep("kept.jsonl")
        assert [row["status"] for row in rows] == ["diverged", "done"] and np.isnan(rows[0]["history"]["train_loss"][0])
        plot_sweep(rows, y="training loss")
        assert repr(d2l.sweep([row["settings"] for row in rows], results="kept.jsonl")) == repr(rows)
    found = [file.read_text("ascii") for file in tmp_path.glob("*.json")]
    found += [line for file in tmp_path.glob("*.jsonl") for line in file.read_text("ascii").splitlines()]
    assert found and all(map(strictly, found))


def test_what_json_has_not():
    value = {
        "numbers": (np.float32(0.5), np.int64(2), np.bool_(True), float("inf"), np.float64("nan")),
        "arrays": [np.array([[1, 2]], np.uint8), np.array([0.5, -np.inf]), np.array(3)],
        np.int64(7): Path("a", "b"),
        "not UTF-8": "\udcff</script>",
    }
    plain = {"numbers": [0.5, 2, True, None, None], "arrays": [[[1, 2]], [0.5, None], 3], "7": str(Path("a", "b"))}
    for text in (output.as_json(value), output.as_json_in_html(value)):
        assert text.isascii() and strictly(text) == plain | {"not UTF-8": "\udcff</script>"}
    assert "</script>" not in text
    with pytest.raises(ValueError, match="cannot be written as JSON: Object of type complex"):
        output.as_json([1j])


class Fails(d2l.Callback):
    def on_epoch(self, history):
        raise RuntimeError("mine")


class FailsToShow(Fails):
    only_shows = True


def test_callbacks_that_fail(small, tmp_path, capsys):
    """One's own ends training, after the checkpoint was written; one that only shows something is left out."""
    settings = {"data": small, "batch_size": 100, "lr": 0.01, "init": "he", "num_epochs": 2}
    with pytest.raises(RuntimeError, match="mine"):
        d2l.train([d2l.cpu(0)], callbacks=[Fails()], checkpoint=tmp_path / "c", **settings)
    assert load_checkpoint(tmp_path / "c").state["position"]["epoch"] == 1
    capsys.readouterr()
    callbacks = [FailsToShow()]
    history, _ = d2l.train([d2l.cpu(0)], callbacks=callbacks, **settings)
    assert len(history.train_loss) == 2 and len(callbacks) == 1
    assert capsys.readouterr().err == "note: FailsToShow failed (RuntimeError: mine); training goes on without it\n"


FULL_LOG = """
import resource, d2lmgpu as d2l
X, y, X_test, y_test = d2l.load_fashion_mnist()
log = d2l.TensorBoard(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
settings = {"batch_size": 10, "lr": 0.01, "init": "he", "num_epochs": 2}
history, _ = d2l.train([d2l.cpu(0)], data=(X[:600], y[:600], X_test[:100], y_test[:100]), callbacks=[log], **settings)
print(len(history.train_loss))
"""


def test_a_log_for_tensorboard_that_is_full(tmp_path):
    """Neither the end of training nor a wait for ever."""
    process = python(FULL_LOG, tmp_path / "log", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=60)
    assert out.splitlines()[-1] == "2" and process.returncode == 0
    assert re.fullmatch("note: TensorBoard failed .*File too large.*; training goes on without it\n", err)
