"""Answers are somebody's code: whatever one does, there is a verdict on it, and nothing is left behind."""

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from library_answers import ACCEPTED, REFUSED

import d2lmgpu as d2l
from d2lmgpu import cli
from d2lmgpu.exercises import EXERCISES, check, jobs, judge, judge_file
from d2lmgpu.exercises.time_limit import TimeIsUp, time_limit

FILES = {  # what an answer does: a file, and what the verdict on it should say
    "leaves": ("def ring(k, n): sys.exit(0)", "your answer ended the program (sys.exit(0))"),
    "leaves_at_once": ("sys.exit()", "your file ended the program (sys.exit())"),
    "ends_the_process": ("def ring(k, n): os._exit(0)", "your answer ended with exit code 0"),
    "crashes": ("def ring(k, n): os.kill(os.getpid(), 11)", "your answer was killed by signal 11 (SIGSEGV)"),
    "interrupts": ("def ring(k, n): raise KeyboardInterrupt", "raised KeyboardInterrupt"),
    "recurs": ("def ring(k, n): return ring(k, n + 1)", "it raised RecursionError: maximum recursion depth exceeded"),
    "hoards": ("def ring(k, n):\n a = []\n while True: a.append(bytes(2**24))", "it raised MemoryError"),
    "never_ends": (
        "def ring(k, n):\n while True:\n  try: time.sleep(9)\n  except: pass",
        "did not end within 1 seconds",
    ),
    "never_ends_at_once": ("while True: pass", "your answer did not end within 1 seconds"),
    "never_stops_printing": ("def ring(k, n):\n while True: print('x' * 9999)", "did not end within 1 seconds"),
    "forks": ("def ring(k, n):\n os.fork()\n return []", "ring(2, 4): no device sends anything"),
    "speaks": ("for i in range(3, 30):\n try: os.write(i, b'[1]\\n')\n except OSError: pass", "in place of the check"),
    "has_help": ("import mine_helps\nring = mine_helps.ring", "it raised EOFError"),
}


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """All of `FILES` as {name: Verdict}, in some seconds, since each is a Python that starts, or waits to be late."""
    folder = tmp_path_factory.mktemp("answers")
    (folder / "mine_helps.py").write_text("print('héllo', __name__)\ndef ring(k, n): return input('k? ')\n")

    def judge_one(name):
        file = folder / f"{name}.py"
        file.write_text("import os, signal, sys, time\n" + FILES[name][0] + "\n", encoding="utf-8")
        return judge_file("ring", file, seconds=1 if name.startswith("never") else 60)

    with ThreadPoolExecutor(4) as threads:
        found = dict(zip(FILES, threads.map(judge_one, FILES), strict=True))
    assert {path.suffix for path in folder.iterdir()} == {".py"}  # and no __pycache__
    return found


@pytest.mark.parametrize("name", FILES)
def test_whatever_an_answer_does(judged, name):
    right, says, output = judged[name]
    assert not right and says.startswith("✗ ring: ") and FILES[name][1] in says
    assert len(output) < jobs.OUTPUT_LIMIT + 100


def test_what_an_answer_prints(judged):
    assert judged["has_help"].output == "héllo mine_helps\nk? "
    output = judged["never_stops_printing"].output
    assert output.startswith("x" * 4000) and output.endswith(" bytes more)")


def test_on_the_command_line(tmp_path, capsys):
    """An answer that ends the program is a wrong one: exit code 1, and a verdict."""
    file, result = tmp_path / "mine.py", tmp_path / "verdict.json"
    file.write_text("import sys\nprint('begun')\ndef ring(k, n): sys.exit(0)\n")
    assert cli.main(["check", "ring", str(file), "--json", str(result)]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("It printed:\nbegun\n\n✗ ring: not right yet: ") and err == ""
    assert json.loads(result.read_text())["right"] is False
    assert cli.main(["check", "ring", str(tmp_path)]) == 2
    assert f"{tmp_path} is a folder; give the path of a Python file" in capsys.readouterr().err
    assert cli.main(["check", "ring", "06.ipynb"]) == 2
    assert "06.ipynb is a notebook; give the path of a Python file" in capsys.readouterr().err
    for seconds in ("0", "-1", "nan", "inf"):
        assert cli.main(["check", "ring", str(file), f"--seconds={seconds}"]) == 2
        assert f"a limit of {float(seconds)} seconds" in capsys.readouterr().err


def alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until(condition):
    stop = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < stop
        time.sleep(0.01)


def test_processes_that_an_answer_starts_end_with_it(tmp_path):
    """And nobody waits for them, though they hold the pipes."""
    file = tmp_path / "mine.py"
    child = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'])"
    file.write_text(f"import subprocess, sys\nprint({child}.pid)\ndef ring(k, n): pass\n")
    _, says, output = judge_file("ring", file)
    assert "it returned nothing" in says
    wait_until(lambda: not alive(int(output)))


def test_ctrl_c_ends_the_answer_too(tmp_path):
    file, pid = tmp_path / "mine.py", tmp_path / "pid"
    file.write_text(f"import os, time\nopen({str(pid)!r}, 'w').write(f'{{os.getpid()}} ')\nwhile True: time.sleep(1)\n")

    def interrupt():
        wait_until(lambda: pid.exists() and pid.read_text().endswith(" "))
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        judge_file("ring", file)
    assert not alive(int(pid.read_text()))


def forwarding(function):
    class Answer:
        def __call__(self, *args):
            return function(*args)

    return Answer()


WAYS = {
    "itself": lambda function: function,
    "wrapped": lambda function: lambda *args: function(*args),
    "partial": functools.partial,
    "object": forwarding,
}


@pytest.mark.parametrize(
    ("name", "what", "way"),
    [
        (name, what, way)
        for name, found in REFUSED.items()
        for what in found
        for way in (WAYS if what != "invented" else ["itself"])  # inventing takes seconds
    ],
)
def test_the_librarys_own_function_is_no_answer(name, what, way):
    verdict = judge(name, WAYS[way](REFUSED[name][what]))
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


# Functions of this process, as from a notebook's cell


def spin(*_):
    while True:
        pass


def sleep(*_):
    time.sleep(1000)


def wait(*_):
    threading.Event().wait()


def keep_one(*_):
    """Keeps the first exception, but not the second."""
    try:
        spin()
    except BaseException:
        spin()


def be_late(k, n):
    """Keeps every exception, and gives the right answer too late."""
    stop = time.monotonic() + (0.2 if (k, n) == (2, 4) else 0)
    while time.monotonic() < stop:
        with contextlib.suppress(BaseException):
            time.sleep(0.2)
    return d2l.collectives.ring(k, n)


@pytest.mark.parametrize("answer", [spin, sleep, wait, keep_one, be_late])
def test_a_functions_time_is_limited(capsys, answer):
    former = signal.signal(signal.SIGALRM, signal.SIG_IGN)
    try:
        assert not check("ring", answer, seconds=0.1)
        assert "✗ ring: not right yet: your answer did not end within 0.1 seconds" in capsys.readouterr().out
        assert signal.getsignal(signal.SIGALRM) is signal.SIG_IGN and signal.getitimer(signal.ITIMER_REAL)[0] == 0
    finally:
        signal.signal(signal.SIGALRM, former)


@pytest.mark.parametrize("answer", [spin, keep_one, be_late])
def test_on_other_threads_too(capsys, answer):
    with ThreadPoolExecutor(1) as thread:
        assert not thread.submit(check, "ring", answer, seconds=0.1).result()
        assert "did not end within 0.1 seconds" in capsys.readouterr().out
        assert thread.submit(sum, range(100_000)).result() == 4_999_950_000  # nothing arrives late


def test_a_limit_that_is_kept_leaves_nothing():
    def keep():
        for _ in range(20):
            with time_limit(1000):
                pass
        return threading.active_count()

    former = signal.getsignal(signal.SIGALRM)
    assert keep() == threading.active_count()
    assert signal.getsignal(signal.SIGALRM) is former and signal.getitimer(signal.ITIMER_REAL)[0] == 0
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(keep).result() == threading.active_count()


TRACE = """
import sys, threading
from d2lmgpu.exercises.time_limit import time_limit

def limited():
    with time_limit(1000):
        pass

thread = threading.Thread(target=limited)
thread.start()
thread.join()
sys.settrace(lambda *_: None)
print(sum(map(int, "123")))
"""


def test_whoever_traces_after_a_limit_in_a_thread():
    """A debugger, or coverage; in a process of its own, since Python itself hung."""
    done = subprocess.run([sys.executable, "-c", TRACE], capture_output=True, text=True, timeout=60)
    assert done.stdout == "6\n", done.stderr


def leave(*_):
    raise SystemExit(0)


class Late(list):
    """What it does, it does when somebody looks at it."""

    def __init__(self, error):
        self.error = error

    def __iter__(self):
        raise self.error


class Mute(Exception):
    def __str__(self):
        return None


def fail(error):
    raise error


@pytest.mark.parametrize(
    "answer, message",
    [
        (leave, "not right yet: your answer ended the program (sys.exit(0))"),
        (lambda k, n: Late(SystemExit("bye")), "not right yet: your answer ended the program (sys.exit(bye))"),
        (
            lambda k, n: Late(ZeroDivisionError("no")),
            "not right yet: the check cannot use what it returned: ZeroDivisionError: no",
        ),
        (lambda k, n: fail(GeneratorExit()), "not right yet: your answer raised GeneratorExit\n"),
        (lambda k, n: fail(Mute()), "ring(2, 4): it raised Mute: (its message cannot be read)\n"),
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
    with pytest.raises(TimeIsUp), time_limit(0.01):
        spin()
    with pytest.raises(ValueError, match="a limit of 0 seconds"):
        check("ring", spin, seconds=0)
