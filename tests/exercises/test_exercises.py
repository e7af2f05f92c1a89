"""The course's exercises: solutions pass, typical wrong answers are rejected, each with a hint of its own."""

import inspect
import json
import math
import re
import runpy
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import right_answers
from library_answers import ACCEPTED, REFUSED

import d2lmgpu as d2l
from d2lmgpu.collectives import invent
from d2lmgpu.exercises import EXERCISES, check, faulty, judge, save_data, setting
from d2lmgpu.exercises.checking import TOPICS

ROOT = Path(__file__).resolve().parents[2]


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
WRONG_ANSWERS = functions(Path(__file__).with_name("wrong_answers"))


def answers_to(name, answers):
    """Those whose names begin with that of the exercise."""
    return {key: answer for key, answer in answers.items() if key.partition("__")[0] == name and callable(answer)}


@pytest.mark.parametrize("name", EXERCISES)
def test_right_answers(name, capsys):
    """The solution, answers in other forms and ways, and one that uses the library for a part of the work."""
    assert check(name, SOLUTIONS[name])
    assert capsys.readouterr().out.startswith(f"✓ {name}: ")
    others = answers_to(name, vars(right_answers)) | answers_to(name, ACCEPTED)
    for key, answer in others.items():
        verdict = judge(name, answer)
        assert verdict.right, (key, verdict.says)


@pytest.mark.parametrize("name", EXERCISES)
def test_a_wrong_answer_gets_its_hint(name):
    """The docstring of a wrong answer is a part of what should be said."""
    wrong = answers_to(name, WRONG_ANSWERS)
    assert wrong
    for key, answer in wrong.items():
        verdict = judge(name, answer)
        assert not verdict.right and verdict.says.startswith(f"✗ {name}: "), key
        assert answer.__doc__ in verdict.says, (key, verdict.says)


@pytest.mark.parametrize("name", EXERCISES)
def test_an_empty_or_odd_answer_gets_the_question_or_a_hint(name, capsys):
    for nothing in (None, lambda *args: None, lambda *args: ..., 3):
        assert not check(name, nothing)
    assert capsys.readouterr().out.count(EXERCISES[name].asks) == 4
    for odd in (True, -1, 1j, math.nan, 10**400, "gpu(0)", [], {}, [None, {}], object(), np.full((2, 3), "a"), len):
        right, says = judge(name, lambda *args, odd=odd: odd)
        assert not right and says.startswith(f"✗ {name}: ") and len(says) < 1200, odd
        assert ("\n  Hint: " in says or EXERCISES[name].asks in says) and "the check of what" not in says, odd


@pytest.mark.parametrize("name", REFUSED)
def test_the_librarys_own_function_is_no_answer(name):
    for what, answer in REFUSED[name].items():
        verdict = judge(name, lambda *args, answer=answer: answer(*args))
        assert not verdict.right and "right, but it is the library's own d2lmgpu." in verdict.says, (what, verdict.says)
        assert "\n  Hint: write it yourself: an answer may use the library, but no" in verdict.says


def test_the_checks_own_results_are_no_answer():
    for name in EXERCISES:
        right = EXERCISES[name].right
        assert not judge(name, lambda *args, right=right: right(*args)).right, name


class Late(list):
    """What it does, it does when somebody looks at it."""

    def __iter__(self):
        raise ZeroDivisionError("no")


def returns_what_raises(k, n):
    return Late()


def says_too_much(k, n):
    raise ValueError("\ud800" * 10**6)


@pytest.mark.parametrize(
    "answer, message",
    [
        (returns_what_raises, "your answer, or the check of what it returned, raised ZeroDivisionError: no\n"),
        (says_too_much, "ring(2, 4): it raised ValueError: \\ud800"),
    ],
)
def test_what_else_a_function_does(capsys, answer, message):
    assert not check("ring", answer)
    out = capsys.readouterr().out
    assert message in out and len(out) < 4000


@pytest.mark.threads
def test_an_interrupt_is_the_persons():
    def interrupted(k, n):
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        check("ring", interrupted)


@pytest.mark.parametrize("name", TOPICS[11 - 1])
def test_the_notebook_shows_the_fault_that_it_measured(name):
    parts = [json.loads(path.read_text(encoding="utf-8")) for path in (ROOT / "notebooks").glob("11*.ipynb")]
    cells = ["".join(cell["source"]) for notebook in parts for cell in notebook["cells"]]
    assert len([source for source in cells if source.startswith(inspect.getsource(getattr(faulty, name)))]) == 1
    assert not judge(name, getattr(faulty, name)).right


@pytest.mark.long
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


def test_quick_settings_and_the_data_of_figures(tmp_path, monkeypatch):
    """In the quick setting nothing is kept."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("D2LMGPU_QUICK", "1")
    assert setting(10, quick=1) == 1
    save_data("05_x", {"seconds": [1.5]})
    assert not list(tmp_path.iterdir())
    monkeypatch.delenv("D2LMGPU_QUICK")
    assert setting(10, quick=1) == 10
    save_data("05_x", {"seconds": [1.5]})
    assert json.loads((tmp_path / "data" / "05_x.json").read_text()) == {"seconds": [1.5]}
