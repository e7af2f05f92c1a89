"""Exchange gradients while other gradients are still being computed.

The exchanges are in a second queue of each device, its comm stream. It waits only for the gradients to be exchanged.
While a run of several stages (language/ways.py) is going on, it reports which gradients are final.

    device    F 0 F 1 ... B 1 | B 0 .......... | (waits) | update
    comm stream               | allreduce 1 .. | allreduce 0 |

Source: Li et al. 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training".
"""

from ..devices import Task
from ..language.ways import INNER, SCRATCH


class Overlap:
    """The part of a `Step` that handles overlap. ``final`` and ``exchanged``: events by (device, gradients)."""

    def _begins_run(self, i, store, action):
        """With overlap: submit the action if it is a run, and return True; else await its gradients' exchanges."""
        s, m = action.stage, action.micro_batch
        way = store.way(s, m, self.examples[m]) if action.what in ("F", "B", "W") else None
        if action.what == "F" and way == SCRATCH:
            self._await_exchanges([i])
            values = store.runs[s, m]
            events = [Task(places=(store.device,)) for _ in values]
            self.final |= {(i, value): event for value, event in zip(values, events, strict=True)}
            self.run(store, action, events)
            return True
        if action.what != "F" and way not in (SCRATCH, INNER):
            for value in action.value, action.target:
                self._await_exchanges([i], value)
                self.final.pop((i, value), None)
        return False

    def run(self, store, action, events):
        """Submit a run. The ``events`` happen one by one during the run, when gradients become final."""
        self.batch.submit(store.device, self._run, store, action, events)

    def _run(self, store, action, events):
        """Do a run, on its device; the ``events`` happen even after an error."""
        try:
            self.do(store.do, action, events)
        finally:
            self.let_happen(events, store.device)

    def let_happen(self, events, device):
        """Trigger the events that have not happened yet, with an error if marking them raises one. Runs on a device."""
        for event in events:
            if not event.done():
                try:
                    event.finish(device.mark())
                except Exception as error:
                    self.fail(error)
                    event.finish(None, error)

    def _await_exchanges(self, devices, *values):
        """Make the devices wait for their exchanges of these gradients, or of all gradients if none are given."""
        for i, value in [key for key in self.exchanged if key[0] in devices and (not values or key[1] in values)]:
            self.batch.wait(self.execution.store[i].device, self.exchanged.pop((i, value)))

    def _is_overlapped(self, action):
        return self.execution.overlap and action.value[0] == "grads"

    def _note_exchange(self, action, queues):
        """Note that a collective was submitted to these ``queues`` of this process's devices."""
        if self._is_overlapped(action):
            here = [i for i in action.devices if i in self.execution.store]
            self.exchanged |= {(i, action.value): self.batch.record(q) for i, q in zip(here, queues, strict=True)}
