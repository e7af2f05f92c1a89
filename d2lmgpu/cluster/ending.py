"""How the processes of a cluster end: together, when their programs end or after an uncaught error in one of them."""

import atexit
import faulthandler
import os
import sys
import time

from ..base.text import message_of, one_line
from .supervisor import report

GRACE = 2.0
"""Seconds that MPI_Abort may take to end the job; after that a process ends itself."""

FAIRNESS = 3.0
"""Seconds for which a failed process waits to see whether all others fail, too, as all do after a wrong option."""


def unless_all_failed(comm, host, error, code=2):
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
    report(text)
    # MPI_Abort may hang, for example without a network, and meanwhile no Python thread runs. This timer does.
    faulthandler.dump_traceback_later(GRACE, exit=True, file=open(os.devnull, "w"))  # noqa: SIM115
    comm.Abort(code)
    os._exit(code)
