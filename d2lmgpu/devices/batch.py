"""Work for several devices that is submitted in one act.

A collective, a copy between two devices and a training step consist of work on
several devices that belongs together: if an interrupt ended the host program when
half of it is submitted, devices would wait for what never comes, or their
parameters drift apart. So it is gathered first, and then goes to all queues in one call:

    batch  [ A on cpu(0) | B on cpu(1), after A | C on both ]

                  commit      queue of cpu(0)  ... A C
                 ───────►     queue of cpu(1)  ... B C

Nothing comes in between, so that two collectives also come in the same order on all devices.
"""

import collections

from .array import unwrap, wrap
from .errors import DeviceError
from .task import Task
from .workers import current_device


class Batch:
    """Tasks of any devices, which come into being when `commit` is called, all of them, or never.

    Until then nobody may wait for them. Work that runs on a device may have a batch for that device only, whose tasks
    are done at once.
    """

    def __init__(self):
        self._tasks, self._after = [], {}

    def run(self, device, function, *args, **kwargs):
        """As `Device.run`."""
        return self.submit(device, *bind(device, function, args, kwargs))

    def submit(self, device, function, *args):
        """As `Device.submit`."""
        return self.submit_to_all([device], function, *args)

    def submit_to_all(self, devices, function, *args):
        """Submit work of all the ``devices`` together, virtual ones if there are several; returns its `Task`.

        It is done when all have got there, by one thread for all of them: waking a thread for each takes longer than a
        short piece of work.
        """
        after = [event for device in devices for event in self._after.pop(device, ())]
        task = Task(tuple(devices), function, args, after)
        if not is_inside(devices, task):
            self._tasks.append(task)
        return task

    def record(self, device):
        """An event: all work of the device before this place in the batch is done."""
        return self.submit(device, device.mark)

    def wait(self, device, event):
        """As `Device.wait`."""
        self._after.setdefault(device, []).append(check_event(event))

    def commit(self):
        """Submit everything."""
        for device in list(self._after):  # waits after which nothing was submitted
            self.submit(device, nothing)
        tasks, self._tasks = self._tasks, []
        queues = [device.tasks for task in tasks for device in task.devices]
        entries = [task for task in tasks for _ in task.devices]
        all_in_c(collections.deque.append, queues, entries)
        for device in {device: None for task in tasks for device in task.devices}:
            device.wake()  # an interrupt may come before: then whoever waits wakes it


def all_in_c(function, *arguments):
    """Call ``function``, one of those written in C, with the items of each list; no interrupt comes in between.

    Python looks for signals, and lets other threads go on, between the instructions of its own functions; while one of
    C's is at work there are none.
    """
    collections.deque(map(function, *arguments), maxlen=0)


def bind(device, function, args, kwargs):
    """What `run` submits: ``function`` of plain arrays for one of device arrays, with its arguments.

    Raises DeviceMismatchError if an argument is an array of another place.
    """
    args, kwargs = unwrap((args, kwargs), device, getattr(function, "__name__", "run"))
    return (lambda: wrap(function(*args, **kwargs), device),)


def is_inside(devices, task):
    """Do the task at once if the caller is itself work of its device; returns whether it is.

    Raises DeviceError for work that uses another device, and for a device that is gone.
    """
    for device in devices:
        if device.gone:
            raise DeviceError(device.gone)
    inside = current_device()
    if inside is None:
        return False
    for device in devices:
        if device is not inside:
            raise DeviceError(
                f"work running on {inside} tried to use {device}. Functions on a device use its own "
                "arrays only; let the host program issue transfers and other devices' work."
            )
    inside.do(task)
    return True


def check_event(event):
    """``event``, if it is one; TypeError otherwise."""
    if not isinstance(event, Task):
        raise TypeError(
            f"wait: {event!r} is no event; allowed is a Task, as run, submit and record return it "
            "(to wait for a while, use time.sleep or task.result(timeout))"
        )
    return event


def nothing():
    """Work that only takes its turn."""
