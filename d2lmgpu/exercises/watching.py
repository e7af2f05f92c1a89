"""What an answer did with the devices: between which of them numbers travelled, and when it waited for work."""

import contextlib
import threading
from typing import NamedTuple

from ..devices import DeviceArray, current_device, put
from ..devices.workers import moment
from .results import expect

RAW = "reading .raw gets around the rules, which a GPU would not forgive"


def spread(values, devices):
    """Arrays of the host as arrays of devices, one on each."""
    return [put(value, device) for value, device in zip(values, devices, strict=True)]


def check_place(array, device, what, hint):
    """Raise `Wrong` unless an array, which is ``what``, is on the device."""
    place = array.device if isinstance(array, DeviceArray) else "the host"
    expect(place is device, f"{what} is on {place}", hint)


def check_ways(transfers, devices, numbers):
    """Raise `Wrong` if so many float32 ``numbers`` went through the host, or a device got fewer from the others."""
    places, nbytes = set(map(str, devices)), 4 * numbers
    up = sum(t.nbytes for t in transfers if t.source in places and t.destination == "host")
    down = sum(t.nbytes for t in transfers if t.source == "host" and t.destination in places)
    said = f"right, but the numbers went through the host: {up:,} bytes to it and {down:,} from it"
    hint = "put copies from device to device; through the host numbers are copied twice, and all devices share it"
    expect(up < nbytes or down < nbytes, said, hint)
    for place in sorted(places):
        got = sum(t.nbytes for t in transfers if t.destination == place != t.source and t.source != "host")
        said = f"right, but only {got:,} bytes came to {place} from other devices; the sum has {nbytes:,}"
        expect(got >= nbytes, said, f"copy numbers with put; {RAW}")


class Watch(NamedTuple):
    """What a host program did with some devices: the tasks that it submitted, and its waits, in their order."""

    tasks: list  # (moment, thread, device, task)
    waits: list  # (moment, thread, device, when that which is waited for was submitted)

    def in_line(self, is_it):
        """Two devices, the second of which got its work only after a wait for the first one's. None if there are none.

        A device's work is its first task with a result for which ``is_it`` is true. Threads of the host program are
        looked at one by one: while one waits, another may still submit.
        """
        first = {}
        for when, thread, device, task in self.tasks:
            if device not in first and is_it(task.value):
                first[device] = when, thread
        for one, (begun, thread) in first.items():
            waits = [now for now, who, where, since in self.waits if where is one and who == thread and since >= begun]
            for other, (when, who) in first.items():
                if who == thread and waits and when > min(waits):
                    return one, other
        return None


@contextlib.contextmanager
def watch(devices):
    """A `Watch` on these devices during the ``with`` block."""
    seen = Watch([], [])
    for device in devices:
        _watch_one(device, *seen)
    try:
        yield seen
    finally:
        for device in devices:
            vars(device).pop("submit", None)
            vars(device).pop("end", None)


def _watch_one(device, tasks, waits):
    submit, end = device.submit, device.end

    def submitting(function, *args):
        task, now = submit(function, *args), moment()
        if current_device() is None:  # the host program, and not work on a device
            tasks.append((now, threading.get_ident(), device, task))
            task.wait = waiting(task.wait, lambda: now)
        return task

    def waiting(wait, since):
        def recorded(*args):
            waits.append((moment(), threading.get_ident(), device, since()))
            return wait(*args)

        return recorded

    device.submit, device.end = submitting, waiting(end, moment)
