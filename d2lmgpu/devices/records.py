"""The record of transfers: what went from where to where, how many bytes, and how long it took.

Whoever lets data leave a device notes it first, and times the copy itself.
"""

import contextlib
import time
from dataclasses import dataclass

from .workers import current_device, moment

_logs = []


@dataclass
class TransferRecord:
    """One transfer: names of the two places, bytes moved, seconds that the copy itself took.

    ``seconds`` is None until the copy is done.
    """

    source: str
    destination: str
    nbytes: int
    seconds: float = None


@contextlib.contextmanager
def record_transfers():
    """List every transfer that is issued in the ``with`` block.

    >>> with record_transfers() as transfers:
    ...     y = put(x, cpu(1))
    >>> transfers
    [TransferRecord(source='cpu(0)', destination='cpu(1)', nbytes=40, seconds=1.2e-06)]

    When the block ends, the devices that took part are waited for, so that all
    times are known; an error of work that was submitted since they took part, and
    that nobody waited for, is raised. While a record is kept, each copy on a GPU is waited for.
    """
    log = _Log()
    _logs.append(log)
    try:
        yield log.records
    finally:
        _logs.remove(log)
        for end in [device.end() for device in log.devices]:
            end.wait()
        for device, since in log.devices.items():
            device.failures.look(since)


class _Log:
    def __init__(self):
        self.records = []
        self.devices = {}  # with the moment at which each took part first, in this order


def note_transfer(source, destination, nbytes):
    """Enter a transfer into all open logs; returns its record, or None if nobody keeps one."""
    if not _logs:
        return None
    record = TransferRecord(str(source), str(destination), nbytes)
    for log in _logs:
        log.records.append(record)
        for place in (source, destination):
            if hasattr(place, "end"):  # a device of this process, not the host or one of another process
                log.devices.setdefault(place, moment())
    return record


def timed(record, function, *args, **kwargs):
    """``function(*args)`` on the thread of a device; its time is added to the record, if there is one."""
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
