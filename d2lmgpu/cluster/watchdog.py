"""How the processes of a cluster end: together, and with a report of who ended first or who is waited for.

A thread in each process, the watch, checks whether the process's devices wait too long. Every message of a schedule is
known in advance, so a process knows which message a device waits for. If one has waited longer than the process's
patience, its watch reports what is missing, and which rank should have sent it; then it ends the job. All processes
that wait report at about the same time:

    rank 3   has waited 120 s for rank 2 ──► reports which elements of rank 2 are missing; ends the job a second later
    rank 0   has waited 120 s for rank 3 ──► reports which elements of rank 3 are missing
    rank 2   is waited for, and does not wait itself: look there

The watch does not use MPI, so it also works while all other threads are in functions of MPI that do not return. If a
process is killed, its launcher, mpiexec or srun, says so and ends the others.
"""

import atexit
import contextlib
import faulthandler
import os
import sys
import threading
import time

from ..base.text import message_of, one_line

LAUNCHERS = {
    "PMI_SIZE": "PMI_RANK",
    "OMPI_COMM_WORLD_SIZE": "OMPI_COMM_WORLD_RANK",
    "SLURM_STEP_NUM_TASKS": "SLURM_PROCID",
    "WORLD_SIZE": "RANK",
}
"""Environment variables with the number of processes and the rank, as set by MPICH's mpiexec and its relatives, by Open
MPI's, by srun and by torchrun."""

SPEAK = 1.0
"""Seconds after a report in which other processes may report, too, and mpiexec passes it on, before the job ends."""


def report_failure(text):
    """Write the text to standard error, and give other processes time to report, too, before this one ends the job."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"d2lmgpu: {text}\n")
        sys.stderr.flush()
    time.sleep(SPEAK)


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
