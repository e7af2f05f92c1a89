"""Where the time of a training step goes, in phases.

The step marks its phases (``with phase("allreduce"):``); they cost nothing
until somebody asks for them with `measure_phases`. Measuring waits for all
devices at the end of each phase, so that work which was submitted in a phase is
also counted there.
"""

import contextlib
import contextvars
import time

from .devices import synchronize

_measurement = contextvars.ContextVar("measurement", default=None)


@contextlib.contextmanager
def measure_phases(devices):
    """Yield a dict that fills with seconds spent in each phase, by name, within the ``with`` block."""
    seconds = {}
    token = _measurement.set((seconds, devices))
    try:
        yield seconds
    finally:
        _measurement.reset(token)


@contextlib.contextmanager
def phase(name):
    """Mark the ``with`` block as part of phase ``name``."""
    if _measurement.get() is None:
        yield
        return
    seconds, devices = _measurement.get()
    begin = time.perf_counter()
    yield
    synchronize(devices)
    seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - begin
