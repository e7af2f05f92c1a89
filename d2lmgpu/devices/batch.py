"""Work for several devices, submitted all at once.

The parts of a collective, of a copy between two devices or of a training step belong together. If an interrupt ended
the host program when half of them were submitted, devices would wait for ever, or their parameters would drift apart.
So the parts are gathered first, and then go to all queues in one call:

    batch  [ A on cpu(0) | B on cpu(1), after A | C on both ]

                  commit      queue of cpu(0)  ... A C
                 ───────►     queue of cpu(1)  ... B C

Nothing else that is submitted comes in between, so any two collectives are in the same order on all devices.
"""

import collections

from .array import unwrap, wrap
from .errors import DeviceError
from .task import Task
from .workers import check_not_forked, current_device


class Batch:
    """Tasks for any devices. Nothing is submitted before `commit`, which submits them all.

    Do not wait for a task before `commit`. Work that runs on a device may make a batch for that device only; its tasks
    are done at once.

    With a list of ``errors``, as a training step has, it fails as a whole: each part that fails adds its error to the
    list, even if it fails while it waits for an event; once there is an error, no part begins. Several batches may
    share a list.
    """

    def __init__(self, errors=None):
        self.errors, self._tasks, self._after = errors, [], {}

    def run(self, device, function, *args, **kwargs):
        """Like `Device.run`, but submitted by `commit`."""
        return self.submit(device, bind(device, function, args, kwargs))

    def submit(self, device, function, *args):
        """Like `Device.submit`, but submitted by `commit`."""
        return self.submit_to_all([device], function, *args)

    def submit_to_all(self, devices, function, *args):
        """Submit one piece of work that all ``devices`` do together; return its `Task`.

        The work begins when it is the next task of each of them, and one thread does it for all: waking a thread for
        each takes longer than a short piece of work. For GPUs, the work itself must give each device's stream its part.
        The events that the devices were to wait for hold back only the stream of the device whose thread does the work.
        """
        after = [event for device in devices for event in self._after.pop(device, ())]
        task = Task(tuple(devices), function, args, after, errors=self.errors)
        if not do_inside(devices, task):
            self._tasks.append(task)
        return task

    def record(self, device):
        """Like `Device.record`: an event at this place in the batch, completed when the work before it is done."""
        return self.submit(device, device.mark)

    def wait(self, device, event):
        """Like `Device.wait`, from this place in the batch on."""
        self._after.setdefault(device, []).append(event)

    def holds(self, task):
        """Whether the batch has this task and has not submitted it yet."""
        return task in self._tasks

    def commit(self):
        """Submit everything."""
        for device in list(self._after):  # no work that waits follows in this batch: submit empty work
            self.submit(device, nothing)
        tasks, self._tasks = self._tasks, []
        queues = [device.tasks for task in tasks for device in task.devices]
        entries = [task for task in tasks for _ in task.devices]
        # No interrupt comes in between: Python handles signals, and switches threads, between the instructions of
        # Python functions, and `map` and `deque` are written in C.
        collections.deque(map(collections.deque.append, queues, entries), maxlen=0)
        for device in {device: None for task in tasks for device in task.devices}:
            device.wake()  # if an interrupt prevents this, waiting for a task wakes its devices

    def check(self):
        """Raise the first of the ``errors``, if there are any."""
        if self.errors:
            raise self.errors[0]


def bind(device, function, args, kwargs):
    """A function without arguments, for `submit`: it calls ``function`` with plain arrays and wraps its results.

    Raises DeviceMismatchError if an argument is an array on another device or on the host.
    """
    args, kwargs = unwrap((args, kwargs), device, getattr(function, "__name__", "run"))
    return lambda: wrap(function(*args, **kwargs), device)


def do_inside(devices, task):
    """Do the task at once if this thread is doing work of the task's device; return whether that is so.

    The events that the task waits for come first. Raises DeviceError if this thread is doing work of another device,
    and in a fork of a process that used devices.
    """
    check_not_forked()
    inside = current_device()
    if inside is None:
        return False
    for device in devices:
        if device is not inside:
            raise DeviceError(
                f"work running on {inside} tried to use {device}. Functions on a device use its own "
                "arrays only; let the host program issue transfers and other devices' work."
            )
    for event in task.after:
        event.wait()
    inside.do(task)
    return True


def nothing():
    """Empty work, for a device that only waits for an event."""
