"""Reports of hangs: a thread in each process, the watch, checks whether the process's devices wait too long.

Every message of a schedule is known in advance, so a process knows which message a device waits for. If one has waited
longer than the process's patience, its watch reports what is missing, and which rank should have sent it; then it ends
the job. All processes that wait report at about the same time:

    rank 3   has waited 120 s for rank 2 ──► reports which elements of rank 2 are missing; ends the job a second later
    rank 0   has waited 120 s for rank 3 ──► reports which elements of rank 3 are missing
    rank 2   is waited for, and does not wait itself: look there

The watch does not use MPI, so it also works while all other threads are in functions of MPI that do not return.
"""

import threading
import time

from . import ending
from .supervisor import report

LOOK = 0.2
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
                report(f"{self.here} is at the end of its program, and waits for the others")
                told = True
            time.sleep(0.01)
        self._over.set()

    def _run(self):
        longest, looks = None, 0  # the time is counted in looks, since a job may be stopped as a whole, and continue
        while not self._over.wait(LOOK):
            waits, before = self.waits(), longest
            longest = waits[0] if waits else None
            looks = looks + 1 if longest is before else 0
            if waits and looks * LOOK > self.patience:
                ending.end(self.comm, self.explain(waits))

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
