"""Threads that work through the queues of devices.

    queue of cpu(0) ─┐                            ┌─→ thread, on a core
    queue of cpu(1) ─┼─→ devices with work to do ─┤
    queue of cpu(2) ─┘                            └─→ thread, on a core

There may be many more virtual devices than cores. A thread for each would share
the cores among all of them at all times, wake and be woken at every meeting, and
push each other's numbers out of the caches. Instead a thread takes a device, does
its work up to where it must wait for another's, and takes the next device.
"""

import queue
import threading
import time

PATIENCE = 0.1
"""Seconds without progress after which threads are added: those there are may be waiting for the devices in line."""

_this_thread = threading.local()


def current_device():
    """The device whose work this thread is doing, or None on the host program's threads."""
    return getattr(_this_thread, "device", None)


class Workers:
    """Up to ``count`` threads for any number of devices; more while work that blocks holds all of them."""

    def __init__(self, count):
        self._count = count
        self._devices = 0  # that are served
        self._threads = 0
        self._in_line = queue.SimpleQueue()  # devices with work to do
        self._progress = 0  # pieces of work that were done
        self._lock = threading.Lock()
        self._wanted = threading.Event()

    def join(self):
        """One device more will be served."""
        with self._lock:
            self._devices += 1
            if self._threads < self._count:
                self._add_thread()
            if self._devices == 2:  # one by itself has nobody to wait for
                threading.Thread(target=self._watch, name="d2lmgpu watch", daemon=True).start()

    def serve(self, device):
        """Let a thread call ``device.work()`` until that says that there is nothing more to do now."""
        self._in_line.put(device)
        if not self._wanted.is_set():
            self._wanted.set()

    def _add_thread(self):
        self._threads += 1
        threading.Thread(target=self._work, name="d2lmgpu worker", daemon=True).start()

    def _work(self):
        while True:
            _this_thread.device = device = self._in_line.get()
            more = True
            while more:
                more = device.work()
                self._progress += 1
            _this_thread.device = None
            if self._threads > self._count:
                with self._lock:
                    if self._threads > self._count:
                        self._threads -= 1
                        return

    def _watch(self):
        """Work on devices should not wait for other devices. If it does all the same, it must not wait for ever."""
        while True:
            self._wanted.wait()
            self._wanted.clear()
            before = self._progress
            time.sleep(PATIENCE)
            while (waiting := self._in_line.qsize()) and self._progress == before:
                with self._lock:
                    for _ in range(waiting):
                        self._add_thread()
                time.sleep(PATIENCE)
