"""The communicator of a queue: MPI's, on which the queue's collectives come in the same order in every process.

Devices and their comm streams have a communicator each, since they exchange at the same time. While a wait lasts, the
communicator says what it waits for; the process's watch reads that.
"""

import os
import time
from typing import NamedTuple

yield_core = getattr(os, "sched_yield", lambda: time.sleep(0))

SPIN = 2e-4
"""Seconds for which a wait yields its core; after that it also sleeps, a share of the time that it took so far."""

SLEEP_SHARE, LONGEST_SLEEP = 0.02, 0.002


LEAST_TAGS = 2**15 - 1
"""The largest tag that every MPI has."""


def most_tags(comm):
    """The largest tag that a message of this communicator may have."""
    if not hasattr(comm, "Get_attr"):
        return LEAST_TAGS
    from mpi4py import MPI

    return MPI.COMM_WORLD.Get_attr(MPI.TAG_UB)  # a part of it may not be told, as by Open MPI


class HangError(RuntimeError):
    """Another process did not come, or did not answer, in an interpreter that is to live on; see `ending.lives_on`."""


class Waiting(NamedTuple):
    """A wait: when it began (`time.monotonic`), the number of its collective, and ``what`` is waited for.

    ``what`` is an exchange and its `Instruction`, or the name of a library's own collective, which does not tell more.
    """

    since: float
    collective: int
    what: tuple | str


def pause(waited):
    """Let others go on, after so many seconds of waiting, before the next look."""
    if waited < SPIN:
        yield_core()
    else:
        time.sleep(sleep_after(waited))


def sleep_after(waited):
    """The seconds to sleep between two looks."""
    return min(SLEEP_SHARE * waited, LONGEST_SLEEP)


class Communicator:
    """``comm`` is a communicator of mpi4py's, or what does as it does; ``heard[rank]`` when a message last came."""

    def __init__(self, comm, heard):
        self.comm, self.heard = comm, heard
        self.waiting = self.error = None
        self.collectives = 0  # so far, in every process the same
        self.left_behind = []  # what had messages under way when it gave up: their memory

    def begin(self):
        """A collective begins."""
        self.look()
        self.collectives += 1

    def send(self, message, rank, tag):
        """Begin to send bytes; returns the request."""
        return self.comm.Isend(message, rank, tag)

    def receive(self, room, rank, tag):
        """Begin to receive bytes; returns the request."""
        return self.comm.Irecv(room, rank, tag)

    def wait(self, request, exchange, instruction):
        """Wait for a message that the `Instruction` of an exchange has sent or asked for."""
        begin = time.monotonic()
        self.waiting = Waiting(begin, self.collectives, (exchange, instruction))
        try:
            while not request.Test():
                self.look()
                pause(time.monotonic() - begin)
        finally:
            self.waiting = None

    def note(self, rank):
        """Something has come from this rank."""
        self.heard[rank] = time.monotonic()

    def give_up(self, error):
        """From now on who waits here, or begins to, has this error."""
        self.error = error

    def look(self):
        """Called while it waits, and before: raises an error, to give up."""
        if self.error is not None:
            raise self.error

    def wait_in(self, name, function, *arguments):
        """Call a library's own collective, which waits for whomever it waits for."""
        self.waiting = Waiting(time.monotonic(), self.collectives, name)
        function(*arguments)
        self.waiting = None
