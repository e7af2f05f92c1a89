"""Messages of plans: each goes from one device to one of another process, and any number may be under way at a time.

A device hands in what is to be sent, or asks for what is to come, and goes on; its queue waits for the event where the
plan says so. One thread of the process, the progress thread, takes care of all messages that are under way:

    cpu(0)     F 0 │ hand in y 0 │ F 1 │ hand in y 1 │ ... │ (y 0 has left) free y 0
    progress         ├── sends y 0 ────────┤
                                    ├── sends y 1 ────┤

The work for one message is a `_Request`. It runs a generator that begins one operation of MPI after the other, and
yields MPI's own request for each.
"""

import collections
import contextlib
import threading
import time

from .communicator import SPIN, Communicator, Waiting, sleep_after, yield_core

IDLE = 1.0
"""Seconds without requests after which the thread ends; the next request starts another."""


class ProgressThread:
    """The progress thread of one process. ``comm``: MPI's communicator for plans' messages alone; ``heard``: as in
    `Communicator`.
    """

    def __init__(self, comm, heard):
        self.comm, self.heard, self.error = comm, heard, None
        self._under_way, self._waits, self._slots, self.left_behind = collections.deque(), {}, {}, []
        self._lock = threading.Lock()  # taken by devices' threads and the progress thread, never by the host program
        self._called = threading.Event()
        self._runs = False

    @property
    def waiting(self):
        """A `Waiting` for the first, in order, of the messages that devices wait for; None if they wait for none.

        Its ``since`` is when the longest of these waits began.
        """
        waits = [*filter(None, [*self._waits.values(), *(slot.waiting for slot in list(self._slots))])]
        if not waits:
            return None
        first = min(waits, key=lambda waiting: (waiting.collective, waiting.what[1].transfer.number))
        return first._replace(since=min(waiting.since for waiting in waits))

    def run(self, work, event, failed, order=None, what=None):
        """Begin a request: ``work`` is its generator; ``event`` happens when it is done, also if that is by an error.

        ``failed(error)`` is called for an error. ``order`` and ``what`` are given if a device waits from now on, see
        `await_event`.
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
                failed(self.error)
            except RuntimeError as error:  # no thread can be started
                failed(error)
        self._done(event)

    def await_event(self, event, order, what):
        """From now on a device waits for the ``event`` of a request. ``order`` and ``what``: see `Waiting`.

        ``order`` is the number of the collective.
        """
        self._waits[event] = Waiting(time.monotonic(), order, what)
        if event.done():
            self._waits.pop(event, None)

    @contextlib.contextmanager
    def slot(self, order, tag):
        """A `Communicator` for one exchange between several devices; the tags of its messages begin at ``tag``."""
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
        """Continue every request whose message has arrived or left; returns whether there was any."""
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
        with contextlib.suppress(Exception):  # `give_up` may have set the event already
            event.set_result(None)
        self._waits.pop(event, None)


class _Request:
    def __init__(self, work, event, failed):
        self.work, self.event, self.failed = work, event, failed
        self.pending, self.begun = None, 0  # MPI's request that it waits for, and how many it has begun

    def go_on(self):
        """Continue as far as possible without waiting; returns whether the request is done.

        A request that is done no longer keeps its message's memory alive.
        """
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
    """One of several `Communicator` that may wait at the same time; the one with the lowest ``order`` is reported."""

    def __init__(self, progress, order, tag):
        super().__init__(progress.comm, progress.heard, tag)
        self.progress, self.collectives, self.left_behind = progress, order, progress.left_behind

    def begin(self):
        """As in `Communicator`, but nothing is counted: the number of the collective is ``order``."""
        self.look()

    def look(self):
        """Raise the progress thread's error, if it has given up."""
        if self.progress.error is not None:
            raise self.progress.error
