"""Threads that work through the queues of devices.

    queue of cpu(0) ─┐                            ┌─→ thread, on a core
    queue of cpu(1) ─┼─→ devices with work to do ─┤
    queue of cpu(2) ─┘                            └─→ thread, on a core

There may be many more virtual devices than cores. With a thread for each, the cores would be shared among all of them
all the time, every exchange would wake threads, and the threads would push each other's data out of the cores' caches.
Instead, a thread takes a device, does its work until none is left or the device must wait for another one, and then
takes the next device.

Where there can be no threads, as in a browser tab, the thread that submits work to virtual devices also does it: the
same tasks by the same rules, but nothing happens at the same time, and there are no GPUs. The environment variable
D2LMGPU_THREADS=0 has the same effect anywhere.
"""

import _thread
import collections
import contextlib
import itertools
import os
import queue
import sys
import threading
import time

from .errors import DeviceError

IN_A_TAB = sys.platform in ("emscripten", "wasi")
"""Whether this is Python for WebAssembly, as in a browser tab, which has no threads, processes or signals."""

THREADS = os.environ.get("D2LMGPU_THREADS") != "0" and not IN_A_TAB
"""Whether devices can have threads that do their work."""

_PATIENCE = 0.1
"""Seconds without progress after which threads are added.

The threads that exist may all be blocked by work that waits for devices still in line.
"""

_this_thread = threading.local()

_process = None  # the number of the process that uses devices: this one, or one from which it was forked


def use_devices():
    """Remember that this process uses devices. Raises DeviceError in a fork of one that did."""
    global _process
    check_not_forked()
    _process = os.getpid()


def check_not_forked():
    """Raise DeviceError in a fork of a process that used devices: it has none of their threads, and no CUDA."""
    if _process not in (None, os.getpid()):
        raise DeviceError("this process is a fork of one that used devices, which do not survive that; use 'spawn'")


moment = itertools.count(1).__next__
"""`moment()` returns a counter's next number, to tell whether a task was submitted before an array was made."""


def current_device():
    """The device whose work this thread is doing; None on the host program's threads."""
    return getattr(_this_thread, "device", None)


@contextlib.contextmanager
def working_for(device):
    """Within the block, this thread's work counts as that of ``device``."""
    before, _this_thread.device = current_device(), device
    try:
        yield
    finally:
        _this_thread.device = before


class Workers:
    """Up to ``count`` threads for any number of devices; more while all these threads are blocked by their work.

    The host program calls `join` and `serve`, and may be interrupted anywhere in them: they take no lock, and can be
    called again.
    """

    def __init__(self, count):
        self._count = count
        self._devices = 0  # how many are served
        self._threads = 0
        self._watched = False
        self._in_line = queue.SimpleQueue()  # devices with work to do
        self._progress = 0  # how many calls of a device's `work` have ended
        self._lock = threading.Lock()  # taken by the threads here, never by the host program
        self._wanted = threading.Lock()  # a bell: the watching thread sleeps on it until `serve` releases it

    def join(self):
        """Add a device to those that are served, and threads if they are too few."""
        self._devices += 1
        _thread.start_new_thread(self._hire, ())

    def serve(self, device):
        """Let a thread call ``device.work()`` until that returns False, when there is nothing left to do now."""
        self._in_line.put(device)
        if self._wanted.locked():
            with contextlib.suppress(RuntimeError):  # another thread has already released it
                self._wanted.release()

    def _hire(self):
        """Runs on a short-lived thread: ``Thread.start`` takes locks, so an interrupt must not reach it."""
        with self._lock:
            while self._threads < min(self._count, self._devices):
                self._add_thread()
            if not self._watched and self._devices > self._count:  # else each device has a thread of its own
                threading.Thread(target=self._watch, name="d2lmgpu watch", daemon=True).start()
                self._watched = True

    def _add_thread(self):
        threading.Thread(target=self._work, name="d2lmgpu worker", daemon=True).start()
        self._threads += 1

    def _work(self):
        while True:
            _this_thread.device = device = self._in_line.get()
            more = True
            while more:
                try:
                    more = device.work()
                except BaseException:  # such as by a trace function that a task has left in this thread
                    time.sleep(0.001)  # it may be raised again and again
                self._progress += 1
            _this_thread.device = None
            if self._threads > self._count:
                with self._lock:
                    if self._threads > self._count:
                        self._threads -= 1
                        return

    def _watch(self):
        """Add threads while none makes progress: work should not block until another device has worked, but might."""
        while True:
            self._wanted.acquire()
            before = self._progress
            time.sleep(_PATIENCE)
            while waiting := self._in_line.qsize():  # until the line is empty: nothing else may wake this thread again
                if self._progress == before:
                    with self._lock:
                        for _ in range(min(waiting, self._devices - self._threads)):
                            self._add_thread()
                before = self._progress
                time.sleep(_PATIENCE)


class NoThreads:
    """The replacement for `Workers`, one for all devices: the host program does their work when it submits it."""

    def __init__(self):
        self._in_line = collections.deque()  # devices with work to do
        self._turn = threading.RLock()  # of threads that the host program has started
        self._at_work = False

    def join(self):
        """Add a device to those that are served."""

    def serve(self, device):
        """Call ``device.work()`` until it returns False, then do the same for other devices that this has woken.

        Devices to which work submits more work, or which it wakes, wait in line until it has ended.
        """
        self._in_line.append(device)
        if not self._at_work:
            self.catch_up()

    def catch_up(self):
        """Do all that can be done now, even while a device is in the middle of work that waits for another device."""
        with self._turn:
            before, self._at_work = self._at_work, True
            try:
                while self._in_line:
                    device = self._in_line.popleft()
                    with working_for(device):
                        while device.work():
                            pass
            finally:
                self._at_work = before


no_threads = NoThreads()


def make_workers(count):
    """The workers of virtual devices: `Workers`, or a replacement where there are no threads."""
    return Workers(count) if THREADS else no_threads
