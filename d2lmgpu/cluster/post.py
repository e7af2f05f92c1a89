"""The messages of plans: between single devices of several processes, any number of them under way at a time.

A device hands in what is to be sent, or asks for what is to come, and goes on; its queue waits for the event where the
plan says so. A thread of the process sees to all that is under way:

    cpu(0)   F 0 │ hand in y 0 │ F 1 │ hand in y 1 │ ... │ (y 0 has left) free y 0
    post           ├── sends y 0 ────────┤
                                  ├── sends y 1 ────┤

What it does for one message is an *errand*: a generator that yields one request of MPI after the other.
"""

import collections
import contextlib
import threading
import time

from .communicator import SPIN, Communicator, Waiting, most_tags, sleep_after, yield_core

IDLE = 1.0
"""Seconds without errands after which the thread ends; the next errand brings another."""


class Post:
    """That of one process. ``comm`` is a communicator of plans' messages alone; ``heard`` as of `Communicator`."""

    def __init__(self, comm, heard):
        self.comm, self.heard, self.error = comm, heard, None
        self._under_way, self._waits, self._slots, self.left_behind = collections.deque(), {}, {}, []
        self._lock = threading.Lock()  # of devices' threads and the post's own, never of the host program
        self._called = threading.Event()
        self._runs = False

    @property
    def most_tags(self):
        """The largest tag that a message may have."""
        return most_tags(self.comm)

    @property
    def waiting(self):
        """What is missing first of all that devices wait for, a `Waiting`, and since when any of them waits."""
        waits = [*self._waits.values(), *(slot.waiting for slot in list(self._slots))]
        waits = [waiting for waiting in waits if waiting is not None]
        if not waits:
            return None
        first = min(waits, key=lambda waiting: (waiting.collective, waiting.what[1].transfer.number))
        return first._replace(since=min(waiting.since for waiting in waits))

    def run(self, work, event, failed, order=None, what=None):
        """Begin an errand: ``work`` is its generator, ``event`` happens when it is done, however it ends.

        ``failed`` is called with its error. ``order`` and ``what``, if the device waits from now on: see `await_event`.
        """
        errand = _Errand(work, event, failed)
        if what is not None:
            self.await_event(event, order, what)
        if not errand.go_on():
            with self._lock:
                if self.error is None:
                    self._under_way.append(errand)
                    self._see_to_it()
                    return
        self._done(event)

    def await_event(self, event, order, what):
        """From now on a device waits for the ``event`` of an errand; ``order``, ``what``: as of `Waiting`."""
        self._waits[event] = Waiting(time.monotonic(), order, what)
        if event.done():
            self._waits.pop(event, None)

    @contextlib.contextmanager
    def slot(self, order, tag):
        """A communicator for one exchange of several devices, whose messages are numbered from ``tag`` on."""
        slot = _Slot(self, order, tag)
        self._slots[slot] = None
        try:
            yield slot
        finally:
            del self._slots[slot]

    def give_up(self, error):
        """Nobody waits any more: what is under way may arrive or not, and its memory is left to it."""
        with self._lock:
            told, self.error = self.error is not None, self.error or error
        for errand in list(self._under_way):
            if not told:
                errand.failed(error)
            self._done(errand.event)

    def _see_to_it(self):
        self._called.set()
        if not self._runs:
            self._runs = True
            threading.Thread(target=self._work, name="d2lmgpu post", daemon=True).start()

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
        """Go on with each errand whose request is done; returns whether there was one."""
        moved = False
        for errand in list(self._under_way):
            before = errand.requests
            over = errand.go_on()
            moved = moved or over or errand.requests != before
            if over:
                self._under_way.remove(errand)
                self._done(errand.event)
        return moved

    def _done(self, event):
        with contextlib.suppress(Exception):  # it has happened: given up just now
            event.set_result(None)
        self._waits.pop(event, None)


class _Errand:
    def __init__(self, work, event, failed):
        self.work, self.event, self.failed = work, event, failed
        self.request, self.requests = None, 0  # what it waits for, and how many there were

    def go_on(self):
        """As far as it gets without waiting; returns whether it is done. Then it holds no memory of the message."""
        try:
            while self.request is None or self.request.Test():
                self.request = None
                self.request = next(self.work)
                self.requests += 1
        except StopIteration:
            self.work = None
        except BaseException as error:
            self.work = None
            self.failed(error)
        return self.work is None


class _Slot(Communicator):
    """A `Communicator` beside others that wait at the same time. ``order`` tells which of them is missing first."""

    def __init__(self, post, order, tag):
        super().__init__(post.comm, post.heard)
        self.post, self.collectives, self.tag, self.left_behind = post, order, tag, post.left_behind

    def begin(self):
        """As of `Communicator`: its number is known."""
        self.look()

    def send(self, message, rank, tag):
        """As of `Communicator`."""
        return super().send(message, rank, self.tag + tag)

    def receive(self, room, rank, tag):
        """As of `Communicator`."""
        return super().receive(room, rank, self.tag + tag)

    def look(self):
        """Gives up when the post has."""
        if self.post.error is not None:
            raise self.post.error
