"""How a step's work is put together, and what happens if some of it fails."""

import collections

from ...devices import Batch, Task


class Chains(Batch):
    """A `Batch` that combines successive calls for a device into one task, a chain, if it need not wait in between.

    Waking a thread for each action of a plan would take longer than many of the actions themselves.

        begin | F | B | allreduce | update | free | end          7 tasks
        begin, F, B   | allreduce | update, free, end            3

    The method `chain` extends a device's last task, if that is a chain and no other call came since.
    """

    def __init__(self, errors):
        super().__init__(errors)
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
    """Do all the work on the device and return a mark of its end."""
    while work:
        function, args = work.popleft()  # not kept longer than necessary: the arguments include arrays
        function(*args)
        del function, args
    return device.mark()


class Errors(list):
    """The errors of an execution's devices, which its batches share: after the first error, no other work begins.

    So work may never begin that others wait for. With an error, all events that such work should complete happen, and
    the ``progress`` thread of a cluster, or None, stops waiting for messages.
    """

    def __init__(self, progress):
        super().__init__()
        self.progress, self._events = progress, set()

    def event(self, *places):
        """An event that some work completes, for ``places`` as in `Task`."""
        event = Task(places=places)
        self._events.add(event)
        event.add_done_callback(self._events.discard)
        return event

    def append(self, error):
        """Add an error."""
        super().append(error)
        self.let_go()

    def let_go(self):
        """If there is an error, end all waiting. Called for each error, and when a batch with events is submitted."""
        if self and self.progress is not None:
            self.progress.give_up(self[0])
        for event in list(self._events) if self else ():
            event.finish(None, self[0])
