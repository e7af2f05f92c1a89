"""The course's exercises: solutions pass, typical wrong answers are rejected, each with a hint of its own."""

import inspect
import json
import math
import re
import runpy
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import right_answers

import d2lmgpu as d2l
from d2lmgpu import cli
from d2lmgpu.collectives import invent
from d2lmgpu.exercises import EXERCISES, check, compare, faulty, judge, save_data, setting
from d2lmgpu.exercises.checking import TOPICS

ROOT = Path(__file__).resolve().parents[1]


def functions(folder):
    """All functions of the Python files in a folder, by name, without those of the files' own (_...)."""
    found = {}
    for file in sorted(folder.glob("*.py")):
        names = runpy.run_path(str(file))
        mine = {name: value for name, value in names.items() if getattr(value, "__module__", None) == "<run_path>"}
        mine = {name: value for name, value in mine.items() if not name.startswith("_")}  # what several of them use
        assert not found.keys() & mine.keys()
        found |= mine
    return found


SOLUTIONS = functions(ROOT / "notebooks" / "solutions")
WRONG_ANSWERS = functions(ROOT / "tests" / "wrong_answers")
RIGHT_ANSWERS = {name: value for name, value in vars(right_answers).items() if name.partition("__")[0] in EXERCISES}


@pytest.mark.parametrize("name", EXERCISES)
def test_the_solution_is_right(name, capsys):
    assert check(name, SOLUTIONS[name])
    assert capsys.readouterr().out.startswith(f"✓ {name}: ")


@pytest.mark.parametrize("full_name", RIGHT_ANSWERS)
def test_other_answers_are_right_too(full_name):
    name, _, _ = full_name.partition("__")
    verdict = judge(name, RIGHT_ANSWERS[full_name])
    assert verdict.right, verdict.says


@pytest.mark.parametrize("full_name", WRONG_ANSWERS)
def test_a_wrong_answer_gets_its_hint(full_name):
    """The docstring of a wrong answer is a part of what should be said."""
    name, _, _ = full_name.partition("__")
    verdict = judge(name, WRONG_ANSWERS[full_name])
    assert not verdict.right and verdict.says.startswith(f"✗ {name}: ")
    assert WRONG_ANSWERS[full_name].__doc__ in verdict.says


@pytest.mark.parametrize("name", EXERCISES)
def test_an_empty_answer_gets_the_question(name, capsys):
    for nothing in (None, lambda *args: None, lambda *args: ...):
        assert not check(name, nothing)
    assert not check(name, 3)
    assert capsys.readouterr().out.count(EXERCISES[name].asks) == 4


@pytest.mark.parametrize("name", EXERCISES)
def test_an_odd_result_gets_a_hint(name):
    for odd in (True, -1, 1j, math.nan, 10**400, "gpu(0)", [], {}, [None, {}], object(), np.full((2, 3), "a"), len):
        right, says = judge(name, lambda *args, odd=odd: odd)
        assert not right and says.startswith(f"✗ {name}: ") and len(says) < 1200
        assert ("\n  Hint: " in says or EXERCISES[name].asks in says) and "the check of what" not in says


@pytest.mark.parametrize("name", TOPICS[11 - 1])
def test_the_notebook_shows_the_fault_that_it_measured(name):
    parts = [json.loads(path.read_text(encoding="utf-8")) for path in (ROOT / "notebooks").glob("11*.ipynb")]
    cells = ["".join(cell["source"]) for notebook in parts for cell in notebook["cells"]]
    assert len([source for source in cells if source.startswith(inspect.getsource(getattr(faulty, name)))]) == 1
    assert not judge(name, getattr(faulty, name)).right


@pytest.mark.parametrize("name", ["torus_allreduce", "line_allreduce"])
def test_a_right_answer_is_told_its_time_beside_others(name):
    """What the check says of `invent` is what that finds."""
    exercise, n = EXERCISES[name], 40_000_000
    found = invent(exercise.network, n)
    assert found.name == "invented" and found.seconds == pytest.approx(exercise.invented, rel=1e-3)
    both = found.considered["both rings along"]
    _, said = judge(name, SOLUTIONS[name]).says.split("\n  ")
    others = f"both rings along the wires {1e3 * both:.4g}; invented {1e3 * found.seconds:.4g}"
    assert f"{others}; no schedule can beat {1e3 * found.bound:.4g}." in said
    yours = float(re.search(r"Yours: ([\d.]+) ms simulated", said)[1]) / 1e3
    assert found.bound < yours < 1.1 * found.bound and yours < found.seconds < both


@pytest.mark.threads
def test_threads_may_wait_for_a_device_each():
    """Calls that wait, each on a thread of its own, are devices that compute at the same time."""

    def train_batch(X, y, device_params, devices, lr):
        X_shards, y_shards = d2l.split_batch(X, y, devices)

        def compute(arguments):
            meet.wait()
            return d2l.loss_and_grads(*arguments)

        with ThreadPoolExecutor(len(devices)) as threads:
            meet = threading.Barrier(len(devices))  # or one thread might be free for the next device's, too
            results = list(threads.map(compute, zip(X_shards, y_shards, device_params, strict=True)))
        for grads in zip(*(grads for _, grads in results), strict=True):
            d2l.allreduce(list(grads))
        for params, (_, grads) in zip(device_params, results, strict=True):
            d2l.sgd(params, grads, lr, len(y))
        return sum(float(loss) for loss, _ in results)

    verdict = judge("train_batch", train_batch)
    assert verdict.right, verdict.says


def test_an_exercise_that_there_is_not():
    with pytest.raises(ValueError, match="exercise 'alreduce' is unknown; choose from .*split_batch, "):
        check("alreduce")


@pytest.mark.threads
def test_on_the_command_line(tmp_path, capsys):
    verdict = tmp_path / "verdict.json"
    solutions = next((ROOT / "notebooks" / "solutions").glob("04_*.py"))
    assert cli.main(["check", "allreduce", str(solutions), "--json", str(verdict)]) == 0
    assert json.loads(verdict.read_text())["right"] is True
    assert "✓ allreduce" in capsys.readouterr().out
    assert cli.main(["check"]) == 0
    assert capsys.readouterr().out.count("\n") == len(EXERCISES)
    assert cli.main(["check", "allreduce"]) == 0
    assert capsys.readouterr().out == EXERCISES["allreduce"].asks + "\n"


def test_settings_and_predictions(monkeypatch, capsys):
    monkeypatch.delenv("D2LMGPU_QUICK", raising=False)
    assert setting(10, quick=1) == 10
    monkeypatch.setenv("D2LMGPU_QUICK", "1")
    assert setting(10, quick=1) == 1
    compare("step", 2, 1.5, " ms")
    compare("step", None, 1.5, " ms")
    compare("parameters", 129068.0, 129068)
    compare("bytes", 1e6, 0.0123456)
    compare("messages", 1, float("inf"))
    compare("mistakes", 0, 0)
    compare("waits", 0, 3)
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "step: predicted 2 ms, measured 1.5 ms: 0.75 times what was predicted."
    assert out[1] == "step: measured 1.5 ms."
    assert out[2] == "parameters: predicted 129,068, measured 129,068: as predicted."
    assert out[3] == "bytes: predicted 1,000,000, measured 0.01235: 1.2e-08 times what was predicted."
    assert out[4] == "messages: predicted 1, measured inf: inf times what was predicted."
    assert out[5] == "mistakes: predicted 0, measured 0: as predicted."
    assert out[6] == "waits: predicted 0, measured 3: not what was predicted."


def test_data_of_figures_are_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("D2LMGPU_QUICK", "1")
    save_data("05_x", {"seconds": [1.5]})
    assert not list(tmp_path.iterdir())
    monkeypatch.delenv("D2LMGPU_QUICK")
    save_data("05_x", {"seconds": [1.5]})
    assert json.loads((tmp_path / "data" / "05_x.json").read_text()) == {"seconds": [1.5]}
