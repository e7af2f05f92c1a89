"""Marks for many students: each gets a row for each exercise, and nobody's folder changes."""

import csv
import json
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest

from d2lmgpu import cli
from d2lmgpu.exercises.answers import grade

NAMES = ["cut", "updates_per_epoch", "he_std"]
CUT = "def cut(n, k):\n    return [(i * n // k, (i + 1) * n // k) for i in range(k)]\n"
UPDATES = "import math\ndef updates_per_epoch(n, b, k): return math.ceil(n / (k * b))\n"
CLASS = {  # of each student: mine.py, and what should be said of each exercise
    "cannot_run": (CUT + UPDATES + "1 / 0", *["mine.py cannot be run: ZeroDivisionError"] * 3),
    "good": (CUT + UPDATES, "✓ cut", "✓ updates_per_epoch", "mine.py has no function he_std\n  Hint: write def"),
    "leaves": ("import os\ndef cut(n, k): os._exit(0)\n" + UPDATES, "ended with exit code 0", "✓", "no function"),
    "nothing": (None, *["there is no mine.py"] * 3),
    "reads": ("import helper\nopen('helper.py').close()\n" + CUT, "✓", "no function", "no function"),
}


@pytest.fixture
def classroom(tmp_path):
    folder = tmp_path / "class"
    for student, (text, *_) in CLASS.items():
        (folder / student).mkdir(parents=True)
        (folder / student / "helper.py").write_text(CUT)
        if text is not None:
            (folder / student / "mine.py").write_text(text)
    for name in (".hidden", "__MACOSX"):
        (folder / name).mkdir()
    return folder


def contents(folder):
    return {path.relative_to(folder): path.is_file() and path.read_bytes() for path in folder.rglob("*")}


def test_whatever_students_hand_in(classroom):
    before = contents(classroom)
    marks = list(grade(classroom, NAMES, {"cut": 2.5}))
    assert contents(classroom) == before
    assert [rows[0].student for rows in marks] == list(CLASS)
    for rows in marks:
        assert [row.exercise for row in rows] == NAMES
        for row, expected in zip(rows, CLASS[rows[0].student][1:], strict=True):
            assert row.student == rows[0].student and expected in row.says
            assert row.passed == row.says.startswith("✓")
            assert row.points == (row.passed and {"cut": 2.5}.get(row.exercise, 1))


def test_on_the_command_line(classroom, tmp_path, capsys):
    table, result = tmp_path / "marks.csv", tmp_path / "marks.json"
    options = ["--exercises", "cut,he_std", "--points", "he_std=2,cut=3", "--json", str(result), "--csv", str(table)]
    assert cli.main(["grade", str(classroom), *options]) == 0
    out = capsys.readouterr().out.splitlines()
    assert "good: 1 of 2 right, 3 points" in out
    assert out[0].startswith(
        "cannot_run: 0 of 2 right, 0 points; the first: ✗ cut: not right yet: mine.py cannot be run: Zero"
    )
    with open(table, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["student", "exercise", "passed", "points", "says"] and len(rows) == 2 * len(CLASS)
    assert [(row["student"], row["exercise"], row["passed"], row["points"]) for row in rows[2:4]] == [
        ("good", "cut", "true", "3"),
        ("good", "he_std", "false", "0"),
    ]
    assert rows[3]["says"].startswith("✗ he_std: not right yet: mine.py has no function he_std Hint: write def he_std(")
    assert [row["passed"] for row in json.loads(result.read_text())][2:4] == [True, False]


@pytest.mark.parametrize(
    "folders, options, message",
    [
        ([], [], "has no folders; each student's answers should be in one"),
        (["ada"], ["--exercises", "rings"], "exercise 'rings' is unknown; .* did you mean ring?"),
        (["ada"], ["--points", "ring=-1"], "points: ring is -1.0; it should be a finite number, at least 0"),
        (["ada"], ["--points", "ring"], "'ring' should be an exercise and its points, such as ring=3"),
        (["ada"], ["--seconds", "0"], "seconds is 0.0; it should be"),
    ],
)
def test_what_cannot_be_graded(tmp_path, monkeypatch, capsys, folders, options, message):
    monkeypatch.chdir(tmp_path)
    for folder in folders:
        (tmp_path / folder).mkdir()
    try:
        code = cli.main(["grade", ".", *options])
    except SystemExit as end:  # argparse
        code = end.code
    assert code == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and re.search(message, err)


def test_ctrl_c_keeps_what_was_done_and_ends_the_answer(tmp_path):
    table = tmp_path / "marks.csv"
    for name, text in {"ada": CUT, "eve": "def cut(n, k):\n    while True: pass\n"}.items():
        (tmp_path / "class" / name).mkdir(parents=True)
        (tmp_path / "class" / name / "mine.py").write_text(text)
    command = [sys.executable, "-um", "d2lmgpu", "grade", str(tmp_path / "class"), "--csv", str(table)]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([*command, "--exercises", "cut", "--seconds", "500"], **streams)
    assert process.stdout.readline() == "ada: 1 of 1 right, 1 points\n"
    own, stop = psutil.Process(process.pid), time.monotonic() + 60
    while not (answers := own.children()) or answers[0].cpu_times().user < 0.1:  # it has begun
        assert time.monotonic() < stop
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    message = "d2lmgpu grade: interrupted; these are the marks so far\n"
    assert process.communicate(timeout=60)[1] == message and process.returncode == 130
    assert [line.split(",")[0] for line in table.read_text().splitlines()] == ["student", "ada"]
    assert not psutil.wait_procs(answers, 60)[1]
