"""Mark work with a name, so that a `Timeline` (timeline.py) can measure where the time goes."""

import threading
import time

from .workers import current_device

_timelines = {}  # by device: the timeline that measures it
_this_thread = threading.local()  # .timeline: the timeline that measures the host program's thread


class span:
    """Mark the ``with`` block as named work of the device that runs it, or of the host program.

    ``begin`` and ``end`` do the same for work that is not a block. ``devices``: all the devices that
    do the work; one of them launches it, or does it for all.
    """

    __slots__ = ("name", "devices", "device", "timeline", "since")

    def __init__(self, name, devices=()):
        self.name, self.devices = name, devices

    def begin(self):
        """The work begins."""
        self.device = current_device()
        if self.device is None:
            self.timeline = getattr(_this_thread, "timeline", None)
        else:
            self.timeline = _timelines.get(self.device.main)
        if self.timeline is not None:
            self.since = time.perf_counter() if self.device is None else self.device.clock()

    def end(self, *exception):
        """The work ends; it may begin again."""
        if self.timeline is not None:
            now = time.perf_counter() if self.device is None else self.device.clock()
            self.timeline.add(self.device, self.name, self.since, now, self.devices)

    __enter__, __exit__ = begin, end
