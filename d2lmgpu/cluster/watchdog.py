"""How the processes of a cluster end: together, and with a report of who ended first or who is waited for.

Each process has a parent process that outlives it and reports how it ended. The process that mpiexec or srun has
started forks before MPI begins. The child is the rank; the parent, its supervisor, only waits for it:

    mpiexec ──► supervisor ──► rank 1    is killed by signal 9
                    └─► prints "rank 1 (b) was killed by signal 9", and ends; then mpiexec ends the others

MPI's launchers end all other processes as soon as one that they started ends with an error. Here, the process that they
started is the supervisor, so its line is printed first. Launchers send signals to a process group that contains both;
the supervisor blocks those that ask it to end.

A thread in each process, the watch, checks whether the process's devices wait too long. Every message of a schedule is
known in advance, so a process knows which message a device waits for. If one has waited longer than the process's
patience, its watch reports what is missing, and which rank should have sent it; then it ends the job. All processes
that wait report at about the same time:

    rank 3   has waited 120 s for rank 2 ──► reports which elements of rank 2 are missing; ends the job a second later
    rank 0   has waited 120 s for rank 3 ──► reports which elements of rank 3 are missing
    rank 2   is waited for, and does not wait itself: look there

The watch does not use MPI, so it also works while all other threads are in functions of MPI that do not return."""

import atexit
import contextlib
import faulthandler
import os
import signal
import socket
import sys
import threading
import time
import warnings

from ..base.text import message_of, one_line
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


def report_failure(text):
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
        report_failure(
            f"rank {rank} ({socket.gethostname()}) {how_it_ended(code)}{HINTS.get(_name(-code), '')}; the job ends"
        )
    return code if code >= 0 else 128 - code


def how_it_ended(code):
    """How a process ended, in words, by its exit code; a negative one is a signal's number."""
    return f"was killed by signal {-code} ({_name(-code)})" if code < 0 else f"ended with exit code {code}"


def _name(number):
    return next((each.name for each in signal.Signals if each == number), "without a name")


GRACE = 2.0
"""Seconds that MPI_Abort may take to end the job; after that a process ends itself."""

FAIRNESS = 3.0
"""Seconds for which a failed process waits to see whether all others fail, too, as all do after a wrong option."""


def abort_unless_all_failed(comm, host, error, code=2):
    """End all processes because of an ``error`` in this one, unless all of them call this within `FAIRNESS` seconds."""
    failures, end_of_waiting = comm.Ibarrier(), time.monotonic() + FAIRNESS
    while not failures.Test():
        if time.monotonic() > end_of_waiting:
            end(comm, f"rank {comm.rank} ({host}) failed: {message_of(error)}; the job ends", code)
        time.sleep(0.01)


def end_together(comm, leave, host):
    """From now on an uncaught error in this process ends all of them; ``leave`` is called when its program ends."""
    atexit.register(leave)
    show = sys.excepthook

    def end_all(kind, error, trace):
        show(kind, error, trace)
        end(comm, f"rank {comm.rank} ({host}) failed: {one_line(error)}; the job ends")

    sys.excepthook = end_all


def end(comm, text, code=1):
    """Report the text, and end the processes of all ranks; mpiexec chooses the job's exit code, which is not 0."""
    report_failure(text)
    # MPI_Abort may hang, for example without a network, and meanwhile no Python thread runs. This timer does.
    faulthandler.dump_traceback_later(GRACE, exit=True, file=open(os.devnull, "w"))  # noqa: SIM115
    comm.Abort(code)
    os._exit(code)


_LOOK = 0.2
"""Seconds between two checks."""


class Watch:
    """The watch of one process.

    ``comm``: a communicator of MPI on which nothing else is sent; ``hosts[rank]``: the host of each process;
    ``heard[rank]``: when the last message from a rank came, by `time.monotonic`.
    """

    def __init__(self, comm, hosts, patience):
        self.comm, self.patience = comm, patience
        self.here = f"rank {comm.rank} ({hosts[comm.rank]})"
        self.heard = [time.monotonic()] * comm.size
        self._over = threading.Event()

    def begin(self, communicators):
        """Watch these communicators from now on."""
        self.communicators = list(communicators)
        threading.Thread(target=self._run, name="d2lmgpu cluster watch", daemon=True).start()

    def leave(self):
        """At the end of the program, wait until all programs have ended; after ``patience`` seconds, say so once."""
        all_left, begin, told = self.comm.Ibarrier(), time.monotonic(), False
        while not all_left.Test():
            if time.monotonic() - begin > self.patience and not told:
                report_failure(f"{self.here} is at the end of its program, and waits for the others")
                told = True
            time.sleep(0.01)
        self._over.set()

    def _run(self):
        longest, looks = None, 0  # the time is counted in looks, since a job may be stopped as a whole, and continue
        while not self._over.wait(_LOOK):
            waits, before = self.waits(), longest
            longest = waits[0] if waits else None
            looks = looks + 1 if longest is before else 0
            if waits and looks * _LOOK > self.patience:
                end(self.comm, self.explain(waits))

    def waits(self):
        """All waits in this process, a list of `Waiting`, the longest first."""
        waits = [waiting for communicator in self.communicators for waiting in communicator.waits]
        return sorted(waits, key=lambda waiting: waiting.since)

    def explain(self, waits):
        """In words, what this process waits for, and when the ranks that it waits for were last heard from."""
        now = time.monotonic()
        said = "; ".join(self._in_words(waiting.what, now) for waiting in waits)
        return f"after {now - waits[0].since:.1f} s of waiting the job ends: {said}"

    def _in_words(self, what, now):
        if isinstance(what, str):
            return f"{self.here} waits in {what}"
        text, rank = what()
        return f"{text}, last heard from {now - self.heard[rank]:.1f} s ago"
