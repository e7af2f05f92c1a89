"""How the processes of a cluster end: together, at the end of their program or by an uncaught error in one of them."""

import atexit
import faulthandler
import os
import sys
import time

from ..devices.errors import message_of, one_line
from .supervisor import LINGER, is_supervised, last_words, tell

GRACE = 2.0
"""Seconds that MPI has to end the job, before a process ends itself."""

FAIRNESS = 3.0
"""Seconds for which a failed process waits for all others to fail, too, as they do with a wrong option."""

_watch = None
"""The `Watch` of this process, which tells the others."""


def unless_all_failed(comm, host, error, code=2):
    """End all processes because of an ``error`` of this one, unless all of them call this within `FAIRNESS`."""
    failures, end_of_waiting = comm.Ibarrier(), time.monotonic() + FAIRNESS
    while not failures.Test():
        if time.monotonic() > end_of_waiting:
            end(comm, [f"rank {comm.rank} ({host}) failed: {message_of(error)}; the job ends"], code)
        time.sleep(0.01)


def lives_on():
    """Whether this process is interactive, a notebook's kernel or an engine, so that an error is not its end."""
    ipython = sys.modules.get("IPython")
    return hasattr(sys, "ps1") or bool(sys.flags.interactive) or bool(ipython and ipython.get_ipython())


def end_together(comm, watch, host):
    """From now on a process at its end waits for all others, and an uncaught error in one ends all processes.

    The latter not in a process that lives on: there the others' waiting ends with a `HangError`.
    """
    global _watch
    _watch = watch
    atexit.register(watch.leave)
    if lives_on():
        return
    show = sys.excepthook

    def end_all(kind, error, trace):
        show(kind, error, trace)
        end(comm, [f"rank {comm.rank} ({host}) failed: {one_line(error)}; the job ends"])

    sys.excepthook = end_all


def end(comm, lines, code=1, silent=False):
    """Write the lines to standard error, with the command's name before each, and end the processes of all ranks.

    Where each rank has a supervisor, all end by themselves, with the same exit code. ``silent``: some do not answer, so
    only MPI can end them, and mpiexec chooses the exit code.
    """
    last_words(lines)
    # Needed where MPI_Abort hangs, as without a network. No Python thread runs during MPI_Abort; this timer does.
    faulthandler.dump_traceback_later(GRACE, exit=True, file=open(os.devnull, "w"))  # noqa: SIM115
    if _watch is not None and is_supervised() and not silent:
        _watch.tell_over((code, LINGER))
        leave(code, LINGER)
    tell("over")
    comm.Abort(code)
    os._exit(code)


def leave(code, linger):
    """End this process; its supervisor says nothing more, and gives the others ``linger`` seconds to end, too."""
    tell(f"over {linger}")
    os._exit(code)
