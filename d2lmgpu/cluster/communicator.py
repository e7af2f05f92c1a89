"""An MPI communicator that tells the watch what is waited for.

A process has three communicators: one for its devices' queues and one for their comm streams, since both may exchange
messages at the same time, and one for plans, whose messages a separate thread handles (progress.py). While something
waits for a message, the communicator records which message that is, and the process's watch reads this record.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

yield_core = getattr(os, "sched_yield", lambda: time.sleep(0))

SPIN = 2e-4
"""Seconds for which a waiting thread only yields its core between two tests of a message; after that it sleeps."""

SLEEP_SHARE, LONGEST_SLEEP = 0.02, 0.002
"""A waiting thread sleeps for this share of the time that it has waited so far, but at most for this many seconds."""

MIN_TAGS = 2**15 - 1
"""The largest tag that every MPI must allow."""


def most_tags(comm):
    """The largest tag that a message of this communicator may have."""
    if not hasattr(comm, "Get_attr"):  # a stand-in for MPI's communicator
        return MIN_TAGS
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


# Messages of plans: each goes from one device to a device of another process, and many may be under way at a time.
#
# A device hands in what it sends, or asks for what it should receive, and continues; its queue waits for the message's
# event where the plan says so. One thread of the process, the progress thread, takes care of all messages that are
# under way:
#
#     cpu(0)     F 0 │ hand in y 0 │ F 1 │ hand in y 1 │ ... │ (y 0 has left) free y 0
#     progress         ├── sends y 0 ────────┤
#                                     ├── sends y 1 ────┤


class ProgressThread(Communicator):
    """The `Communicator` of one process for plans' messages alone, and its progress thread."""

    def __init__(self, comm, heard):
        super().__init__(comm, heard)
        self._under_way = []  # MPI's requests and their events; after an error, too: MPI may still use their memory
        self._called = threading.Event()
        threading.Thread(target=self._work, name="d2lmgpu progress", daemon=True).start()

    def follow(self, request, event):
        """Let ``event`` happen when MPI's ``request`` is done, or with the error if all is given up."""
        if request.Test():
            event.finish(None)
            return
        self._under_way.append((request, event))
        if self.error is None:  # looked at last: whoever gives up sets it first
            self._called.set()
        else:
            event.finish(None, self.error)

    def await_event(self, event, what):
        """Note that a device now waits for the ``event`` of a request. ``what``: see `Waiting`."""
        self._waits[event] = Waiting(time.monotonic(), what)
        event.add_done_callback(lambda event: self._waits.pop(event, None))

    def give_up(self, error):
        """End all waiting with ``error``. Messages under way may still arrive, so their memory is kept."""
        self.error = self.error or error
        self._called.set()  # the thread ends
        for _, event in list(self._under_way):
            event.finish(None, self.error)

    def _work(self):
        since = time.monotonic()
        while self.error is None:
            waited = time.monotonic() - since
            if self._look():
                since = time.monotonic()
            elif self._under_way and waited < SPIN:
                yield_core()
            elif self._called.wait(sleep_after(waited) if self._under_way else None):
                self._called.clear()
                since = time.monotonic()

    def _look(self):
        """Let the events of all messages that have arrived or left happen; return whether there are any."""
        try:
            done = [one for one in list(self._under_way) if one[0].Test()]
        except Exception as error:
            self.give_up(error)
            return False
        for one in done:
            self._under_way.remove(one)
            one[1].finish(None)
        return bool(done)
