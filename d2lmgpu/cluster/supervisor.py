"""Each process of a cluster has a parent process that outlives it and reports how it ended.

The process that mpiexec or srun has started forks before MPI begins. The child is the rank; the parent, its supervisor,
only waits for it:

    mpiexec ──► supervisor ──► rank 1    is killed by signal 9
                    └─► prints "rank 1 (b) was killed by signal 9", and ends; then mpiexec ends the others

MPI's launchers end all other processes as soon as one that they started ends with an error. Here, the process that they
started is the supervisor, so its line is printed first. Launchers send signals to a process group that contains both;
the supervisor blocks those that ask it to end.
"""

import contextlib
import os
import signal
import socket
import sys
import threading
import time
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

SPEAK = 1.0
"""Seconds after a report in which other processes may report, too, and mpiexec passes it on, before the job ends."""

AFTER = 0.5
"""Seconds from a rank's end until its supervisor reports it. If mpiexec has ended all processes, it ends the
supervisors, too, before they report anything."""

HINTS = {
    "SIGBUS": ", perhaps because /dev/shm is full (give a container more: docker run --shm-size=1g)",
    "SIGALRM": ", because it has waited for all others to begin with MPI",
}
"""The likely causes of signals: MPI exchanges messages in shared memory, and for SIGALRM see launch.py."""

PR_SET_PDEATHSIG = 1
"""The value of this constant in Linux's prctl.h."""

_done = False
"""Whether this process has a supervisor."""


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
    global _done
    alone = threading.active_count() == 1 and threading.current_thread() is threading.main_thread()
    if _done or not hasattr(os, "fork") or not alone or any(name in sys.modules for name in NOT_FORKED):
        return
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError, OSError):
            stream.flush()  # otherwise both processes would write what is still in its buffer
    parent = os.getpid()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {each for each in signal.Signals if each.name in REQUESTS})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of BLAS's threads, but BLAS handles forks
        child = os.fork()
    if child:
        try:
            os._exit(_outlive(child))
        finally:  # whatever happens, this process does not go on as a second rank
            os._exit(1)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    _done = True
    libc("prctl", PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the supervisor ended before prctl was called
        os._exit(1)


def _outlive(child):
    """Wait until the rank has ended, and return its exit code; report a rank that is killed."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0 and _name(-code) not in REQUESTS:
        time.sleep(AFTER)
        rank = next((os.environ[name] for name in RANKS if name in os.environ), "?")
        report(f"rank {rank} ({socket.gethostname()}) {how_it_ended(code)}{HINTS.get(_name(-code), '')}; the job ends")
    return code if code >= 0 else 128 - code


def how_it_ended(code):
    """How a process ended, in words, by its exit code; a negative one is a signal's number."""
    return f"was killed by signal {-code} ({_name(-code)})" if code < 0 else f"ended with exit code {code}"


def _name(number):
    return next((each.name for each in signal.Signals if each == number), "without a name")
