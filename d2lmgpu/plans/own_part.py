"""A device's part of a plan done alone, to see how long it takes: where others would add to something, nobody does.

Where stages are split, no device has a whole one, and a plan for one device would be another one. So the device goes
through its own list. At a collective it makes the whole array and puts its part in place, as in the plan, and exchanges
nothing: numbers are wrong then, but as many as ever are multiplied and added.
"""

import numpy as np

from ..devices import put, to_host
from .plan import COMPUTES
from .state import numbered_stages
from .store import Store


class OwnPart:
    """Device 0's part of a ``plan`` without messages, which a single ``device`` can do; ``step`` as of `Execution`."""

    def __init__(self, plan, params, device, optimizer):
        self.todo, self.device, self.steps = plan.actions[0], device, 0
        if any(action.what in ("send", "receive") for action in self.todo):
            raise ValueError(f"plan {plan.name}: what device 0 receives from others cannot be measured on one device")
        flats = numbered_stages([np.asarray(to_host(param)) for param in params], plan)
        self.store = device.submit(Store, plan, 0, device, flats, optimizer).result()

    def step(self, X, y, lr):
        """Do all of it once, for each micro-batch with the whole of the examples ``X`` (n, C, H, W) and ``y`` (n,)."""
        X, y, store = put(X, self.device).raw, put(y, self.device).raw, self.store
        micro_batches = {action.micro_batch for action in self.todo if action.what in COMPUTES}
        store.X, store.y = dict.fromkeys(micro_batches, X), dict.fromkeys(micro_batches, y)
        self.steps += 1
        self.device.submit(self._go, self.steps, lr, len(y)).result()

    def _go(self, *numbers):
        """Runs on the device."""
        for action in self.todo:
            if action.what == "collective" and action.value in ("y", "dy"):
                self.store.put_together(action.key)
            elif action.what == "collective" and action.value == "params":
                self.store.gather(action.stage)
            elif action.what != "collective":
                self.store.do(action, *(numbers if action.what == "update" else ()))
