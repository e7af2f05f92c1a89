"""Messages of plans: each goes from one device to a device of another process, and many may be under way at a time.

A device hands in what it sends, or asks for what it should receive, and continues; its queue waits for the message's
event where the plan says so. One thread of the process, the progress thread, takes care of all messages that are under
way:

    cpu(0)     F 0 │ hand in y 0 │ F 1 │ hand in y 1 │ ... │ (y 0 has left) free y 0
    progress         ├── sends y 0 ────────┤
                                    ├── sends y 1 ────┤

The work for one message is a generator that begins one operation of MPI after the other, and yields MPI's own request
for each.
"""

import threading
import time

from .communicator import SPIN, Communicator, Waiting, sleep_after, yield_core


class ProgressThread(Communicator):
    """The `Communicator` of one process for plans' messages alone, and its progress thread."""

    def __init__(self, comm, heard):
        super().__init__(comm, heard)
        self._under_way = []
        self._lock = threading.Lock()  # devices' threads also use `error` and what is under way
        self._called = threading.Event()
        threading.Thread(target=self._work, name="d2lmgpu progress", daemon=True).start()

    def run(self, work, event, failed):
        """Begin a request: ``work`` is its generator; ``event`` happens when the request is done, even if it fails.

        ``failed(error)`` is called if there is an error.
        """
        request = self._request(work, event, failed)
        if not next(request, False):  # it is done already
            return
        with self._lock:
            self._under_way.append((request, event, failed))  # after an error, too: MPI may still use its memory
            if self.error is None:
                self._called.set()
                return
        failed(self.error)
        self._done(event)

    def await_event(self, event, what, order):
        """Note that a device now waits for the ``event`` of a request. ``what`` and ``order``: see `Waiting`."""
        self._waits[event] = Waiting(time.monotonic(), order, what)
        if event.done():
            self._waits.pop(event, None)

    def give_up(self, error):
        """End all waiting with ``error``. Messages under way may still arrive, so their memory is kept."""
        with self._lock:
            told = self.error is not None
            self.error = self.error or error
        self._called.set()  # the thread ends
        for _, event, failed in list(self._under_way):
            if not told:
                failed(error)
            self._done(event)

    def _work(self):
        since = time.monotonic()
        while True:
            waited = time.monotonic() - since
            if self._look():
                since = time.monotonic()
            elif self.error is not None:
                return
            elif self._under_way and waited < SPIN:
                yield_core()
            elif self._called.wait(sleep_after(waited) if self._under_way else None):
                self._called.clear()
                since = time.monotonic()

    def _look(self):
        """Continue every request whose message has arrived or left; return whether any request is done now."""
        done = [one for one in list(self._under_way) if not next(one[0], False)]
        for one in done:
            self._under_way.remove(one)
        return bool(done)

    def _request(self, work, event, failed):
        """A generator that does the work, and yields True wherever it would have to wait.

        When the work is done, it no longer keeps its message's memory alive.
        """
        try:
            for pending in work:
                while not pending.Test():
                    yield True
        except Exception as error:
            failed(error)
        self._done(event)

    def _done(self, event):
        event.finish(None)  # if `give_up` has done so already, this changes nothing
        self._waits.pop(event, None)
