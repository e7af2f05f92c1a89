"""The record of transfers: from where to where each went, how many bytes it had and how long it took.

Code that copies data to or from a device calls `note_transfer` first, and then does the copy through `timed`.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from .workers import current_device, moment

_logs = {}  # for each open `record_transfers`: the records, and the devices with the moment of their first transfer
_thread = threading.local()  # .silent: see `nothing_noted`


@dataclass
class TransferRecord:
    """One transfer: the names of its source and destination, the bytes, and the seconds that the copy itself took.

    ``seconds`` is None until the copy is done.
    """

    source: str
    destination: str
    nbytes: int
    seconds: float | None = None


@contextlib.contextmanager
def record_transfers() -> Iterator[list[TransferRecord]]:
    """Record every transfer that is started in the ``with`` block, in a list.

    >>> with record_transfers() as transfers:
    ...     y = put(x, cpu(1))
    >>> transfers
    [TransferRecord(source='cpu(0)', destination='cpu(1)', nbytes=40, seconds=1.2e-06)]

    The end of the block waits for the devices that took part, so that all times are known, and raises the first error
    not yet raised by work submitted to them since their first transfer in the block. Within the block, a GPU waits for
    each copy to end in order to time it, which makes the program slower.
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
        device.failures.look(since)


@contextlib.contextmanager
def nothing_noted():
    """Within the block, do not record this thread's transfers, such as those that only become a part of a graph."""
    _thread.silent = True
    try:
        yield
    finally:
        _thread.silent = False


def note_transfer(source, destination, nbytes):
    """Add a transfer to the lists of all open `record_transfers`; return its record, or None if none is open."""
    if not _logs or getattr(_thread, "silent", False):
        return None
    record = TransferRecord(str(source), str(destination), nbytes)
    for records, devices in list(_logs.values()):
        records.append(record)
        for place in (source, destination):
            if hasattr(place, "end"):  # a device of this process, not the host or one of another process
                devices.setdefault(place, moment())
    return record


def timed(record, function, *args, **kwargs):
    """Call ``function(*args, **kwargs)``, and add the time that it takes to the record, if there is one."""
    if record is None:
        return function(*args, **kwargs)
    _drain_stream()
    begin = time.perf_counter()
    result = function(*args, **kwargs)
    _drain_stream()
    record.seconds = (record.seconds or 0.0) + time.perf_counter() - begin
    return result


def _drain_stream():
    if getattr(current_device(), "kind", None) == "gpu":
        current_device().stream.synchronize()
