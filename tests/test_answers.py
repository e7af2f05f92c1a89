"""Answers are somebody's code: whatever one does, there is a verdict on it, and the answers after it are judged."""

import json
import signal
import subprocess

import pytest
from library_answers import ACCEPTED, REFUSED

from d2lmgpu import cli
from d2lmgpu.exercises import EXERCISES, check, judge
from d2lmgpu.exercises.answers import judge_answers

FILE = """
import os, sys, time
import mine_helps

def cut(n, k): os._exit(0)
def updates_per_epoch(n, b, k):
    while True: print("x" * 9999)
def he_std(shape): sum(range(10**12))
def ring(k, n): return mine_helps.ring(k, n)
def buckets(*args): sys.exit(0)
def swap(a, b): os.kill(os.getpid(), 11)
def timed(*args): raise KeyboardInterrupt
def sum_on(arrays, device): return arrays and sum_on(arrays, device)
"""
SAYS = {  # what the verdict on each of its functions should say
    "cut": "your answer ended with exit code 0",
    "updates_per_epoch": "your answer did not end within 2 seconds",
    "he_std": "your answer did not end within 2 seconds",
    "ring": "it raised EOFError",
    "buckets": "your answer, or the check of what it returned, raised SystemExit: 0",
    "swap": "your answer was killed by signal 11 (SIGSEGV)",
    "timed": "your answer was killed by signal 2 (SIGINT)",
    "sum_on": "it raised RecursionError: maximum recursion depth exceeded",
    "learning_rate": "mine.py has no function learning_rate",
}


def test_whatever_an_answer_does_costs_only_its_own_exercise(tmp_path):
    (tmp_path / "mine_helps.py").write_text("def ring(k, n): return input('k? ')\n")
    (tmp_path / "mine.py").write_text(FILE)
    verdicts = judge_answers(tmp_path / "mine.py", SAYS, seconds=2, errors=subprocess.DEVNULL)
    for name, says in SAYS.items():
        assert (
            not verdicts[name].right and verdicts[name].says.startswith(f"✗ {name}: ") and says in verdicts[name].says
        )
    assert {path.suffix for path in tmp_path.iterdir()} == {".py"}  # and no __pycache__


def test_on_the_command_line(tmp_path, capfd):
    """An answer that ends the program is a wrong one: exit code 1, and a verdict."""
    file, result = tmp_path / "mine.py", tmp_path / "verdict.json"
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


@pytest.mark.parametrize(
    "text, message",
    [
        ("while True: pass", "mine.py did not end within 1 seconds"),
        ("import sys; sys.exit(3)", "mine.py cannot be run: SystemExit: 3"),
        ("import os; os._exit(0)", "mine.py ended with exit code 0"),
        ("def ring(k, n:\n", "mine.py cannot be run: SyntaxError: '(' was never closed (mine.py, line 1)"),
    ],
)
def test_a_file_that_does_not_run_to_its_end(tmp_path, text, message):
    """It is run once, and not for each of its answers."""
    (tmp_path / "mine.py").write_text("open('runs', 'a').write('x')\n" * (text[:3] != "def") + text)
    verdicts = judge_answers(tmp_path / "mine.py", ["ring", "cut"], seconds=1, errors=subprocess.DEVNULL)
    for name in ("ring", "cut"):
        assert verdicts[name].says.startswith(f"✗ {name}: not right yet: {message}") and not verdicts[name].right
    assert text[:3] == "def" or (tmp_path / "runs").read_text() == "x"


@pytest.mark.parametrize(("name", "what"), [(name, what) for name, found in REFUSED.items() for what in found])
def test_the_librarys_own_function_is_no_answer(name, what):
    verdict = judge(name, lambda *args: REFUSED[name][what](*args))
    assert not verdict.right and "right, but it is the library's own d2lmgpu." in verdict.says, verdict.says
    assert "\n  Hint: write it yourself: an answer may use the library, but no" in verdict.says


@pytest.mark.parametrize("name", EXERCISES)
def test_the_checks_own_results_are_no_answer(name):
    right = EXERCISES[name].right
    assert not judge(name, lambda *args: right(*args)).right


@pytest.mark.parametrize("name", ACCEPTED)
def test_an_answer_may_use_the_library(name):
    verdict = judge(name, ACCEPTED[name])
    assert verdict.right, verdict.says


def leave(*_):
    raise SystemExit(0)


class Late(list):
    """What it does, it does when somebody looks at it."""

    def __init__(self, error):
        self.error = error

    def __iter__(self):
        raise self.error


def fail(error):
    raise error


@pytest.mark.parametrize(
    "answer, message",
    [
        (leave, "not right yet: your answer, or the check of what it returned, raised SystemExit: 0\n"),
        (lambda k, n: Late(ZeroDivisionError("no")), "raised ZeroDivisionError: no\n"),
        (lambda k, n: fail(ValueError("\ud800" * 10**6)), "ring(2, 4): it raised ValueError: \\ud800"),
    ],
)
def test_what_else_a_function_does(capsys, answer, message):
    assert not check("ring", answer)
    out = capsys.readouterr().out
    assert message in out and len(out) < 4000


def test_an_interrupt_is_the_persons():
    def interrupted(k, n):
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        check("ring", interrupted)
