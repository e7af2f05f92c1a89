"""A student's copy of the course: nothing is overwritten, predictions and answers are kept, answers stay folded."""

import itertools
import json
import os
import re
import runpy
import subprocess
import sys
import types
from pathlib import Path

import pytest
from test_exercises import SOLUTIONS

from d2lmgpu import cli
from d2lmgpu.collectives import ALGORITHMS
from d2lmgpu.exercises import (
    EXERCISES,
    add_to_mine,
    begin,
    check,
    compare,
    course,
    judge,
    my_framework,
)
from d2lmgpu.exercises.checking import TOPICS
from d2lmgpu.exercises.course import copy_course, find_notebooks
from d2lmgpu.exercises.student_file import BLOCK, CORE, keep_answer, source_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("copy") / "mine"
    assert len(copy_course(folder)["written"]) == len(find_notebooks()) + 5
    return folder


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """A notebook of a copy, which is this process's current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(course, "_begun", [])
    begin()
    return tmp_path


def kept(text):
    """The names of the answers in mine.py."""
    return {block[1] for block in BLOCK.finditer(text)}


def cells_of(path):
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def test_a_copy_has_no_outputs_and_what_it_needs(copy):
    for path in find_notebooks():
        cells, own = cells_of(path), cells_of(copy / path.name)
        assert [cell["cell_type"] for cell in own[2:]] == [cell["cell_type"] for cell in cells[1:]]
        code = [cell for cell in own if cell["cell_type"] == "code"]
        assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
        assert len({cell["id"] for cell in own}) == len(own)
        assert "begin()" in "".join(own[1]["source"])
        assert "](../" not in (copy / path.name).read_text(encoding="utf-8")
    assert not list(copy.rglob("solutions")) and not list(copy.rglob("*.json"))
    assert runpy.run_path(str(copy / "mine.py"))["__doc__"].startswith("My own framework")


def test_a_second_copy_overwrites_nothing(copy, tmp_path, capsys):
    folder, result = tmp_path / "mine", tmp_path / "done.json"
    folder.mkdir()
    (folder / "mine.py").write_text("my work")
    (folder / "05_training_on_k_devices.ipynb").symlink_to("nowhere")
    assert cli.main(["course", str(folder), "--no-data", "--json", str(result)]) == 0
    out = capsys.readouterr().out
    new = len(find_notebooks()) - 1  # and mine.py, of which two were there
    assert f"{new} new files, 2 existing files not changed\n  05_training_on_k_devices.ipynb\n  mine.py\n" in out
    assert (folder / "mine.py").read_text() == "my work" and not (folder / "nowhere").exists()
    assert json.loads(result.read_text())["kept"] == ["05_training_on_k_devices.ipynb", "mine.py"]
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    assert copy_course(copy)["written"] == []
    assert before == {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}


@pytest.mark.parametrize("folder, message", [("file", "ile"), ("", "should be the name of a file")])
def test_where_there_can_be_no_copy(tmp_path, monkeypatch, capsys, folder, message):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    try:
        code = cli.main(["course", folder, "--no-data"])
    except SystemExit as end:  # argparse
        code = end.code
    assert code == 2
    assert message in capsys.readouterr().err
    with pytest.raises(ValueError, match="has the course's own notebooks; give another folder"):
        copy_course(find_notebooks()[0].parent)


# Predictions


def test_an_answer_stays_folded_until_there_is_a_prediction_or_a_second_run(begun, capsys):
    for predicted, says in (
        (None, r"step: the answer is hidden\. [^1]*"),
        (3, r"step: predicted 3 ms, measured 1\.5 ms: 0\.5 times what was predicted\.\nrounds: 1\.4, 1\.6\n"),
        (..., r"step: measured 1\.5 ms\.\nrounds: 1\.4, 1\.6\n"),
    ):
        compare("step", predicted, 1.5, " ms", details="rounds: 1.4, 1.6")
        assert re.fullmatch(says, capsys.readouterr().out)


@pytest.mark.parametrize(
    "predicted, found, says",
    [
        (2, 1.5, "predicted 2 ms, measured 1.5 ms: 0.75 times what was predicted."),
        (129068.0, 129068, "predicted 129,068 ms, measured 129,068 ms: as predicted."),
        (1e6, 0.0123456, "predicted 1,000,000 ms, measured 0.01235 ms: 1.2e-08 times what was predicted."),
        (0, 0, "predicted 0 ms, measured 0 ms: as predicted."),
        (0, 3, "predicted 0 ms, measured 3 ms: not what was predicted."),
    ],
)
def test_a_comparison_in_words(predicted, found, says, capsys):
    compare("step", predicted, found, " ms")
    assert capsys.readouterr().out == f"step: {says}\n"


def test_elsewhere_nothing_is_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(course, "_begun", [])
    compare("step", None, 1.5, how="simulated")
    assert capsys.readouterr().out == "step: simulated 1.5.\n"
    with pytest.raises(ValueError, match="compare: how is 'guessed'|compare: how 'guessed'"):
        compare("step", None, 1.5, how="guessed")
    assert check("cut", SOLUTIONS["cut"]) and not list(tmp_path.iterdir())


# Answers in mine.py


def test_answers_that_passed_are_a_framework(begun, capsys):
    """All solutions together, in one file: each is right on its own, and what they need has come with them."""
    file = begun / "mine.py"
    file.write_text("# my own text\n")
    assert check("cut", SOLUTIONS["cut"]) and capsys.readouterr().out.endswith("\n  Kept in mine.py.\n")
    for name in EXERCISES:
        assert keep_answer(name, SOLUTIONS[name], file) == (name != "cut")
    text = file.read_text(encoding="utf-8")
    assert text.startswith("# my own text\n") and kept(text) == set(EXERCISES)
    mine = runpy.run_path(str(file))
    for name in EXERCISES:
        verdict = judge(name, mine[name])
        assert verdict.right, verdict.says
    assert check("ring", SOLUTIONS["ring"]) and file.read_text(encoding="utf-8") == text


FIRST = """import math as m
N = 2
def helper(x, times=m.pi):
    return m.ceil(x)
def he_std(shape):
    return [helper(i) + N for i in shape]
"""


@pytest.fixture
def cells(tmp_path):
    """A function: what a text defines, as a module whose source can be had."""

    def make(text, name="cells"):
        (tmp_path / f"{name}.py").write_text(text)
        module = types.ModuleType(name)
        module.__file__ = str(tmp_path / f"{name}.py")
        sys.modules[name] = module
        exec(compile(text, module.__file__, "exec"), vars(module))
        return module

    yield make
    for name in [name for name in sys.modules if re.fullmatch(r"cells\d*", name)]:
        del sys.modules[name]


def test_another_version_replaces_the_earlier_one_and_nothing_else(tmp_path, cells):
    file = tmp_path / "mine.py"
    file.write_text("# é\nx = 1", encoding="utf-8")
    assert keep_answer("he_std", cells(FIRST).he_std, file) and not keep_answer("he_std", cells(FIRST).he_std, file)
    assert keep_answer("cut", SOLUTIONS["cut"], file)
    with open(file, "a") as more:
        more.write("\ny = he_std((1.5, 2))\n")
    assert keep_answer("he_std", cells("def he_std(shape):\n    return 'new'\n", "cells2").he_std, file)
    text = file.read_text(encoding="utf-8")
    assert text.startswith("# é\nx = 1\n") and text.endswith("\ny = he_std((1.5, 2))\n") and "helper" not in text
    assert runpy.run_path(str(file))["y"] == "new"
    assert text.count("he_std: kept by check") == 1 and kept(text) == {"he_std", "cut"}


def test_what_was_there_is_kept_aside_at_each_replacement(tmp_path, cells, capsys):
    """Also of an answer that has lost its last line, after which the new version comes last, where Python takes it."""
    file = tmp_path / "mine.py"
    file.write_text("# --- cut: kept by check ---\ndef cut(n, k): return 7\nown = 3")
    contents = []
    for i in range(4):
        assert keep_answer("cut", cells(f"def cut(n, k):\n# --- mine ---\n    return {i}\n", f"cells{i}").cut, file)
        assert (f"(mine.py as it was: mine.py.before-{i})" in capsys.readouterr().out) == (i > 0)
        contents.append(file.read_bytes())
        names = runpy.run_path(str(file))
        assert names["cut"](1, 1) == i and names["own"] == 3
    asides = sorted(tmp_path.glob("mine.py.before-*"))
    assert [path.read_bytes() for path in asides] == contents[:-1]


def test_what_an_answer_uses_comes_with_it(tmp_path, cells):
    names = {}
    source = source_of("he_std", cells(FIRST).he_std)
    exec(source, names)
    assert names["he_std"]((1.5, 2)) == [4, 4] and source.startswith("import math as m\n")
    source = source_of("ring", SOLUTIONS["ring"])
    assert "from d2lmgpu.collectives import Transfer" in source.split("def ")[0]
    kept = source_of("he_std", cells("def cut(): pass\ndef he_std(shape): return cut()\n").he_std, {"cut"})
    assert "def cut" not in kept
    named = source_of("he_std", cells("def mine(shape): return mine\n").mine)
    assert named.rstrip().endswith("he_std = mine")


@pytest.mark.parametrize(
    "text, message",
    [
        ("he_std = lambda shape: 1", "only functions defined with def"),
        ("class he_std: pass", "only functions defined with def"),
        ("import numpy as np\ntable = np.ones(3)\ndef he_std(shape): return table", "uses table, a ndarray of the"),
        (
            "def outer(x):\n    def he_std(shape): return x\n    return he_std\nhe_std = outer(1)",
            "the function in which it is defined",
        ),
    ],
)
def test_what_cannot_be_kept(tmp_path, cells, text, message):
    with pytest.raises(ValueError, match=message):
        keep_answer("he_std", cells(text).he_std, tmp_path / "mine.py")
    assert not (tmp_path / "mine.py").exists()


def test_who_cannot_keep_an_answer_says_so(begun, capsys):
    (begun / "mine.py").write_bytes(b"\xff")
    assert check("cut", SOLUTIONS["cut"])
    assert "\n  Not kept in mine.py: 'utf-8' codec" in capsys.readouterr().out
    assert (begun / "mine.py").read_bytes() == b"\xff"
    (begun / "mine.py").unlink()
    names = {}
    exec("def cut(n, k):\n    return [(i * n // k, (i + 1) * n // k) for i in range(k)]", names)
    assert check("cut", names["cut"])
    assert "\n  Not kept in mine.py: could not get source code.\n" in capsys.readouterr().out
    assert not (begun / "mine.py").exists()


# A framework of one's own


def check_cells(folder):
    """The cells of a copy's notebooks that check answers of the core path, with the solutions filled in."""
    texts, names = [], []
    for path in sorted(folder.glob("*.ipynb")):
        for cell in cells_of(path):
            text = "".join(cell["source"])
            for name in re.findall(r"^check\(\"(\w+)\", \1\)", text, re.MULTILINE):
                if name in CORE:
                    solution = source_of(name, SOLUTIONS[name])
                    stub = re.compile(rf"^def {name}\(.*?(?=^check\()", re.MULTILINE | re.DOTALL)
                    text, count = stub.subn(lambda _, solution=solution: solution, text)
                    assert count == 1, f"{path.name}: where is the stub of {name}?"
                    names.append(name)
                    texts.append(text)
    assert sorted(names) == sorted(CORE)
    return "from d2lmgpu.exercises import begin, check\n\nbegin()\n\n\n" + "\n\n\n".join(texts)


def run_in(folder, name, text):
    """Run a program in a student's copy; returns what it printed."""
    (folder / f"{name}.py").write_text(text, encoding="utf-8")
    known = {**os.environ, "D2LMGPU_QUICK": "1", "MPLBACKEND": "Agg"}
    known["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, f"{name}.py"]
    done = subprocess.run(command, cwd=folder, env=known, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


TRAIN = """
import numpy as np

import d2lmgpu as d2l
from d2lmgpu.collectives import prove
from mine import ring, train

for k in (1, 2, 3, 5, 8):
    for n in (1, 7, 1000, 129_068):
        prove(ring(k, n), k, n)
X, y, *_ = d2l.load_fashion_mnist()
ends = {}
for k in (1, 2, 3):
    replicas, losses, rate = train([d2l.cpu(i) for i in range(k)], X[:200], y[:200], epochs=1, dtype="float64")
    assert len(replicas) == k and len(losses) == 1 and rate > 0
    assert all(np.array_equal(a, b) for replica in replicas for a, b in zip(replica, replicas[0], strict=True))
    assert all(param.dtype == "float64" for param in replicas[0])
    ends[k] = replicas[0]
start = d2l.init_params(seed=0, init="he")
assert all(np.abs(a - b).max() > 1e-3 for a, b in zip(ends[1], start, strict=True)), "it has learned something"
for k in (2, 3):
    assert max(np.abs(a - b).max() for a, b in zip(ends[1], ends[k], strict=True)) < 1e-12, k
"""


@pytest.mark.long
def test_who_has_done_the_core_path_owns_a_framework(tmp_path):
    """Solutions filled in, check cells run, the last notebook run: mine.py trains on 1, 2 and 3 devices by its ring.

    Replicas agree to the last bit. One device and several agree to 1e-12 in double precision, after four steps, which
    leaves no room for a mistake.
    """
    copy_course(tmp_path)
    printed = run_in(tmp_path, "core", check_cells(tmp_path))
    assert printed.count("Kept in mine.py.") == len(CORE) and "✗" not in printed
    cells = cells_of(tmp_path / "06c_your_own_framework.ipynb")
    code = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    printed = run_in(tmp_path, "last", code.replace("%matplotlib inline", ""))
    for name in ("exchange", "on_all", "update", "train_step", "pack", "flat", "train"):
        assert f"\n{name}: kept in mine.py.\n" in printed
    assert len(re.findall(r"^\w+ +yours$", printed, re.MULTILINE)) == len(CORE)
    assert f"\n{len(CORE)} of the core path's {len(CORE)} answers are there\n" in printed
    lines = int(re.search(r"^(\d+) lines, without empty ones$", printed, re.MULTILINE)[1])
    assert 100 < lines < 250
    run_in(tmp_path, "train_by_mine", TRAIN)


def test_without_answers_the_librarys_stand_in(begun, capsys):
    own = my_framework()
    assert set(own.whose) == set(CORE) and set(own.use) <= set(CORE) and own.answers == {} and own.lines == 0
    assert own.use["ring"] is ALGORITHMS["ring"]
    assert {own.whose[name] for name in own.use} == {"missing; the library's is used"}
    # the other stand-ins are right, but nobody's answer
    for name in own.use.keys() - {"ring", "split_batch", "allreduce", "train_batch"}:
        verdict = judge(name, own.use[name])
        assert "all right, but it is the library's own" in verdict.says, verdict.says
    (begun / "mine.py").write_text("def ring(k, n):\n    return []\n\n\ndef sum_on(arrays, device):\n    return 1\n")
    own = my_framework()
    assert own.use["ring"] is ALGORITHMS["ring"] and own.whose["ring"] == "not right; the library's is used"
    assert "✗ sum_on: " in (said := capsys.readouterr().out) and "✗ ring: " in said
    (begun / "mine.py").write_text("def ring(k, n):\n")
    with pytest.raises(ValueError, match=r"mine.py cannot be run: \w+Error: .*; mend it"):
        my_framework()


def test_what_goes_into_mine(begun, cells, capsys):
    keep_answer("split_batch", SOLUTIONS["split_batch"], begun / "mine.py")
    own = my_framework()
    with pytest.raises(ValueError, match=r"add_to_mine: ring is an exercise; check\('ring', ring\) keeps a right"):
        add_to_mine(SOLUTIONS["ring"])
    twice = cells("def twice(x):\n    return 2 * x\n").twice
    assert add_to_mine(twice, lambda x: x) is True and my_framework().lines > own.lines + 2
    said = capsys.readouterr().out
    assert "twice: kept in mine.py.\n<lambda>: not kept in mine.py: only functions defined with def" in said
    assert runpy.run_path(str(begun / "mine.py"))["twice"](4) == 8
    text = (begun / "mine.py").read_bytes()
    (begun / "mine.py").write_bytes(b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n"))  # as some editors write it
    assert my_framework().whose["split_batch"] == "yours"


def test_in_the_repository_solutions_are_put_to_work(monkeypatch):
    monkeypatch.setattr(course, "_begun", [])
    own = my_framework()
    assert set(own.whose.values()) == {"the course's solution"} and set(own.answers) == set(CORE)
    assert add_to_mine(lambda: None) is False


def test_the_paths_for_teachers():
    """Points of a path are the exercises of its notebooks, and each path goes on from the one before."""
    page = (ROOT / "docs" / "teaching.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \d+ weeks? \| ([\d, ]+) \| (\d+) \|", page, re.MULTILINE)
    paths = [[int(number) for number in numbers.split(", ")] for numbers, _ in rows]
    assert len(paths) == 4 and paths[0] == sorted(set(CORE.values())) and paths[-1] == [*range(1, len(TOPICS) + 1)]
    assert all(set(path) < set(longer) for path, longer in itertools.pairwise(paths))
    for path, (_, points) in zip(paths, rows, strict=True):
        assert int(points) == sum(len(TOPICS[number - 1]) for number in path)
