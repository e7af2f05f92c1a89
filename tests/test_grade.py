"""Marks for many students: whatever their answers do, each gets a row, and nobody's folder changes."""

import csv
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from conftest import long

from d2lmgpu import cli
from d2lmgpu.exercises import EXERCISES, judge
from d2lmgpu.exercises.course import find_notebooks
from d2lmgpu.exercises.grading import grade
from d2lmgpu.exercises.submissions import find_answers, names_in

ROOT = Path(__file__).resolve().parents[1]
CHECK = re.compile(r'^(?:if )?check\("(\w+)", (\w+)', re.MULTILINE)
NAMES = ["cut", "updates_per_epoch", "he_std"]
CUT = "def cut(n, k):\n    return [(i * n // k, (i + 1) * n // k) for i in range(k)]\n"
UPDATES = "import math\ndef updates_per_epoch(n, b, k): return math.ceil(n / (k * b))\n"
CLASS = {  # of each student: mine.py, and what should be said of cut, and of updates_per_epoch
    "good": (CUT + UPDATES, "✓ cut", "✓ updates_per_epoch"),
    "hangs": ("import time; time.sleep(99)\n" + CUT + UPDATES, "mine.py cannot be run: it did not end", "see cut"),
    "hangs_here": (
        CUT.replace("    return", "    import time; time.sleep(99)\n    return") + UPDATES,
        "did not end within 3 seconds",
        "✓",
    ),
    "leaves": ("import os\ndef cut(n, k): os._exit(0)\n" + UPDATES, "your answer ended with exit code 0", "✓"),
    "prints": ("def cut(n, k):\n    while True: print('x' * 9999)\n" + UPDATES, "did not end within", "✓"),
    "cannot_write": (
        "def cut(n, k:\n",
        "there is no answer; mine.py, line 1: SyntaxError: '(' was never closed: def cut(n, k:",
        "there is no answer; see cut",
    ),
    "cannot_run": (CUT + UPDATES + "1 / 0", "mine.py cannot be run: ZeroDivisionError", "not right yet: see cut"),
    "help": ("from helper import *\n", "✓", "has no function updates_per_epoch"),
    "reads": ("import helper\nopen('helper.py').close()\n" + CUT + UPDATES, "✓", "✓"),
    "nothing": (None, "there is no answer", "there is no answer"),
}


def notebook(*cells):
    return json.dumps({"cells": [{"cell_type": "code", "source": cell.splitlines(True)} for cell in cells]})


@pytest.fixture(scope="module")
def classroom(tmp_path_factory):
    folder = tmp_path_factory.mktemp("class")
    for student, (text, *_) in CLASS.items():
        (folder / student).mkdir()
        (folder / student / "helper.py").write_text(CUT)
        if text is not None:
            (folder / student / "mine.py").write_text(text)
    (folder / "writes").mkdir()
    cells = (
        "%matplotlib inline\nimport math\nN = 3",
        "1 / 0",
        UPDATES.split("\n")[1],
        "def f(x=measured()): ...",
        'check("updates_per_epoch", x)',
    )
    (folder / "writes" / "07.ipynb").write_text(notebook(*cells, "def cut(n, k): ...", "def broken(:"))
    (folder / "writes" / "._07.ipynb").write_bytes(b"\0\5\x16\7Mac OS X")
    for name in (".hidden", "__MACOSX"):
        (folder / name).mkdir()
    return folder


def contents(folder):
    return {path.relative_to(folder): path.is_file() and path.read_bytes() for path in folder.rglob("*")}


@pytest.fixture(scope="module")
def marks(classroom):
    before = contents(classroom)
    found = list(grade(classroom, NAMES, {"cut": 2.5}, seconds=3))
    assert contents(classroom) == before
    return {rows[0].student: rows for rows in found}


def test_each_student_has_a_row_for_each_exercise(marks):
    assert sorted(marks) == sorted({*CLASS, "writes"})
    assert all([row.exercise for row in rows] == NAMES for rows in marks.values())
    assert all(row.student == student for student, rows in marks.items() for row in rows)


@pytest.mark.parametrize("student", CLASS)
def test_whatever_a_student_hands_in(marks, student):
    for row, expected in zip(marks[student], CLASS[student][1:], strict=False):
        assert expected in row.says
        assert row.passed == row.says.startswith("✓")
        assert row.points == (row.passed and {"cut": 2.5}.get(row.exercise, 1))


def test_a_notebook(marks):
    pytest.importorskip("IPython", reason="IPython is not installed (pip install -e '.[test]')")
    cut, updates, he_std = marks["writes"]
    assert updates.passed and not cut.passed and EXERCISES["cut"].asks in cut.says and "no answer" in he_std.says
    assert "._07" not in he_std.says
    assert cut.notes == ("07.ipynb, cell 7, line 1: SyntaxError: invalid syntax: def broken(:",)


@pytest.mark.long
def test_each_exercise_can_be_answered_in_its_notebook(tmp_path):
    """Above the line that checks it, under the name that is checked there."""
    (tmp_path / "ada").mkdir()
    solutions = {}
    for path in sorted((ROOT / "notebooks" / "solutions").glob("*.py")):
        solutions |= dict.fromkeys(EXERCISES.keys() & names_in(text := path.read_text("utf-8")), text)
    for path in find_notebooks():
        cells = json.loads(path.read_text("utf-8"))["cells"]
        for cell in cells:
            cell["source"] = CHECK.sub(
                lambda found: f"%who\n{solutions[found[1]]}\n{found[2]} = {found[1]}\n{found[0]}",
                "".join(cell["source"]),
            )
        (tmp_path / "ada" / path.name).write_text(json.dumps({"cells": cells}))
    (rows,) = grade(tmp_path)
    assert [row.says for row in rows if not row.passed] == [] and len(rows) == len(EXERCISES)


def test_a_table_of_the_known_cases_is_no_answer():
    """With a seed there are others."""
    table = {(60000, 256, 1): 235, (60000, 256, 8): 30, (60000, 250, 4): 60, (1000, 64, 3): 6, (100, 32, 5): 1}

    def updates_per_epoch(*args):
        return table.get(args, 1)

    for seed, right in ((None, True), (1, False), (2, False)):
        verdict = judge("updates_per_epoch", updates_per_epoch, seed=seed)
        assert verdict.right is right


def test_on_the_command_line(classroom, tmp_path, capsys):
    folder = tmp_path / "class"
    for student in ("cannot_write", "good", "help", "nothing", "writes"):
        shutil.copytree(classroom / student, folder / student)
    table, result, hints = tmp_path / "marks.csv", tmp_path / "marks.json", tmp_path / "hints"
    options = ["--exercises", "cut,he_std", "--points", "he_std=2,cut=3", "--json", str(result), "--hints", str(hints)]
    assert cli.main(["grade", str(folder), "--csv", str(table), *options]) == 0
    out = capsys.readouterr().out
    assert "good: 1 of 2 right, 3 points" in out.splitlines()
    unusable = CLASS["cannot_write"][1].partition("; ")[2]
    assert f"cannot_write: 0 of 2 right, 0 points\n  {unusable}\n" in out and out.count("SyntaxError") == 2
    assert "writes: 0 of 2 right, 0 points\n  07.ipynb, cell 7, line 1: " in out
    with open(table, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["student", "exercise", "passed", "points", "says"]
    assert [(row["student"], row["exercise"], row["passed"], row["points"]) for row in rows[2:-2]] == [
        ("good", "cut", "true", "3"),
        ("good", "he_std", "false", "0"),
        ("help", "cut", "true", "3"),
        ("help", "he_std", "false", "0"),
        ("nothing", "cut", "false", "0"),
        ("nothing", "he_std", "false", "0"),
    ]
    assert [row["passed"] for row in json.loads(result.read_text())][2:-2] == [True, False, True, False, False, False]
    assert [row["says"] for row in rows[:2]] == [
        f"✗ cut: there is no answer; {unusable}",
        "✗ he_std: there is no answer; see cut",
    ]
    assert "✗ he_std: mine.py has no function he_std" in (hints / "help.txt").read_text(encoding="utf-8")
    assert (hints / "cannot_write.txt").read_text(encoding="utf-8").count(unusable) == 1
    assert (hints / "writes.txt").read_text(encoding="utf-8").count("07.ipynb, cell 7, line 1: ") == 1


@pytest.mark.parametrize(
    "folders, options, message",
    [
        ([], [], "has no folders; each student's answers should be in one"),
        (["ada"], [], "nothing to grade: none of the 1 folders"),
        (["ada"], ["--exercises", "rings"], "exercise 'rings' is unknown; .* did you mean ring?"),
        (["ada"], ["--points", "ring=-1"], "points: ring is -1.0; it should be a finite number, at least 0"),
        (["ada"], ["--points", "ring"], "'ring' should be an exercise and its points, such as ring=3"),
        (["ada"], ["--seconds", "0"], "seconds is 0.0; it should be"),
        (["ada"], ["--seed", "-1"], "seed is -1"),
        (["ada"], ["--csv", "ada/marks.csv"], "would be inside FOLDER"),
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


def test_a_folder_that_is_not_there(tmp_path, capsys):
    assert cli.main(["grade", str(tmp_path / "nowhere")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_a_hint_that_cannot_be_written_costs_no_marks(tmp_path, capsys):
    for name in ("ada", "bob"):
        (tmp_path / "class" / name).mkdir(parents=True)
        (tmp_path / "class" / name / "mine.py").write_text(CUT)
    (tmp_path / "hints" / "ada.txt").mkdir(parents=True)
    table = tmp_path / "marks.csv"
    words = ["grade", str(tmp_path / "class"), "--exercises", "cut", "--csv", str(table)]
    assert cli.main([*words, "--hints", str(tmp_path / "hints")]) == 2
    error = capsys.readouterr().err
    assert error == f"d2lmgpu grade: error: cannot write {tmp_path / 'hints' / 'ada.txt'}: Is a directory\n"
    assert [line.partition(",")[0] for line in table.read_text().splitlines()[1:]] == ["ada", "bob"]
    assert (tmp_path / "hints" / "bob.txt").read_text(encoding="utf-8").startswith("✓ cut")


@pytest.mark.parametrize("signum", [signal.SIGTERM, *long(signal.SIGHUP, signal.SIGINT)])
def test_a_signal_keeps_what_was_done_and_ends_the_answer(tmp_path, signum):
    table = tmp_path / "marks.csv"
    for name, text in {"ada": CUT, "eve": "def cut(n, k):\n    while True: pass\n"}.items():
        (tmp_path / "class" / name).mkdir(parents=True)
        (tmp_path / "class" / name / "mine.py").write_text(text)
    command = [sys.executable, "-um", "d2lmgpu", "grade", str(tmp_path / "class"), "--csv", str(table)]
    former = signal.signal(signum, signal.SIG_DFL if signum != signal.SIGINT else signal.default_int_handler)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([*command, "--exercises", "cut", "--seconds", "500"], **streams)
    signal.signal(signum, former)
    assert process.stdout.readline() == "ada: 1 of 1 right, 1 points\n"
    own, stop = psutil.Process(process.pid), time.monotonic() + 60
    while not (answers := own.children()) or answers[0].cpu_times().user < 0.1:  # it has begun
        assert time.monotonic() < stop
        time.sleep(0.05)
    process.send_signal(signum)
    message = "d2lmgpu grade: interrupted; the marks of 1 student are written\n"
    assert process.communicate(timeout=60)[1] == message and process.returncode == 128 + signum
    assert [line.split(",")[0] for line in table.read_text().splitlines()] == ["student", "ada"]
    assert not psutil.wait_procs(answers, 60)[1]


def test_what_a_file_defines():
    assert names_in("import a as c\nfrom d import e as f\ng = h = lambda: 1\nfor i in []: j = 1") == set("cfghij")
    assert names_in("def f(x):\n    cut = x\n    def ring(): ...\nclass C:\n    buckets = 3") == {"f", "C"}
    assert "*" in names_in("from a import *")
    with pytest.raises(SyntaxError):
        names_in("(" * 9999)


def test_other_things_are_no_answers(tmp_path):
    for name in ("made", "ada/mine.py", "ada/x.ipynb"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "ada" / "y.ipynb").write_text("[" * 99999)
    files, unusable = find_answers(tmp_path / "ada", NAMES, tmp_path / "made")
    assert files == {} and unusable == [
        "x.ipynb: Is a directory",
        "y.ipynb: this is not a notebook",
        "mine.py: Is a directory",
    ]
    assert not list((tmp_path / "made").iterdir())
