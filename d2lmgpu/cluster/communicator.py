"""A communicator of MPI with what the watch must know: its collectives come in the same order in every process.

A process has one communicator for its devices' queues and one for their comm streams, since both may exchange at the
same time. While a thread waits for a message, the communicator says for which one; the process's watch reads that.
"""

import contextlib
import os
import time
from typing import NamedTuple

yield_core = getattr(os, "sched_yield", lambda: time.sleep(0))

SPIN = 2e-4
"""Seconds for which a waiting thread only yields its core between two tests of a message; after that it sleeps."""

SLEEP_SHARE, LONGEST_SLEEP = 0.02, 0.002
"""It sleeps this share of the time that it has waited so far, but at most so many seconds."""

LEAST_TAGS = 2**15 - 1
"""The largest tag that every MPI must allow."""


def most_tags(comm):
    """The largest tag that a message of this communicator may have."""
    if not hasattr(comm, "Get_attr"):  # a stand-in for MPI's communicator
        return LEAST_TAGS
    from mpi4py import MPI

    return MPI.COMM_WORLD.Get_attr(MPI.TAG_UB)  # Open MPI does not give it for other communicators


class HangError(RuntimeError):
    """Another process did not come, or did not answer. Raised only in interactive processes (`ending.lives_on`)."""


class Waiting(NamedTuple):
    """A wait: when it began (`time.monotonic`), the number of its collective, and ``what`` is waited for.

    ``what`` is an exchange and its `Instruction`; or only the name, if it is the collective function of a library.
    """

    since: float
    collective: int
    what: tuple | str


def sleep_after(waited):
    """The seconds to sleep before the next test of a message, after ``waited`` seconds of waiting."""
    return min(SLEEP_SHARE * waited, LONGEST_SLEEP)


class Communicator:
    """Sends, receives and waits for messages, and says in ``waiting`` what is waited for now (a `Waiting` or None).

    ``comm`` is a communicator of mpi4py, a stand-in, or None if only `wait_in` is used. ``heard[rank]`` is the time of
    the last message from that rank. ``first_tag`` is added to the tags of messages.
    """

    def __init__(self, comm, heard, first_tag=0):
        self.comm, self.heard, self.first_tag = comm, heard, first_tag
        self.waiting = self.error = None
        self.collectives = 0  # so far; the same in every process
        self.left_behind = []  # exchanges that failed with messages under way, kept so that their memory is not freed

    def begin(self):
        """Count a collective that begins; raises the error of `give_up`, if there is one."""
        self.look()
        self.collectives += 1

    def send(self, message, rank, tag):
        """Begin to send bytes; returns MPI's request."""
        return self.comm.Isend(message, rank, self.first_tag + tag)

    def receive(self, room, rank, tag):
        """Begin to receive bytes; returns MPI's request."""
        return self.comm.Irecv(room, rank, self.first_tag + tag)

    def wait(self, request, exchange, instruction):
        """Wait until ``request`` is done: MPI's, for the message of an ``instruction`` of an ``exchange``."""
        with self.wait_in((exchange, instruction)):
            while not request.Test():
                self.look()
                waited = time.monotonic() - self.waiting.since
                yield_core() if waited < SPIN else time.sleep(sleep_after(waited))

    def give_up(self, error):
        """Make every `wait` here, under way or later, raise this error; a library's function waits on."""
        self.error = error

    def look(self):
        """Raise the error that `give_up` was given, if any."""
        if self.error is not None:
            raise self.error

    @contextlib.contextmanager
    def wait_in(self, what):
        """Within the block the watch can see ``what`` is waited for, such as the name of a library's function."""
        self.waiting = Waiting(time.monotonic(), self.collectives, what)
        try:
            yield
        finally:
            self.waiting = None
