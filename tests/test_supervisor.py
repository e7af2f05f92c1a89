"""A parent outlives its process, ends as it did, and says how, without MPI."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no os.fork")

PROGRAM = """
import os, signal, sys, time
from d2lmgpu.cluster import watchdog as supervisor

supervisor.AFTER = supervisor.SPEAK = 0.05
print("once", end=" ")
supervisor.supervise()
supervisor.supervise()
{program}
"""
HOST = r"d2lmgpu: rank 3 \(\S+\) {}; the job ends\n"


def run(program, **settings):
    """Start it as rank 3 of 4."""
    environment = {**os.environ, "PMI_RANK": "3", "PMI_SIZE": "4"}
    command = [sys.executable, "-W", "error", "-c", PROGRAM.format(program=program)]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment, **pipes, **settings)


ENDS = {
    "well": ("", 0, None),
    "with an error": ("sys.exit(2)", 2, None),
    "asked to end": ("os.kill(os.getpid(), signal.SIGTERM)", 143, None),
    "killed": ("os.kill(os.getpid(), signal.SIGKILL)", 137, r"was killed by signal 9 \(SIGKILL\)"),
    "crashed": ("os.kill(os.getpid(), signal.SIGSEGV)", 139, r"was killed by signal 11 \(SIGSEGV\)"),
    "without shared memory": (
        "os.kill(os.getpid(), signal.SIGBUS)",
        128 + signal.SIGBUS,
        r"was killed by signal \d+ \(SIGBUS\), perhaps because /dev/shm is full \(give a container more: .*\)",
    ),
    "waiting for MPI": (
        "from d2lmgpu.cluster.launch import alarm\nwith alarm(0.1): time.sleep(60)",
        128 + signal.SIGALRM,
        r"was killed by signal \d+ \(SIGALRM\), because it has waited for all others to begin with MPI",
    ),
}


@pytest.mark.parametrize("how", ENDS)
def test_the_parent_ends_as_its_process_and_says_how(how):
    program, code, line = ENDS[how]
    process = run(f"sys.stdout.flush()\n{program}")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (code, "once ")
    if line is None:
        assert err == ""
    else:
        assert re.fullmatch(HOST.format(line), err), err


@pytest.mark.parametrize("signum, handled", [(signal.SIGTERM, False), (signal.SIGTERM, True), (signal.SIGUSR1, True)])
def test_a_signal_to_the_group_reaches_the_process_only(signum, handled):
    lines = ["came = []", f"signal.signal({int(signum)}, lambda *_: came.append(1))"] if handled else []
    lines += ["print('ready', flush=True)", "end = time.monotonic() + 30"]
    lines += ["while not came and time.monotonic() < end: time.sleep(0.01)"] if handled else ["time.sleep(60)"]
    lines += ["time.sleep(0.3)", "print(*came)", f"sys.exit({128 + signum})"]
    process = run("\n".join(lines), start_new_session=True)
    assert process.stdout.readline() == "once ready\n"
    os.killpg(process.pid, signum)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (128 + signum, "1\n" if handled else "", "")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prctl is Linux's")
def test_no_process_outlives_its_parent():
    process = run("print(os.getpid(), flush=True); time.sleep(60)")
    child = int(process.stdout.readline().split()[1])
    process.kill()
    process.communicate(timeout=60)
    end = time.monotonic() + 20
    while is_there(child):
        assert time.monotonic() < end
        time.sleep(0.01)


def is_there(pid):
    """Whether it runs; a process of which nobody knows any more may stay as what is left of it."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.parametrize(
    "begun", ["import threading; threading.Thread(target=time.sleep, args=(1,)).start()", "sys.modules['cupy'] = None"]
)
def test_who_has_begun_with_what_knows_no_forks_is_not_divided(begun):
    program = PROGRAM.format(program="print(os.getppid())")
    program = program.replace("supervisor.supervise()\n", f"{begun}\n", 1)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.stdout == f"once {os.getpid()}\n"
