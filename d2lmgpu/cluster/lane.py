"""A lane: a communicator for the collectives of one queue, on which they come in the same order in every process.

Devices and their channels have a lane each, since they exchange at the same time. Whoever waits in a lane says for
what, where the process's watch sees it.
"""

import os
import time
from typing import NamedTuple

yield_core = getattr(os, "sched_yield", lambda: time.sleep(0))

SPIN = 2e-4
"""Seconds for which a wait yields its core; after that it also sleeps, a share of the time that it took so far."""

SLEEP_SHARE, LONGEST_SLEEP = 0.02, 0.002


class Waiting(NamedTuple):
    """Since when a lane waits, as `time.monotonic` tells it, and ``what`` for: an exchange and its `Move`.

    In a library's own collective it is not known what for: then it is the name of that.
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


class Lane:
    """``comm`` is a communicator of mpi4py's, or what does as it does; ``heard[rank]`` when a message last came."""

    def __init__(self, comm, heard):
        self.comm, self.heard = comm, heard
        self.waiting = None
        self.collectives = 0  # so far, in every process the same

    def begin(self):
        """A collective begins."""
        self.collectives += 1

    def send(self, message, rank, tag):
        """Begin to send bytes; returns the request."""
        return self.comm.Isend(message, rank, tag)

    def receive(self, room, rank, tag):
        """Begin to receive bytes; returns the request."""
        return self.comm.Irecv(room, rank, tag)

    def wait(self, request, exchange, move):
        """Wait for a message: the `Move` of an exchange that has asked for it, or has sent it."""
        begin = time.monotonic()
        self.waiting = Waiting(begin, self.collectives, (exchange, move))
        while not request.Test():
            self.look()
            pause(time.monotonic() - begin)
        self.waiting = None

    def note(self, rank):
        """Something has come from this rank."""
        self.heard[rank] = time.monotonic()

    def look(self):
        """Called while it waits: may raise, to give up."""

    def wait_in(self, name, function, *arguments):
        """Call a library's own collective, which waits for whomever it waits for."""
        self.waiting = Waiting(time.monotonic(), self.collectives, name)
        function(*arguments)
        self.waiting = None
