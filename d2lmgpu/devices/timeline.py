"""Where the time of a training step goes: spans of work on each device, measured on one clock.

Code marks its work with ``with span("forward"):``, which costs nothing unless the device that runs it is being
measured. In that case, the name and two readings of the device's clock are kept, which takes about a microsecond and
waits for nothing. A CPU's clock is the program's own. A GPU does its work some time after it is launched, so there a
reading is a CUDA event in the stream.
"""

import bisect
import contextlib
import itertools
import math
import time
from typing import NamedTuple

from .records import _this_thread, _timelines, span as span
from .task import wait_and_raise

PHASES = ("data", "forward", "backward", "allreduce", "update", "step", "waiting")
"""The phases of a training run. "step" is a whole step as a CUDA graph; "waiting" is time outside all spans."""

ALIKE = ("allreduce", "update")
"""Work that is the same on all devices, however many examples they have, even if they have none."""


class Span(NamedTuple):
    """Work that was done: ``row`` is a device's name or "host"; times are in seconds since the start."""

    row: str
    name: str
    begin: float
    end: float


class Timeline:
    """Measures the calling thread and ``devices`` within a ``with`` block.

    ``spans=True`` keeps every span (for a trace); otherwise only sums of seconds are kept. Where a device's spans
    overlap (one is part of another), the sums count the time once, under the name of the span that began first, so they
    never exceed the time that has passed. The training loop calls `settle` after the steps of an epoch, and
    `leave_out` after what does not count. Two measurements can run at the same time, but not of the same device.
    ``active``: whether this one is running.
    """

    active = False

    def __init__(self, devices, spans=False):
        self.devices, self.keeps_spans = list(devices), spans
        self._readings = []  # spans since the last `settle`, whose times may not be known yet
        self._sums = {}  # by device (None for the host program): {name: seconds}
        self._spans = []

    def __enter__(self):
        for device in self.devices:
            if device in _timelines and _timelines[device].active:
                raise RuntimeError(f"{device} is being measured already, by another training run that uses it")
        self.begin = time.perf_counter()
        clocks = {device.clock_name: device for device in self.devices if device.clock_name is not None}
        # one after another, so that they do not wait for each other
        zeros = {name: device.submit(device.start_clock).result() for name, device in clocks.items()}
        self._zeros = {device: zeros.get(device.clock_name) for device in self.devices}
        self.active = True
        _timelines.update(dict.fromkeys(self.devices, self))
        self._outer = getattr(_this_thread, "timeline", None)
        _this_thread.timeline = self
        return self

    def __exit__(self, *exception):
        self.active = False
        for device in self.devices:
            _timelines.pop(device, None)
        _this_thread.timeline = self._outer

    def add(self, device, name, begin, end, devices=()):
        """Add a span, given two readings of the device's clock (None: the host program's).

        ``devices``: the devices that did the work, if that is not ``device`` alone.
        """
        self._readings.append((device, name, begin, end, devices))

    def settle(self):
        """Add up what was measured since the last `settle` or `leave_out`; call it when devices are synchronised.

        Calling it often keeps memory from growing.
        """
        found = {device: list(_apart(spans)) for device, spans in self._read().items()}
        for device, spans in found.items():
            sums = self._sums.setdefault(device, {})
            beside = found.get(device.main, []) if device is not None and device.main is not device else []
            for begin, end, name in spans:
                sums[name] = sums.get(name, 0.0) + end - begin - _covered(begin, end, beside)

    def leave_out(self):
        """Leave out of the sums what was measured since the last `settle`; spans are kept. Waits for the devices."""
        wait_and_raise(self.devices)
        self._read()

    def _read(self):
        """Times of what was measured since the last call: {device: [(begin, end, name), ...]}, in seconds."""
        readings, self._readings = self._readings, []
        found = {}
        for device, name, begin, end, devices in readings:
            begin, end = self._times(device, begin, end)
            for one in devices or [device]:
                found.setdefault(one, []).append((begin, end, name))
                if self.keeps_spans:
                    self._spans.append(Span("host" if one is None else str(one), name, begin, end))
        return found

    def _times(self, device, begin, end):
        """Seconds since the start, for two readings of a clock."""
        if device is not None and device.clock_name is not None:
            known = self._zeros.get(device) or self._zeros[device.main]
            known, begin = device.read_clock(known, begin)  # relative to the last reading: GPUs time short spans well
            self._zeros[device] = _, end = device.read_clock((known, begin), end)
        return begin - self.begin, end - self.begin

    def _finish(self):
        """Wait for the devices, and add up what was measured."""
        wait_and_raise(self.devices)
        self.settle()

    def all_spans(self):
        """All spans, sorted by when they began. Waits for the devices."""
        self._finish()
        return sorted(self._spans, key=lambda span: span.begin)

    def phases(self, seconds):
        """How many of the ``seconds`` of training were spent in each of `PHASES`. Waits for the devices.

        These are means over the devices; with "waiting", they add up to ``seconds``, except that "data" also includes
        the host program's own time. An "allreduce" on the devices' comm streams counts only while a device did nothing
        else.
        """
        self._finish()
        rows = [self._sums.get(device, {}) for device in self.devices]
        rows += [sums for device, sums in self._sums.items() if device is not None and device.main is not device]
        result = {name: sum(row.get(name, 0.0) for row in rows) / len(self.devices) for name in PHASES}
        result["waiting"] = seconds - sum(sum(row.values()) for row in rows) / len(self.devices)
        result["data"] += self._sums.get(None, {}).get("data", 0.0)
        return result

    def utilisation(self, seconds):
        """For each device, by name, the fraction of ``seconds`` spent working on its shards. Waits for the devices.

        All of its work counts except `ALIKE`.
        """
        self._finish()
        rows = {str(device): self._sums.get(device, {}) for device in self.devices}
        worked = {row: sum(time for name, time in sums.items() if name not in ALIKE) for row, sums in rows.items()}
        return {row: time / seconds if seconds else 0.0 for row, time in worked.items()}


def _apart(spans):
    """(begin, end, name) without overlaps, in order: overlapping time goes to the span that began first."""
    covered = -math.inf
    for begin, end, name in sorted(spans, key=lambda span: (span[0], -span[1])):
        if end > covered:
            yield max(begin, covered), end, name
            covered = end


def _covered(begin, end, spans):
    """How many of the seconds from ``begin`` to ``end`` lie within ``spans``, which are sorted and do not overlap."""
    near = itertools.islice(spans, max(0, bisect.bisect(spans, (begin,)) - 1), None)
    near = itertools.takewhile(lambda span: span[0] < end, near)
    return sum(max(0.0, min(right, end) - max(left, begin)) for left, right, _ in near)


@contextlib.contextmanager
def paused(devices):
    """Measure nothing on ``devices`` within the ``with`` block."""
    timelines = {device: _timelines.pop(device) for device in devices if device in _timelines}
    try:
        yield
    finally:
        _timelines.update(timelines)


def rows_of_spans(spans):
    """The rows of spans in the order of display: the host program first."""
    return sorted({span.row for span in spans}, key=lambda row: (row != "host", row))


def chrome_trace(spans):
    """Spans as a Chrome trace, a dict for JSON, one row per device. ui.perfetto.dev and chrome://tracing open it."""
    rows = rows_of_spans(spans)
    events = [
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": i, "args": {"name": row}} for i, row in enumerate(rows)
    ]
    for row, name, begin, end in spans:  # in microseconds
        tid = rows.index(row)
        events.append({"name": name, "ph": "X", "pid": 0, "tid": tid, "ts": begin * 1e6, "dur": (end - begin) * 1e6})
    return {"traceEvents": events, "displayTimeUnit": "ms"}
