"""How a step's work gets into the devices' queues: in chains, and gradients' exchanges in queues beside them.

Waking a thread for each action of a plan would take longer than many of the actions themselves. So `Chains` combines
successive calls for a device into one task, a chain, if it need not wait in between:

    begin | F | B | allreduce | update | free | end          7 tasks
    begin, F, B   | allreduce | update, free, end            3

With `Overlap`, gradients are exchanged while other gradients are still being computed. The exchanges are in a second
queue of each device, its comm stream, which waits only for the gradients to be exchanged. While a run of several stages
(modes.py) is going on, it reports which gradients are final:

    device    F 0 F 1 ... B 1 | B 0 .......... | (waits) | update
    comm stream               | allreduce 1 .. | allreduce 0 |

Source: Li et al. 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training".
"""

import collections

from ...devices import Batch, Task
from .compute import do
from .modes import FUSED, IN_FUSED


class Chains(Batch):
    """A `Batch` whose method `chain` extends a device's last task, if that is a chain and no other call came since."""

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
        """Return an event that happens when the device has done everything that it was given so far."""
        task, _ = self._open.pop(device, (None, None))
        return task or super().record(device)

    def submit_to_all(self, devices, function, *args):
        for device in devices:
            self._open.pop(device, None)
        return super().submit_to_all(devices, function, *args)

    def wait(self, device, event):
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
        """If there is an error, end all waiting.

        Called with each error, and again after a step is submitted: its events may have been made after the error.
        """
        if self and self.progress is not None:
            self.progress.give_up(self[0])
        for event in list(self._events) if self else ():
            event.finish(None, self[0])


class Overlap:
    """What is under way beside the computations of a `StepOfPlan`: events by (device, gradients).

    ``final``: the gradients have their final values; ``exchanged``: their exchange is done.
    """

    def __init__(self, step):
        self.step, self.batch, self.final, self.exchanged = step, step.batch, {}, {}

    def submit(self, i, store, action, more):
        """Submit an action of one device, when the exchanges of what it uses are done."""
        mode = store.mode_of(action, self.step.examples)
        if action.what == "F" and mode == FUSED:
            self.wait([i])
            values = store.runs[action.stage, action.micro_batch]
            events = {(i, value): self.step.execution.errors.event(store.device) for value in values}
            self.final |= events
            self.batch.submit(store.device, self._run, store, action, list(events.values()))
            return
        if action.what != "F" and mode not in (FUSED, IN_FUSED):
            for value in action.value, action.target:
                self.wait([i], value)
                self.final.pop((i, value), None)
        self.step.chain(store, do, store, action, *more)

    def _run(self, store, action, events):
        """Do a run, on its device; the ``events`` happen one by one, when gradients become final."""
        do(store, action, events)
        for event in events:
            if not event.done():
                event.finish(store.device.mark())

    def prepare(self, i, store, action):
        """Prepare a device's gradients for an exchange; return the queue for it, which waits until they are final."""
        final, queue = self.final.pop((i, action.value), None), store.device.comm_stream
        if final is None:
            self.step.chain(store, store.prepare, action.value)
            final = self.batch.record(store.device)
        self.batch.wait(queue, final)
        return queue

    def note_exchange(self, action, queues):
        """Note that a collective was submitted to these ``queues`` of this process's devices."""
        here = [i for i in action.devices if i in self.step.execution.store]
        self.exchanged |= {(i, action.value): self.batch.record(queue) for i, queue in zip(here, queues, strict=True)}

    def wait(self, devices, *values):
        """Make the devices wait for their exchanges of these gradients, or of all gradients if none are given."""
        for i, value in [key for key in self.exchanged if key[0] in devices and (not values or key[1] in values)]:
            self.batch.wait(self.step.execution.store[i].device, self.exchanged.pop((i, value)))
