"""Combine successive actions in a device's queue into one task, a chain, if the device need not wait between them.

Waking a thread for each action of a plan would take longer than many of the actions themselves.

    begin | F | B | allreduce | update | free | end          7 tasks
    begin, F, B   | allreduce | update, free, end            3
"""

import collections

from ...devices import Batch


class Chains(Batch):
    """A `Batch` whose method `chain` extends a device's last task, if that is a chain and no other call came since."""

    def __init__(self):
        super().__init__()
        self._open = {}  # for each device: the chain's task, and the work in it

    def chain(self, device, function, *args):
        """Add a call to the device's chain; return the chain's task, an event that happens when the chain is done."""
        if device not in self._open:
            work = collections.deque()
            self._open[device] = super().submit_to_all([device], _do_in_turn, device, work), work
        task, work = self._open[device]
        work.append((function, args))
        return task

    def record(self, device):
        """As in `Batch`: return an event that happens when the device has done everything that it was given so far."""
        task, _ = self._open.pop(device, (None, None))
        return task or super().record(device)

    def submit_to_all(self, devices, function, *args):
        """As in `Batch`."""
        for device in devices:
            self._open.pop(device, None)
        return super().submit_to_all(devices, function, *args)

    def wait(self, device, event):
        """As in `Batch`."""
        self._open.pop(device, None)
        super().wait(device, event)


def _do_in_turn(device, work):
    """Do all the work on the device and return a mark of its end. The first error is raised after the rest is done."""
    first = None
    while work:
        function, args = work.popleft()  # not kept longer than necessary: the arguments include arrays
        try:
            function(*args)
        except BaseException as error:
            first = first or error
        del function, args
    if first is not None:
        raise first
    return device.mark()
