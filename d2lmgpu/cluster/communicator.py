"""An MPI communicator that tells the watch what is waited for.

A process has three communicators: one for its devices' queues and one for their comm streams, since both may exchange
messages at the same time, and one for plans, whose messages a separate thread handles (progress.py). While something
waits for a message, the communicator records which message that is, and the process's watch reads this record.
"""

import contextlib
import os
import time
from collections.abc import Callable
from typing import NamedTuple

yield_core = getattr(os, "sched_yield", lambda: time.sleep(0))

SPIN = 2e-4
"""Seconds for which a waiting thread only yields its core between two tests of a message; after that it sleeps."""

SLEEP_SHARE, LONGEST_SLEEP = 0.02, 0.002
"""A waiting thread sleeps for this share of the time that it has waited so far, but at most for this many seconds."""

LEAST_TAGS = 2**15 - 1
"""The largest tag that every MPI must allow."""


def most_tags(comm):
    """The largest tag that a message of this communicator may have."""
    if not hasattr(comm, "Get_attr"):  # a stand-in for MPI's communicator
        return LEAST_TAGS
    from mpi4py import MPI

    return MPI.COMM_WORLD.Get_attr(MPI.TAG_UB)  # Open MPI does not give it for other communicators


class Waiting(NamedTuple):
    """A wait: when it began (``since``, from `time.monotonic`), and ``what`` it is for.

    ``what``: a function that returns what is missing, in words, and the rank that it should come from; or only a name,
    if a library's collective function is waited for.
    """

    since: float
    what: Callable | str


def sleep_after(waited):
    """The seconds to sleep before the next test of a message, after ``waited`` seconds of waiting."""
    return min(SLEEP_SHARE * waited, LONGEST_SLEEP)


class Communicator:
    """The current waits in a communicator.

    ``comm`` is a communicator of mpi4py, a stand-in, or None if only `wait_in` is used. ``heard[rank]`` is the time of
    the last message from that rank.
    """

    def __init__(self, comm, heard):
        self.comm, self.heard = comm, heard
        self.error = None  # ends all waiting: of a step of a plan that has failed in this process
        self.left_behind = []
        self._waits = {}

    @property
    def waits(self):
        """The current waits, a list of `Waiting`."""
        return list(self._waits.values())

    def wait(self, request, what):
        """Wait until MPI's ``request`` is done. ``what``: see `Waiting`."""
        with self.wait_in(what):
            begin = time.monotonic()
            while not request.Test():
                if self.error is not None:
                    self.left_behind.append((request, what))  # MPI may still use their memory
                    raise self.error
                waited = time.monotonic() - begin
                yield_core() if waited < SPIN else time.sleep(sleep_after(waited))

    def all_reduce(self, array):
        """Sum a plain array over the processes, in place, by MPI_Allreduce."""
        from mpi4py import MPI

        with self.wait_in("MPI_Allreduce"):
            self.comm.Allreduce(MPI.IN_PLACE, array, MPI.SUM)

    @contextlib.contextmanager
    def wait_in(self, what):
        """Within the block, show the watch ``what`` is waited for, such as the name of a library's function."""
        key = object()
        self._waits[key] = Waiting(time.monotonic(), what)
        try:
            yield
        finally:
            del self._waits[key]
