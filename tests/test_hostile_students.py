"""Sixty hostile and clumsy students beside twenty honest ones, whose marks are the same as without them."""

import csv
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import long
from hostile_students import CUT, HOSTILE, honest, hostile

from d2lmgpu import cli
from d2lmgpu.exercises import judge
from d2lmgpu.exercises.time_limit import TimeIsUp


def state(folder):
    """All that is in a folder: names, kinds, links and contents."""
    found = {}
    for here, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(here, name)
            status = os.lstat(path)
            is_file = stat.S_ISREG(status.st_mode) and status.st_size < 2**26
            content = Path(path).read_bytes() if is_file else os.path.islink(path) and os.readlink(path)
            found[path] = status.st_mode, status.st_size * is_file, content
    return found


def graded(folder, outside, *options, names="cut,updates_per_epoch"):
    """The rows of the table by student, and what was printed; the temporary folder is empty afterwards."""
    temporary = outside / "tmp"
    temporary.mkdir(exist_ok=True)
    table = outside / "marks.csv"
    command = [sys.executable, "-m", "d2lmgpu", "grade", str(folder), "--csv", str(table), "--exercises", names]
    done = subprocess.run(
        [*command, *options], env=os.environ | {"TMPDIR": str(temporary)}, capture_output=True, text=True, timeout=550
    )
    assert done.returncode == 0, done.stderr
    assert list(temporary.iterdir()) == []
    rows = {}
    with open(table, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            rows.setdefault(row["student"], []).append(row)
    return rows, done.stdout


@pytest.mark.long
def test_the_honest_have_the_same_marks_beside_the_hostile(tmp_path):
    alone, beside, kept, out = (tmp_path / name for name in ("alone", "beside", "kept", "out"))
    for folder in (kept, out):
        folder.mkdir()
    (kept / "kept").write_text("somebody's thesis")
    (kept / "mine.py").write_text(CUT)
    honest(alone)
    expected, _ = graded(alone, out)
    assert {rows[0]["passed"] for rows in expected.values()} == {"true", "false"}
    honest(beside)
    hostile(beside, HOSTILE, kept)
    before = state(beside), state(kept)
    found, _ = graded(beside, out, "--seconds", "5", "--student-seconds", "60", "--hints", str(out / "hints"))
    assert (state(beside), state(kept)) == before
    assert sorted(path.name for path in out.iterdir()) == ["hints", "marks.csv", "tmp"]
    assert {student: found[student] for student in expected} == expected
    assert len(found) == 20 + len(HOSTILE) == len(list((out / "hints").iterdir()))
    for rows in found.values():
        assert [row["exercise"] for row in rows] == ["cut", "updates_per_epoch"]
        assert all(row["says"].isprintable() and len(row["says"]) < 5000 for row in rows)


SAYS = {
    "f_link": "there is no answer; mine.py: this is a link; hand in the file itself",
    "f_longest": "there is no answer; mine.py: this is a link",
    "f_writes_through": "✓",
    "f_deep": "✓",
    "n_sum": "✓",
    "n_blank": "✓",
    "n_list": "a.ipynb: this is not a notebook",
    "n_nested": "a.ipynb: this is not a notebook",
    "n_large": "a.ipynb: its code is larger than 1 MB",
    "large": "mine.py: larger than 1 MB",
    "f_spärlich": "the folder cannot be copied: its files are larger than 256 MB",
    "z_linked_folder": "the folder is a link; hand in the folder itself",
    "bad_encoding": "encoding",
    "raises_its_own": "your answer raised TimeIsUp",
    "f_twice": "✓",
    "deep_made": "✓",
    "kills_parent": "ended the program that ran it",
}


@pytest.mark.long
def test_what_is_said_of_each(tmp_path):
    (kept := tmp_path / "kept").mkdir()
    hostile(tmp_path / "class", SAYS, kept)
    found, _ = graded(tmp_path / "class", tmp_path, "--isolate", names="cut")
    for student, says in SAYS.items():
        assert says in found[student][0]["says"], found[student]


def test_a_hint_that_cannot_be_written_costs_no_marks(tmp_path, capsys):
    """And names that one file may stand for have a file each; a link that lies there already is not followed."""
    for name in ("ada", "Ada", "bob", "eve"):
        (tmp_path / "class" / name).mkdir(parents=True)
        (tmp_path / "class" / name / "mine.py").write_text(CUT)
    (tmp_path / "hints" / "bob.txt").mkdir(parents=True)
    (tmp_path / "thesis").write_text("kept")
    (tmp_path / "hints" / "eve.txt").symlink_to(tmp_path / "thesis")
    table = tmp_path / "marks.csv"
    words = ["grade", str(tmp_path / "class"), "--exercises", "cut", "--csv", str(table)]
    assert cli.main([*words, "--hints", str(tmp_path / "hints")]) == 2
    error = capsys.readouterr().err
    assert error == f"d2lmgpu grade: error: cannot write {tmp_path / 'hints' / 'bob.txt'}: Is a directory\n"
    assert [line.partition(",")[0] for line in table.read_text().splitlines()[1:]] == ["Ada", "ada", "bob", "eve"]
    hints = {path.name.lower() for path in (tmp_path / "hints").iterdir() if path.is_file()}
    assert hints == {"ada.txt", "ada (2).txt", "eve.txt"} and (tmp_path / "thesis").read_text() == "kept"


def test_an_answer_that_says_itself_that_the_time_is_up():
    def cut(n, k):
        raise TimeIsUp

    assert "not right yet: your answer raised TimeIsUp\n" in judge("cut", cut).says


@pytest.mark.parametrize("signum", [signal.SIGTERM, *long(signal.SIGHUP, signal.SIGINT)])
def test_a_signal_keeps_what_was_done_and_leaves_nothing(tmp_path, signum):
    folder, temporary, table = tmp_path / "class", tmp_path / "tmp", tmp_path / "marks.csv"
    temporary.mkdir()
    for name, text in {"ada": CUT, "bob": CUT, "eve": "def cut(n, k):\n    while True: pass\n"}.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "mine.py").write_text(text)
    command = [sys.executable, "-m", "d2lmgpu", "grade", str(folder), "--csv", str(table), "--exercises", "cut"]
    former = signal.signal(signum, signal.SIG_DFL if signum != signal.SIGINT else signal.default_int_handler)
    process = subprocess.Popen(
        [*command, "--seconds", "500", "--student-seconds", "500"],
        env=os.environ | {"TMPDIR": str(temporary)},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    signal.signal(signum, former)
    stop = time.monotonic() + 120
    while not table.exists() or table.read_text().count("\n") < 3:
        assert time.monotonic() < stop and process.poll() is None
        time.sleep(0.05)
    process.send_signal(signum)
    message = "d2lmgpu grade: interrupted; the marks of 2 students are written\n"
    assert process.communicate(timeout=60)[1] == message and process.returncode == 128 + signum
    assert [line.split(",")[0] for line in table.read_text().splitlines()] == ["student", "ada", "bob"]
    assert list(temporary.iterdir()) == []
