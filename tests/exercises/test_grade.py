"""Answers in files are somebody's code: whatever one does, there is a verdict on it, and on those after it; marks."""

import csv
import json
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest
from conftest import long
from test_exercises import ROOT

from d2lmgpu import cli
from d2lmgpu.exercises import EXERCISES

CUT = "def cut(n, k):\n    return [(i * n // k, (i + 1) * n // k) for i in range(k)]\n"

HOSTILE = """
import os, sys, helper
open("helper.py").close()

def cut(n, k): os._exit(0)
def he_std(shape): sum(range(10**12))
def ring(k, n): return helper.ring(k, n)
def buckets(*args): sys.exit(0)
def swap(a, b): os.kill(os.getpid(), 11)
def timed(*args): raise KeyboardInterrupt
def sum_on(arrays, device): return arrays and sum_on(arrays, device)
"""
SAYS = {  # what the verdict on each of its functions should say
    "cut": "your answer ended with exit code 0",
    "he_std": "your answer did not end within 1 seconds",
    "ring": "it raised EOFError",
    "buckets": "your answer, or the check of what it returned, raised SystemExit: 0",
    "swap": "your answer was killed by signal 11 (Segmentation fault)",
    "timed": "your answer was killed by signal 2 (Interrupt)",
    "sum_on": "it raised RecursionError: maximum recursion depth exceeded",
    "learning_rate": "mine.py has no function learning_rate",
}
HELPER = "def ring(k, n): return input('k? ')\n"
CLASS = {  # of each student: mine.py, and what should be said of each exercise, or of all
    "broken": ("def ring(k, n:\n", "mine.py cannot be run: SyntaxError: '(' was never closed (mine.py, line 1)"),
    "good": ("import helper\n" + CUT, {"cut": "✓ cut", "swap": "no function swap Hint: write def swap("}),
    "hostile": (HOSTILE, SAYS),
    "leaves": (CUT + "open(RUNS, 'a').write('x')\nimport sys; sys.exit(3)", "mine.py cannot be run: SystemExit: 3"),
    "nothing": (None, "there is no mine.py"),
    "sleeps": ("import time\nprint('x' * 9999)\ntime.sleep(10**6)", "mine.py did not end within 1 seconds"),
}


def contents(folder):
    return {path.relative_to(folder): path.is_file() and path.read_bytes() for path in folder.rglob("*")}


@pytest.mark.parametrize("students", [["good", "nothing"], *long([*CLASS])], ids=["few", "all"])
def test_whatever_students_hand_in(tmp_path, capsys, students):
    """Each gets a row for each exercise, and nobody's folder changes, not even by a __pycache__."""
    folder, runs = tmp_path / "class", tmp_path / "runs"
    for student in students:
        text, _ = CLASS[student]
        (folder / student).mkdir(parents=True)
        (folder / student / "helper.py").write_text(HELPER)
        if text is not None:
            (folder / student / "mine.py").write_text(text.replace("RUNS", repr(str(runs))))
    for name in (".hidden", "__MACOSX"):
        (folder / name).mkdir()
    before, table, result = contents(folder), tmp_path / "marks.csv", tmp_path / "marks.json"
    options = ["--exercises", ",".join(SAYS), "--seconds", "1"]
    assert cli.main(["grade", str(folder), *options, "--json", str(result), "--csv", str(table)]) == 0
    assert contents(folder) == before
    assert "leaves" not in students or runs.read_text() == "x", "a file is run once, and not for each answer"
    out = capsys.readouterr().out.splitlines()
    assert "good: 1 of 8 right" in out
    assert "nothing: 0 of 8 right; the first: ✗ cut: not right yet: there is no mine.py" in "\n".join(out)
    marks = json.loads(result.read_text())
    assert [(row["student"], row["exercise"]) for row in marks] == [(who, name) for who in students for name in SAYS]
    for row in marks:
        expected = CLASS[row["student"]][1]
        if isinstance(expected, dict):
            expected = expected.get(row["exercise"], "mine.py has no function")
        says = row["says"]
        assert expected in says and says.startswith((f"✗ {row['exercise']}: ", f"✓ {row['exercise']}: ")), row
        assert row["passed"] == says.startswith("✓")
        assert row["points"] == row["passed"]
    with open(table, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["student", "exercise", "passed", "points", "says"] and len(rows) == len(marks)
    first = rows[len(SAYS) * students.index("good")]
    assert (first["student"], first["exercise"], first["passed"], first["points"]) == ("good", "cut", "true", "1")


@pytest.mark.parametrize(
    "folders, options, message",
    [
        ([], [], "has no folders; each student's answers should be in one"),
        (["ada"], ["--exercises", "rings"], "exercise 'rings' is unknown; .* did you mean ring?"),
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


def test_checking_a_file(tmp_path, capfd):
    """A right answer, one that ends the program: exit code 1 and a verdict; and what is no file."""
    file, result = tmp_path / "mine.py", tmp_path / "verdict.json"
    solutions = next((ROOT / "notebooks" / "solutions").glob("04_*.py"))
    assert cli.main(["check", "allreduce", str(solutions), "--json", str(result)]) == 0
    assert json.loads(result.read_text())["right"] is True and "✓ allreduce" in capfd.readouterr().out
    file.write_text("import sys\nprint('héllo')\ndef ring(k, n): sys.exit(0)\n", encoding="utf-8")
    assert cli.main(["check", "ring", str(file), "--json", str(result)]) == 1
    out, err = capfd.readouterr()
    assert out.startswith("✗ ring: not right yet: ") and err == "héllo\n"
    assert json.loads(result.read_text())["right"] is False
    (tmp_path / "06.ipynb").touch()
    for other in (tmp_path, tmp_path / "06.ipynb", tmp_path / "nothing.py"):
        assert cli.main(["check", "ring", str(other)]) == 2
        assert f"{other} is not a Python file" in capfd.readouterr().err
    for seconds in ("0", "-1", "nan", "inf"):
        assert cli.main(["check", "ring", str(file), f"--seconds={seconds}"]) == 2
        assert f"seconds is {float(seconds)}; it should be a finite number" in capfd.readouterr().err
    assert cli.main(["check"]) == 0
    assert capfd.readouterr().out.count("\n") == len(EXERCISES)
    assert cli.main(["check", "allreduce"]) == 0
    assert capfd.readouterr().out == EXERCISES["allreduce"].asks + "\n"


@pytest.mark.long
def test_ctrl_c_keeps_what_was_done_and_ends_the_answer(tmp_path):
    table = tmp_path / "marks.csv"
    for name, text in {"ada": CUT, "eve": "def cut(n, k):\n    while True: pass\n"}.items():
        (tmp_path / "class" / name).mkdir(parents=True)
        (tmp_path / "class" / name / "mine.py").write_text(text)
    command = [sys.executable, "-um", "d2lmgpu", "grade", str(tmp_path / "class"), "--csv", str(table)]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([*command, "--exercises", "cut", "--seconds", "500"], **streams)
    assert process.stdout.readline() == "ada: 1 of 1 right\n"
    own, stop = psutil.Process(process.pid), time.monotonic() + 60
    while not (answers := own.children()) or answers[0].cpu_times().user < 0.1:  # it has begun
        assert time.monotonic() < stop
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    message = "d2lmgpu grade: interrupted; these are the marks so far\n"
    assert process.communicate(timeout=60)[1] == message and process.returncode == 130
    assert [line.split(",")[0] for line in table.read_text().splitlines()] == ["student", "ada"]
    assert not psutil.wait_procs(answers, 60)[1]
