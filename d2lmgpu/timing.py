"""Where the time of a training step goes: spans of work, by device, on one clock.

Code marks its work with ``with span("forward"):``, which costs nothing until
somebody measures the device on whose queue it runs. Then a span is its name and
two readings of the device's clock, about a microsecond in all: nobody waits for
anything. A CPU's clock is the program's. A GPU's work happens later than it is
launched, so there a reading is a CUDA event in the stream.
"""

import contextlib
import threading
import time
from typing import NamedTuple

from .devices import current_device, synchronize

PHASES = ("data", "forward", "backward", "allreduce", "update", "step", "waiting")
"""What a training run's time is told in. "step" is a step in one piece, a CUDA graph; "waiting" is time in no span."""

_timelines = {}  # device: the timeline that measures it
_this_thread = threading.local()  # .timeline: the one that measures the host program's thread


class Span(NamedTuple):
    """Work that was done: the row is a device's name or "host", times are seconds since the start."""

    row: str
    name: str
    begin: float
    end: float


class Timeline:
    """Measures the calling thread and ``devices`` within a ``with`` block.

    ``spans=True`` keeps every span (for a trace), otherwise only sums of seconds
    are kept. Two measurements can go on at a time, not of the same device.
    """

    def __init__(self, devices, spans=False):
        self.devices = list(devices)
        self.keeps_spans = spans
        self._open = {}  # device: readings whose times are not known yet
        self._sums = {}  # device (None for the host program): {name: seconds}
        self._spans = []
        self._lock = threading.Lock()

    def __enter__(self):
        for device in self.devices:
            if device in _timelines:
                raise RuntimeError(f"{device} is being measured already, by another training run that uses it")
        self.begin = time.perf_counter()
        self._zeros = {device: device.submit(device.start_clock) for device in self.devices}
        self._zeros = {device: zero.result() for device, zero in self._zeros.items()}
        _timelines.update(dict.fromkeys(self.devices, self))
        self._outer = getattr(_this_thread, "timeline", None)
        _this_thread.timeline = self
        return self

    def __exit__(self, *exception):
        for device in self.devices:
            _timelines.pop(device, None)
        _this_thread.timeline = self._outer

    def add(self, device, name, begin, end):
        """Enter a span by two readings of the device's clock (None: the host program's)."""
        if device is not None and device.clock_is_late:
            with self._lock:
                self._open.setdefault(device, []).append((name, begin, end))
            return
        self._enter(device, name, begin - self.begin, end - self.begin)

    def settle(self):
        """Read the clocks of late devices; to be called when they are synchronised. Keeps memory from growing."""
        with self._lock:
            waiting, self._open = self._open, {}
        for device, readings in waiting.items():
            known = self._zeros.get(device) or self._zeros[device.main]
            for name, begin, end in readings:  # each from the one before: over a short time a GPU tells it well
                begin = known = device.read_clock(known, begin)
                end = device.read_clock(known, end)
                self._enter(device, name, begin[1] - self.begin, end[1] - self.begin)
            self._zeros[device] = known

    def _enter(self, device, name, begin, end):
        sums = self._sums.setdefault(device, {})
        sums[name] = sums.get(name, 0.0) + end - begin
        if self.keeps_spans:
            self._spans.append(Span("host" if device is None else str(device), name, begin, end))

    def all_spans(self):
        """All spans, by begin. Waits for the devices."""
        synchronize(self.devices)
        self.settle()
        return sorted(self._spans, key=lambda span: span.begin)

    def phases(self, seconds):
        """Seconds in each of `PHASES` of ``seconds`` of training. Waits for the devices.

        Means over the devices, which with "waiting" add up to ``seconds``; but for
        "data", the host program's time, and "allreduce" on the devices' channels,
        which go on beside the others.
        """
        synchronize(self.devices)
        self.settle()
        rows = [self._sums.get(device, {}) for device in self.devices]
        result = {name: sum(row.get(name, 0.0) for row in rows) / len(rows) for name in PHASES}
        result["waiting"] = max(0.0, seconds - sum(result.values()))
        result["data"] += self._sums.get(None, {}).get("data", 0.0)
        channels = [device for device in self._sums if device is not None and device.main is not device]
        result["allreduce"] += sum(self._sums[channel].get("allreduce", 0.0) for channel in channels) / len(rows)
        return result

    def utilisation(self, seconds):
        """Of each device, by name, the part of ``seconds`` for which it worked. Waits for the devices."""
        synchronize(self.devices)
        self.settle()
        return {
            str(d): min(1.0, sum(self._sums.get(d, {}).values()) / seconds) if seconds else 0.0 for d in self.devices
        }


@contextlib.contextmanager
def paused(devices):
    """Measure nothing on ``devices`` within the ``with`` block."""
    timelines = {device: _timelines.pop(device) for device in devices if device in _timelines}
    try:
        yield
    finally:
        _timelines.update(timelines)


class span:
    """Mark the ``with`` block as work by name: of the device on whose queue it runs, or of the host program.

    ``begin`` and ``end`` do the same for work that is no block.
    """

    __slots__ = ("name", "device", "timeline", "since")

    def __init__(self, name):
        self.name = name

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
            self.timeline.add(self.device, self.name, self.since, now)

    __enter__, __exit__ = begin, end


def rows_of(spans):
    """The rows of spans in the order in which they are shown: the host program first."""
    return sorted({span.row for span in spans}, key=lambda row: (row != "host", row))


def chrome_trace(spans):
    """Spans as a Chrome trace, a dict for JSON: a row a device. ui.perfetto.dev and chrome://tracing open it."""
    rows = rows_of(spans)
    events = [
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": number, "args": {"name": row}}
        for number, row in enumerate(rows)
    ]
    for row, name, begin, end in spans:  # in microseconds
        tid = rows.index(row)
        events.append({"name": name, "ph": "X", "pid": 0, "tid": tid, "ts": begin * 1e6, "dur": (end - begin) * 1e6})
    return {"traceEvents": events, "displayTimeUnit": "ms"}


@contextlib.contextmanager
def spans(devices, name):
    """Mark the ``with`` block as work of all ``devices``, virtual ones, that the calling thread does for them."""
    begin = time.perf_counter()
    yield
    end = time.perf_counter()
    for device in devices:
        if device.main in _timelines:
            _timelines[device.main].add(device, name, begin, end)
