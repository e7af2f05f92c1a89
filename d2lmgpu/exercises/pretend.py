"""Devices that only pretend to work, by a clock that only they move: on them every time is known.

>>> clock = Clock()
>>> device = PretendDevice(0, clock)
>>> device.work_for(30)
>>> device.synchronize()
>>> clock()
30.0
"""

from ..devices import HAPPENED, Device, Failures


class Clock:
    """A clock that stands still until somebody works or waits."""

    now = 0.0

    def __call__(self):
        return self.now


class PretendDevice(Device):
    """A device whose work takes exactly as long as it is told to."""

    kind = "pretend"

    def __init__(self, index, clock):
        self.index, self.main, self.failures = index, self, Failures()
        self.clock, self.until = clock, 0.0

    def work_for(self, seconds):
        """Submit work of so many seconds; the caller goes on at once."""
        self.until = max(self.until, self.clock.now) + seconds

    def end(self):
        """Who asks waits until the work is done: this is how `synchronize` begins."""
        self.clock.now = max(self.clock.now, self.until)
        return HAPPENED
