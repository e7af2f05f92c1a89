"""Exchange gradients while other gradients are still being computed.

The exchanges are in a second queue of each device, its comm stream. It waits only for the gradients to be exchanged.
While a run of several stages (plans/execution/modes.py) is going on, it reports which gradients are final.

    device    F 0 F 1 ... B 1 | B 0 .......... | (waits) | update
    comm stream               | allreduce 1 .. | allreduce 0 |

Source: Li et al. 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training".
"""

from ..plan import COMPUTES
from .compute import do
from .modes import FUSED, IN_FUSED


class Overlap:
    """What is under way beside the computations of a `Step`: events by (device, gradients).

    ``final``: the gradients have their final values; ``exchanged``: their exchange is done.
    """

    def __init__(self, step):
        self.step, self.batch, self.final, self.exchanged = step, step.batch, {}, {}

    def submit(self, i, store, action, more):
        """Submit an action of one device, when the exchanges of what it uses are done."""
        s, m = action.stage, action.micro_batch
        way = store.way(s, m, self.step.examples[m]) if action.what in COMPUTES else None
        if action.what == "F" and way == FUSED:
            self.wait([i])
            events = {(i, value): self.step.execution.errors.event(store.device) for value in store.runs[s, m]}
            self.final |= events
            self.batch.submit(store.device, self._run, store, action, list(events.values()))
            return
        if action.what != "F" and way not in (FUSED, IN_FUSED):
            for value in action.value, action.target:
                self.wait([i], value)
                self.final.pop((i, value), None)
        self.step.submit(store, action, *more)

    def _run(self, store, action, events):
        """Do a run, on its device; the ``events`` happen one by one, when gradients become final."""
        do(self.step.execution.functions, store, action, events)
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
