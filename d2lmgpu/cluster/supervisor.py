"""Each process of a cluster has a parent process that outlives it and reports how it ended.

The process that mpiexec or srun has started forks before MPI begins. The child is the rank; the parent, its supervisor,
only waits for it:

    mpiexec ──► supervisor ──► rank 1    is killed by signal 9
                    └─► prints "rank 1 (b) was killed by signal 9", and ends; then mpiexec ends the others

MPI's launchers end all other processes as soon as one that they started ends with an error. Here, the process that they
started is the supervisor, so its line is printed first. The rank shows through a pipe that it is still running (see
`tell`). Launchers send signals to a process group that contains both; the supervisor blocks those that ask it to end.
"""

import contextlib
import math
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
import traceback
import warnings

from ..devices.cpu import libc

LAUNCHERS = {
    "PMI_SIZE": "PMI_RANK",
    "OMPI_COMM_WORLD_SIZE": "OMPI_COMM_WORLD_RANK",
    "SLURM_STEP_NUM_TASKS": "SLURM_PROCID",
    "WORLD_SIZE": "RANK",
}
"""Environment variables with the number of processes and the rank, as set by MPICH's mpiexec and its relatives, by Open
MPI's, by srun and by torchrun."""

RANKS = (*LAUNCHERS.values(), "PMIX_RANK")
"""Environment variables with the rank."""

NOT_FORKED = ("mpi4py.MPI", "cupy", "torch")
"""Modules whose libraries do not work in a child process that is forked after they were loaded."""

REQUESTS = {"SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"}
"""Signals that ask a process to end. If one of them ends a rank, somebody wanted that, so it is not reported."""

SILENT = "shown no sign of life"
"""What a rank has done that is stopped, or one of whose threads holds Python's lock."""

LOOK = 0.2
"""Seconds between two checks of a rank that sends nothing."""

SPEAK = 1.0
"""Seconds after a report in which other processes may report, too, and mpiexec passes it on, before the job ends."""

AFTER = 0.5
"""Seconds from a rank's end until its supervisor reports it. If mpiexec has ended all processes, it ends the
supervisors, too, before they report anything."""

BUS_HINT = ", perhaps because /dev/shm is full (give a container more: docker run --shm-size=1g)"
"""The likely cause of SIGBUS: MPI exchanges messages in shared memory."""

PR_SET_PDEATHSIG = 1
"""The value of this constant in Linux's prctl.h."""

_pipe = None
"""In a rank that has a supervisor, the end of the pipe through which the rank sends to it."""


def report(text):
    """Write the text to standard error, and give other processes time to report, too, before this one ends the job."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"d2lmgpu: {text}\n")
        sys.stderr.flush()
    time.sleep(SPEAK)


def supervise():
    """Fork this process; the child returns, and the parent becomes its supervisor.

    Does nothing if this was done before, if there is no os.fork, or if this process has started other threads or
    imported a module of `NOT_FORKED`.
    """
    global _pipe
    alone = threading.active_count() == 1 and threading.current_thread() is threading.main_thread()
    if _pipe is not None or not hasattr(os, "fork") or not alone or any(name in sys.modules for name in NOT_FORKED):
        return
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError, OSError):
            stream.flush()  # otherwise both processes would write what is still in its buffer
    reading, writing = multiprocessing.Pipe(duplex=False)
    parent = os.getpid()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {each for each in signal.Signals if each.name in REQUESTS})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of BLAS's threads, but BLAS handles forks
        child = os.fork()
    if child:
        try:
            writing.close()
            os._exit(_outlive(child, reading))
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    reading.close()
    _pipe = writing
    libc("prctl", PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the supervisor ended before prctl was called
        os._exit(1)


def tell(**news):
    """Show the supervisor, if there is one, that this process is running; and change what the supervisor knows:

    - ``rank``: the rank's number among the processes that compute;
    - ``patience``: how many seconds may pass until the next call; at first they are not limited;
    - ``doing``: what the rank has done if it does not call this in time.
    """
    if _pipe is not None:
        with contextlib.suppress(OSError):
            _pipe.send(news)


def _outlive(child, reading):
    """Wait until the rank has ended, and return its exit code; report a rank that is killed or shows no sign of life.

    Silence is counted in checks, not by a clock, so a job may be stopped as a whole, and continue.
    """
    rank, host = next((os.environ[name] for name in RANKS if name in os.environ), "?"), socket.gethostname()
    known, silent = {"rank": rank, "patience": math.inf, "doing": SILENT}, 0.0
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        try:
            heard = reading.poll(LOOK)
            known |= reading.recv() if heard else {}
            silent = 0.0 if heard else silent + LOOK
        except EOFError:  # the rank is ending
            time.sleep(LOOK / 10)
        if silent > known["patience"]:
            report(f"rank {known['rank']} ({host}) has {known['doing']} for {silent:.0f} s; the job ends")
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return 1
    code = os.waitstatus_to_exitcode(ended[1])
    if code < 0 and _name(-code) not in REQUESTS:
        time.sleep(AFTER)
        hint = BUS_HINT if code == -signal.SIGBUS else ""
        report(f"rank {known['rank']} ({host}) {how_it_ended(code)}{hint}; the job ends")
    return code if code >= 0 else 128 - code


def how_it_ended(code):
    """How a process ended, in words, by its exit code; a negative one is a signal's number."""
    return f"was killed by signal {-code} ({_name(-code)})" if code < 0 else f"ended with exit code {code}"


def _name(number):
    return next((each.name for each in signal.Signals if each == number), "without a name")
