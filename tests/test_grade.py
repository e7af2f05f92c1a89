"""Marks for many students: whatever their answers do, each gets a row, and nobody's folder changes."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

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
DELETES = """import os, pathlib, shutil
for folder in (".", "..", pathlib.Path.home(), pathlib.Path(__file__).parent):
    shutil.rmtree(folder, ignore_errors=True)
"""
CLASS = {  # of each student: mine.py, and what should be said of cut, and of updates_per_epoch
    "good": (CUT + UPDATES, "✓ cut", "✓ updates_per_epoch"),
    "hangs": ("import time; time.sleep(99)\n" + CUT, "did not end within", "no answer"),
    "hangs_here": (
        CUT.replace("    return", "    import time; time.sleep(99)\n    return") + UPDATES,
        "did not end",
        "✓",
    ),
    "leaves": ("import os\ndef cut(n, k): os._exit(0)\n" + UPDATES, "your answer ended with exit code 0", "✓"),
    "prints": ("def cut(n, k):\n    while True: print('x' * 9999)\n" + UPDATES, "did not end within", "✓"),
    "deletes": (DELETES + CUT + UPDATES, "✓", "✓"),
    "kills": ("import os\nos.kill(os.getppid(), 9)\n" + CUT + UPDATES, "ended the program", "ended the program"),
    "forks": ("import os\nfor _ in range(3): os.fork()\n" + CUT + UPDATES, "✓", "✓"),
    "hoards": ("def cut(n, k): return [bytes(2**24) for _ in range(9999)]\n" + UPDATES, "MemoryError", "✓"),
    "cannot_write": (
        "def cut(n, k:\n",
        "there is no answer; mine.py, line 1: SyntaxError: '(' was never closed: def cut(n, k:",
        "there is no answer; see cut",
    ),
    "cannot_run": (CUT + UPDATES + "1 / 0", "mine.py cannot be run: ZeroDivisionError", "not right yet: see cut"),
    "help": ("from helper import *\n", "✓", "has no function updates_per_epoch"),
    "shared": ("import helper\nopen('left', 'x').close()\n" + CUT + UPDATES, "✓", "✓"),
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
    (folder / "writes" / "data").mkdir()
    (folder / "writes" / "data" / "train-images-idx3-ubyte.gz").write_text("30 MB, which nobody copies for each answer")
    (folder / "writes" / "07.ipynb").write_text(notebook(*cells, "def cut(n, k): ...", "def broken(:"))
    (folder / "writes" / "._07.ipynb").write_bytes(b"\0\5\x16\7Mac OS X")
    for name in (".hidden", "__MACOSX"):
        (folder / name).mkdir()
    return folder


def contents(folder):
    return {path.relative_to(folder): path.is_file() and path.read_bytes() for path in folder.rglob("*")}


@pytest.fixture(scope="module")
def marks(classroom):
    """Some eight seconds: answers that hang are ended after three, a few at a time."""
    before = contents(classroom)
    found = list(grade(classroom, NAMES, {"cut": 2.5}, seconds=3, student_seconds=60))
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
    assert len(marks[student][0].output) < 5000


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


@pytest.mark.long
@pytest.mark.timing
def test_the_time_of_a_student_is_limited(tmp_path):
    """Also where everything hangs, and where the time is over before the last answer."""
    (tmp_path / "ada").mkdir()
    hangs = [f"def {name}(*args):\n    while True: pass\n" for name in EXERCISES]
    (tmp_path / "ada" / "mine.py").write_text("".join(hangs))
    list(grade(tmp_path, ["cut"], seconds=0.1))  # until Python has started
    begin = time.monotonic()
    (rows,) = grade(tmp_path, seconds=0.5, student_seconds=1.2)
    assert time.monotonic() - begin < 60  # of 40 answers, each of which would take its half a second and more
    assert len(rows) == len(EXERCISES) and not any(row.passed for row in rows)
    assert "did not end within 0.5 seconds" in rows[0].says
    assert "the 1.2 seconds for all answers were used up before it" in rows[-1].says


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
    assert "✗ he_std: not right yet: " in (hints / "help.txt").read_text(encoding="utf-8")
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
        (["ada"], ["--seconds", "0"], "a limit of 0.0 seconds"),
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


def test_where_nothing_can_be_forked(tmp_path, monkeypatch):
    """Python starts anew for each answer."""
    monkeypatch.delattr(os, "fork")
    (tmp_path / "ada").mkdir()
    (tmp_path / "ada" / "mine.py").write_text("open('left', 'x').close()\n" + CUT)
    ((cut, updates),) = grade(tmp_path, ["cut", "updates_per_epoch"], seed=3)
    assert cut.passed and not updates.passed
    assert [path.name for path in (tmp_path / "ada").iterdir()] == ["mine.py"]


@pytest.mark.long
def test_ctrl_c_ends_all_of_it(tmp_path):
    (tmp_path / "ada").mkdir()
    (tmp_path / "ada" / "mine.py").write_text("print('begun')\ndef cut(n, k):\n    while True: pass\n")
    command = [sys.executable, "-m", "d2lmgpu", "grade", str(tmp_path), "--seconds", "600"]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    signal.signal(signal.SIGINT, before)
    own = psutil.Process(process.pid)
    stop = time.monotonic() + 60
    while len(family := own.children(recursive=True)) < 2:  # the warmed-up process, and that of the answer
        assert time.monotonic() < stop
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[1] == "d2lmgpu grade: interrupted, no result was written\n"
    assert process.returncode == 130
    assert not psutil.wait_procs(family, 60)[1]


def test_what_a_file_defines():
    assert names_in("import a as c\nfrom d import e as f\ng = h = lambda: 1\nfor i in []: j = 1") == set("cfghij")
    assert names_in("def f(x):\n    cut = x\n    def ring(): ...\nclass C:\n    buckets = 3") == {"f", "C"}
    assert "*" in names_in("from a import *")
    with pytest.raises(SyntaxError):
        names_in("(" * 9999)


def test_links_and_other_things_are_no_answers(tmp_path):
    """A link may lead to somebody else's folder."""
    (tmp_path / "other.py").write_text(CUT)
    (tmp_path / "made").mkdir()
    (tmp_path / "ada").mkdir()
    (tmp_path / "ada" / "mine.py").symlink_to(tmp_path / "other.py")
    (tmp_path / "ada" / "x.ipynb").mkdir()
    (tmp_path / "ada" / "y.ipynb").write_text("[" * 99999)
    files, unusable = find_answers(tmp_path / "ada", NAMES, tmp_path / "made")
    assert files == {} and unusable == [
        "x.ipynb: this is not a file",
        "y.ipynb: this is not a notebook",
        "mine.py: this is a link; hand in the file itself",
    ]
    assert not list((tmp_path / "made").iterdir())
