"""Work that follows each other in a device's queue, with nothing to wait for in between, as one task: a chain.

To wake a thread for each action of a plan takes longer than many an action.

    begin | F | B | allreduce | update | free | end          7 tasks
    begin, F, B   | allreduce | update, free, end            3
"""

import collections

from ..devices import Batch


class Chains(Batch):
    """A `Batch` whose `chain` adds to a device's last task, if that is a chain, and nothing has been added since."""

    def __init__(self):
        super().__init__()
        self._open = {}  # by device: the chain's task, and its pieces of work

    def chain(self, device, function, *args):
        """Do this on the device; returns the chain's task, which is an event: when all that it consists of is done."""
        if device not in self._open:
            work = collections.deque()
            self._open[device] = super().submit_to_all([device], _do_in_turn, device, work), work
        task, work = self._open[device]
        work.append((function, args))
        return task

    def record(self, device):
        """As of `Batch`: when the device has done what it was given so far."""
        task, _ = self._open.pop(device, (None, None))
        return task or super().record(device)

    def submit_to_all(self, devices, function, *args):
        """As of `Batch`."""
        for device in devices:
            self._open.pop(device, None)
        return super().submit_to_all(devices, function, *args)

    def wait(self, device, event):
        """As of `Batch`."""
        self._open.pop(device, None)
        super().wait(device, event)


def _do_in_turn(device, work):
    """Runs on the device: all of it, also after an error, which is then raised; its result is a mark of the end."""
    first = None
    while work:
        function, args = work.popleft()  # kept no longer than need be: arrays are among the arguments
        try:
            function(*args)
        except BaseException as error:
            first = first or error
        del function, args
    if first is not None:
        raise first
    return device.mark()
