"""Watch what an answer does with the devices: between which of them it copies numbers, and when it waits for work.

A `PretendDevice` only pretends to work, with a `FakeClock` that it moves itself, so that every time is known.
"""

import contextlib
import threading

from ..devices import DONE, Device, DeviceArray, Failures, cpu, current_device, put
from .exercise import expect

RAW = "reading .raw bypasses the rules, and on a GPU this would fail"


def spread(values, devices):
    """Copy arrays from the host to devices, one to each."""
    return [put(value, device) for value, device in zip(values, devices, strict=True)]


def row_of(k):
    """k virtual devices; if k is odd, in an order in which a device's number is not its place in the list."""
    return [cpu(i) for i in range(k)][:: 1 if k % 2 == 0 else -1]


def check_place(array, device, what, hint):
    """Raise `Wrong` unless an array is on the device; ``what`` describes the array in words."""
    place = array.device if isinstance(array, DeviceArray) else "the host"
    expect(place is device, f"{what} is on {place}", hint)


def check_ways(transfers, devices, numbers):
    """Raise `Wrong` if this many float32 ``numbers`` went through the host, or a device got fewer from the others."""
    places, nbytes = set(map(str, devices)), 4 * numbers
    if len(places) == 1:
        return
    up = sum(t.nbytes for t in transfers if t.source in places and t.destination == "host")
    down = sum(t.nbytes for t in transfers if t.source == "host" and t.destination in places)
    said = f"right, but the numbers went through the host: {up:,} bytes to it and {down:,} from it"
    hint = "put copies from device to device; through the host, which all devices share, numbers are copied twice"
    expect(up < nbytes or down < nbytes, said, hint)
    for place in sorted(places):
        got = sum(t.nbytes for t in transfers if t.destination == place != t.source and t.source != "host")
        said = f"right, but only {got:,} bytes came to {place} from other devices; the sum has {nbytes:,}"
        expect(got >= nbytes, said, f"copy numbers with put; {RAW}")


@contextlib.contextmanager
def watch(devices):
    """A list of what the host program does with these devices during the ``with`` block, in order.

    An entry (thread, device, task, n) means that it submits a task, as the n-th entry. An entry (thread, device, None,
    n) means that it waits until everything is done that it has submitted to this device up to the n-th entry.
    """
    seen = []
    for device in devices:
        _watch_one(device, seen)
    try:
        yield seen
    finally:
        for device in devices:
            del device.submit, device.end


def _watch_one(device, seen):
    submit, end = device.submit, device.end

    def submitting(function, *args):
        task = submit(function, *args)
        if current_device() is None:  # the host program, and not work on a device
            number = len(seen)
            task.wait = waiting(task.wait, number)
            seen.append((threading.get_ident(), device, task, number))
        return task

    def waiting(wait, number=None):
        def recorded(*args):
            seen.append((threading.get_ident(), device, None, len(seen) if number is None else number))
            return wait(*args)

        return recorded

    device.submit, device.end = submitting, waiting(end)


SUBMIT = "submit to all devices first, tasks = [device.run(...) for ...], and then wait: task.result() for each"


def check_at_once(seen):
    """Raise `Wrong` if a device got its work only after a wait for another device's. ``seen``: the list from `watch`.

    A device's work is its first task that returns several things, such as a loss and gradients. Each thread of the host
    program is checked separately, since one may still submit work while another waits.
    """
    begun, waited = {}, {}  # by device, its work's thread and number; by thread, the first device it waited for
    for thread, device, task, number in seen:
        if task is None:
            if device in begun and begun[device][0] == thread and begun[device][1] <= number:
                waited.setdefault(thread, device)
        elif device not in begun and isinstance(task.value, list | tuple):
            late = f"you waited for {waited.get(thread)} before you gave work to {device}"
            expect(thread not in waited, f"right, but one device after the other: {late}", SUBMIT)
            begun[device] = thread, number


class FakeClock:
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
        return DONE
