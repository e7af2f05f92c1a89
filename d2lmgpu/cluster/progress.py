"""Messages of plans: each goes from one device to a device of another process, and many may be under way at a time.

A device hands in what it sends, or asks for what it should receive, and continues; its queue waits for the message's
event where the plan says so. One thread of the process, the progress thread, takes care of all messages that are under
way:

    cpu(0)     F 0 │ hand in y 0 │ F 1 │ hand in y 1 │ ... │ (y 0 has left) free y 0
    progress         ├── sends y 0 ────────┤
                                    ├── sends y 1 ────┤
"""

import threading
import time

from .communicator import SPIN, Communicator, Waiting, sleep_after, yield_core


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
