"""Devices that only pretend to work, with a clock that they move themselves, so that every time is known.

>>> clock = Clock()
>>> device = PretendDevice(0, clock)
>>> device.work_for(30)
>>> device.synchronize()
>>> clock()
30.0
"""

from ..devices import HAPPENED, Device, Failures


class Clock:
    """A clock that moves only when the program waits for a pretend device, or when a check sets ``now``."""

    now = 0.0

    def __call__(self):
        return self.now


class PretendDevice(Device):
    """A device on which work takes exactly the time that was requested."""

    kind = "pretend"

    def __init__(self, index, clock):
        self.index, self.main, self.failures = index, self, Failures()
        self.clock, self.until = clock, 0.0

    def work_for(self, seconds):
        """Submit work that takes this many seconds. The caller continues at once."""
        self.until = max(self.until, self.clock.now) + seconds

    def end(self):
        """Move the clock to the end of the work; `synchronize` begins by calling this."""
        self.clock.now = max(self.clock.now, self.until)
        return HAPPENED
