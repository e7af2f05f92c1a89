"""A message of a plan between processes, and what is said of a device that waits for it.

cpu(0) of rank 3 (b) waits in training step 3 of plan 1f1b, device 3, action 6 (receive of y of stage 2, micro-batch
1, from device 2), for cpu(0) of rank 2 (b) to send it
"""

from typing import NamedTuple

from .plan import device_action


class Message(NamedTuple):
    """A message of a plan: its number, and its devices."""

    number: int
    source: int
    destination: int


class Words:
    """What a device waits for in an event of a step, in words: as `Exchange.missing`."""

    def __init__(self, step, event):
        self.step, self.event, self.plan = step.execution.steps + 1, event, step.execution.plan.name
        self.places, self.owners = step.everybody.places, step.everybody.owners

    def where(self, i):
        """What device i is in."""
        number = self.event.numbers[self.event.devices.index(i)]
        return f"training step {self.step} of plan {self.plan}, {device_action(i, number, self.event.action)}"

    def missing(self, instruction):
        """As of `Exchange`: in words, and whose it is."""
        device, message = instruction.device, instruction.transfer
        other, what = (message.destination, "take") if instruction.kind == "send" else (message.source, "send")
        text = f"{self.places[device]} waits in {self.where(device)}, for {self.places[other]} to {what} it"
        return text, self.owners[other]
