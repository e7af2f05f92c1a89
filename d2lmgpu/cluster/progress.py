"""The messages of plans: between single devices of several processes, any number of them under way at a time.

A device hands in what is to be sent, or asks for what is to come, and goes on; its queue waits for the event where the
plan says so. A thread of the process, the progress thread, sees to all that is under way:

    cpu(0)     F 0 │ hand in y 0 │ F 1 │ hand in y 1 │ ... │ (y 0 has left) free y 0
    progress         ├── sends y 0 ────────┤
                                    ├── sends y 1 ────┤

The work for one message is a *request*: a generator that yields requests of MPI, one after the other.
"""

import collections
import contextlib
import threading
import time

from .communicator import SPIN, Communicator, Waiting, sleep_after, yield_core

IDLE = 1.0
"""Seconds without requests after which the thread ends; the next request starts another."""


class ProgressThread:
    """That of one process. ``comm``: a communicator for plans' messages alone; ``heard``: as of `Communicator`."""

    def __init__(self, comm, heard):
        self.comm, self.heard, self.error = comm, heard, None
        self._under_way, self._waits, self._slots, self.left_behind = collections.deque(), {}, {}, []
        self._lock = threading.Lock()  # taken by devices' threads and the progress thread, never by the host program
        self._called = threading.Event()
        self._runs = False

    @property
    def waiting(self):
        """A `Waiting`: the first in order of all messages that devices wait for, and the time of the longest wait."""
        waits = [*filter(None, [*self._waits.values(), *(slot.waiting for slot in list(self._slots))])]
        if not waits:
            return None
        first = min(waits, key=lambda waiting: (waiting.collective, waiting.what[1].transfer.number))
        return first._replace(since=min(waiting.since for waiting in waits))

    def run(self, work, event, failed, order=None, what=None):
        """Begin a request: ``work`` is its generator; ``event`` happens when it is done, however it ends.

        ``failed`` is called with its error. ``order`` and ``what``, if the device waits from now on: see `await_event`.
        """
        request = _Request(work, event, failed)
        if what is not None:
            self.await_event(event, order, what)
        if not request.go_on():
            try:
                with self._lock:
                    self._under_way.append(request)  # after an error, too: MPI may still use its memory
                    if self.error is None:
                        self._call_thread()
                        return
            except RuntimeError as error:  # no thread can be started
                failed(error)
        self._done(event)

    def await_event(self, event, order, what):
        """From now on a device waits for the ``event`` of a request; ``order``, ``what``: as of `Waiting`."""
        self._waits[event] = Waiting(time.monotonic(), order, what)
        if event.done():
            self._waits.pop(event, None)

    @contextlib.contextmanager
    def slot(self, order, tag):
        """A communicator for one exchange of several devices; its messages have tags from ``tag`` on."""
        slot = _Slot(self, order, tag)
        self._slots[slot] = None
        try:
            yield slot
        finally:
            del self._slots[slot]

    def give_up(self, error):
        """End all waiting with ``error``. Messages under way may still arrive: their memory is kept."""
        with self._lock:
            told, self.error = self.error is not None, self.error or error
        for request in list(self._under_way):
            if not told:
                request.failed(error)
            self._done(request.event)

    def _call_thread(self):
        self._called.set()
        if not self._runs:
            threading.Thread(target=self._work, name="d2lmgpu progress", daemon=True).start()
            self._runs = True  # only now: the start may fail

    def _work(self):
        since = time.monotonic()
        while True:
            if not self._under_way:
                if not self._called.wait(IDLE):
                    with self._lock:
                        if not self._under_way:
                            self._runs = False
                            return
                self._called.clear()
                since = time.monotonic()
            elif self._look():
                since = time.monotonic()
            elif self.error is not None:
                with self._lock:
                    self._runs = False
                return
            elif time.monotonic() - since < SPIN:
                yield_core()
            elif self._called.wait(sleep_after(time.monotonic() - since)):
                self._called.clear()
                since = time.monotonic()

    def _look(self):
        """Go on with each request whose message has arrived or left; returns whether there was one."""
        moved = False
        for request in list(self._under_way):
            before = request.begun
            over = request.go_on()
            moved = moved or over or request.begun != before
            if over:
                self._under_way.remove(request)
                self._done(request.event)
        return moved

    def _done(self, event):
        with contextlib.suppress(Exception):  # it has happened already, by `give_up`
            event.set_result(None)
        self._waits.pop(event, None)


class _Request:
    def __init__(self, work, event, failed):
        self.work, self.event, self.failed = work, event, failed
        self.pending, self.begun = None, 0  # MPI's request that it waits for, and how many it has begun

    def go_on(self):
        """Go on without waiting; returns whether the request is done. Then it holds no memory of the message."""
        try:
            while self.pending is None or self.pending.Test():
                self.pending = None
                self.pending = next(self.work)
                self.begun += 1
        except StopIteration:
            self.work = None
        except BaseException as error:
            self.work = None
            self.failed(error)
        return self.work is None


class _Slot(Communicator):
    """A `Communicator` beside others that wait at the same time. ``order`` tells which of them is missing first."""

    def __init__(self, progress, order, tag):
        super().__init__(progress.comm, progress.heard, tag)
        self.progress, self.collectives, self.left_behind = progress, order, progress.left_behind

    def begin(self):
        """As of `Communicator`; the number of the collective is ``order``."""
        self.look()

    def look(self):
        """Raise the progress thread's error, if it has given up."""
        if self.progress.error is not None:
            raise self.progress.error
