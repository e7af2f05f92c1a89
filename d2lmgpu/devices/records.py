"""What devices note while they work: transfers, for `record_transfers`, and spans of named work, for a `Timeline`.

Code that copies data to or from a device calls `note_transfer` first.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from .workers import current_device, moment

_logs = {}  # for each open `record_transfers`: the records, and the devices with the moment of their first transfer
_timelines = {}  # by device: the `Timeline` (timeline.py) that measures it
_this_thread = threading.local()  # .silent: see `nothing_noted`; .timeline: what measures the host program's thread


@dataclass
class TransferRecord:
    """One transfer: the names of its source and destination, and the bytes."""

    source: str
    destination: str
    nbytes: int


@contextlib.contextmanager
def record_transfers() -> Iterator[list[TransferRecord]]:
    """Record every transfer that is started in the ``with`` block, in a list.

    >>> with record_transfers() as transfers:
    ...     y = put(x, cpu(1))
    >>> transfers
    [TransferRecord(source='cpu(0)', destination='cpu(1)', nbytes=40)]

    The end of the block waits for the devices that took part, and raises the first error not yet raised by work
    submitted to them since their first transfer in the block.
    """
    log, records, devices = object(), [], {}
    _logs[log] = records, devices
    try:
        yield records
    finally:
        del _logs[log]
        for end in [device.end() for device in devices]:
            end.wait()
    for device, since in devices.items():
        device.failures.raise_since(since)


@contextlib.contextmanager
def nothing_noted():
    """Within the block, do not record this thread's transfers, such as those that only become a part of a graph."""
    _this_thread.silent = True
    try:
        yield
    finally:
        _this_thread.silent = False


def note_transfer(source, destination, nbytes):
    """Add a transfer to the lists of all open `record_transfers`."""
    if not _logs or getattr(_this_thread, "silent", False):
        return
    record = TransferRecord(str(source), str(destination), nbytes)
    for records, devices in list(_logs.values()):
        records.append(record)
        for place in (source, destination):
            if hasattr(place, "end"):  # a device of this process, not the host or one of another process
                devices.setdefault(place, moment())


class span:
    """Mark the ``with`` block as named work of the device that runs it, or of the host program.

    ``devices``: all the devices that do the work, if one of them launches it, or does it, for all.
    """

    __slots__ = ("name", "devices", "device", "timeline", "since")

    def __init__(self, name, devices=()):
        self.name, self.devices = name, devices

    def __enter__(self):
        self.device = current_device()
        if self.device is None:
            self.timeline = getattr(_this_thread, "timeline", None)
        else:
            self.timeline = _timelines.get(self.device.main)
        if self.timeline is not None:
            self.since = time.perf_counter() if self.device is None else self.device.clock()

    def __exit__(self, *exception):
        if self.timeline is not None:
            now = time.perf_counter() if self.device is None else self.device.clock()
            self.timeline.add(self.device, self.name, self.since, now, self.devices)
