"""The communicator of a queue: MPI's, on which the queue's collectives come in the same order in every process.

Devices and their comm streams have a communicator each, since they exchange at the same time. While a thread waits for
a message, the communicator says for which one; the process's watch reads that.
"""

import os
import time
from typing import NamedTuple

yield_core = getattr(os, "sched_yield", lambda: time.sleep(0))

SPIN = 2e-4
"""Seconds for which a wait yields its core; after that it also sleeps, each time a share of its duration so far."""

SLEEP_SHARE, LONGEST_SLEEP = 0.02, 0.002


LEAST_TAGS = 2**15 - 1
"""The largest tag that every MPI has."""


def most_tags(comm):
    """The largest tag that a message of this communicator may have."""
    if not hasattr(comm, "Get_attr"):
        return LEAST_TAGS
    from mpi4py import MPI

    return MPI.COMM_WORLD.Get_attr(MPI.TAG_UB)  # Open MPI does not give it for other communicators


class HangError(RuntimeError):
    """Another process did not come, or did not answer. Raised only where a process lives on, see `ending.lives_on`."""


class Waiting(NamedTuple):
    """A wait: when it began (`time.monotonic`), the number of its collective, and ``what`` is waited for.

    ``what`` is an exchange and its `Instruction`, or the name of a library's own collective, which does not tell more.
    """

    since: float
    collective: int
    what: tuple | str


def sleep_after(waited):
    """The seconds to sleep before the next look, after so many seconds of waiting."""
    return min(SLEEP_SHARE * waited, LONGEST_SLEEP)


class Communicator:
    """``comm``: a communicator of mpi4py, or a stand-in; ``heard[rank]``: when a message last came from a rank.

    ``first_tag``: is added to the tags of messages.
    """

    def __init__(self, comm, heard, first_tag=0):
        self.comm, self.heard, self.first_tag = comm, heard, first_tag
        self.waiting = self.error = None
        self.collectives = 0  # so far; the same in every process
        self.left_behind = []  # exchanges that gave up with messages under way: this keeps the messages' memory

    def begin(self):
        """Begin a collective."""
        self.look()
        self.collectives += 1

    def send(self, message, rank, tag):
        """Begin to send bytes; returns MPI's request."""
        return self.comm.Isend(message, rank, self.first_tag + tag)

    def receive(self, room, rank, tag):
        """Begin to receive bytes; returns MPI's request."""
        return self.comm.Irecv(room, rank, self.first_tag + tag)

    def wait(self, request, exchange, instruction):
        """Wait until the message that an exchange's ``instruction`` has begun to send or receive is through."""
        begin = time.monotonic()
        self.waiting = Waiting(begin, self.collectives, (exchange, instruction))
        try:
            while not request.Test():
                self.look()
                waited = time.monotonic() - begin
                yield_core() if waited < SPIN else time.sleep(sleep_after(waited))
        finally:
            self.waiting = None

    def note(self, rank):
        """A message has come from this rank."""
        self.heard[rank] = time.monotonic()

    def give_up(self, error):
        """End all waiting here, now and later, with this error."""
        self.error = error

    def look(self):
        """Raise the error of `give_up`, if there is one."""
        if self.error is not None:
            raise self.error

    def wait_in(self, name, function, *arguments):
        """Call a library's own collective, which waits by itself."""
        self.waiting = Waiting(time.monotonic(), self.collectives, name)
        function(*arguments)
        self.waiting = None
