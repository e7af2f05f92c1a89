"""A parent outlives its process, ends as it did, and says how, without MPI."""

import os
import re
import signal
import subprocess
import sys

import psutil
import pytest
from conftest import few

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


ENDS = {  # what a process does, its exit code, and what its parent says
    "signal.SIGKILL": (137, r"was killed by signal 9 \(SIGKILL\)"),
    "signal.SIGTERM": (143, None),  # who is asked to end
    "signal.SIGBUS": (128 + signal.SIGBUS, r"was killed .*, perhaps because /dev/shm is full \(give .*\)"),
    "0) or sys.exit(2": (2, None),
}


@pytest.mark.parametrize("how", few(ENDS, "signal.SIGKILL", parts=1))
def test_the_parent_ends_as_its_process_and_says_how(how):
    code, line = ENDS[how]
    process = run(f"sys.stdout.flush()\nos.kill(os.getpid(), {how})")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (code, "once ")
    assert re.fullmatch(HOST.format(line), err) if line else err == "", err


@pytest.mark.long
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


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prctl is Linux's")
def test_no_process_outlives_its_parent():
    process = run("print(os.getpid(), flush=True); time.sleep(60)")
    child = psutil.Process(int(process.stdout.readline().split()[1]))
    process.kill()
    process.communicate(timeout=60)
    assert psutil.wait_procs([child], timeout=20)[1] == []


@pytest.mark.long
@pytest.mark.parametrize(
    "begun", ["import threading; threading.Thread(target=time.sleep, args=(1,)).start()", "sys.modules['cupy'] = None"]
)
def test_who_has_begun_with_what_knows_no_forks_is_not_divided(begun):
    program = PROGRAM.format(program="print(os.getppid())")
    program = program.replace("supervisor.supervise()\n", f"{begun}\n", 1)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.stdout == f"once {os.getpid()}\n"
