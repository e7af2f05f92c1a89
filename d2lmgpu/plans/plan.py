"""The definition of a plan: a whole training step as a list of steps of transfers and computations.

A network is cut into *stages* of consecutive layers, and a minibatch into *micro-batches*, numbered across all devices,
so that a number identifies the examples. A *layout* says what each device holds between steps.

Actions use *values*, each with a name:

    ("params", s)       the parameters of stage s, one after the other in one flat array
    ("grads", s)        their gradients, summed over micro-batches: they begin as zeros
    ("grads", s, r)     the same, over the micro-batches of one round r: for a plan that sums them round by round
    ("y", s, m)         the output of stage s for micro-batch m, which it hands on to the next stage; the last stage
                        ends with the loss
    ("dy", s, m)        the gradient of the loss with respect to y, which the next stage hands back
    ("cache", s, m)     the data that forward keeps for backward; they stay on their device
    ("delta", s, m)     the data that I keeps for W: the gradients of the outputs of layers with parameters. They also
                        stay on their device

    computation    reads                           writes
    F  s m         params s, y s-1 m               y s m, cache s m
    B  s m         params s, dy s m, cache s m     dy s-1 m, and adds to grads s, or where ``into`` says
    I  s m         params s, dy s m, cache s m     dy s-1 m, delta s m
    W  s m         cache s m, delta s m            adds to grads s, or ``into``
    update s       params s, grads s               params s: the elements whose optimiser state the device holds

F is a forward computation, and B a backward one, which does what I (the gradients of inputs) and W (those of
parameters) do together. F of the first stage takes the examples, which are on the devices before the step begins. A
device may hold only a part of the parameters between steps: then transfers bring the rest, which is freed after its
last use.

A stage may be *split* by its units, which are channels or a dense layer's outputs: the layout gives each device a part
of the parameters, and the device computes with this part alone (by "columns", as in Megatron's column-parallel layers).
What it makes is then incomplete: its y is a part, only its own units; its dy of the stage before is a share, that is,
one summand. B uses only the device's own part of dy. All other computations need whole values: transfers of y and dy,
whose elements are units (of all examples of the micro-batch), gather parts and add shares. The last stage may have no
layers, only the loss.

Batch norm normalises over the images of a micro-batch. Its running statistics are each device's own: they follow the
images of all the device's micro-batches when the step ends.

A plan is right if each device ends with the same parameters as *one* device that does everything.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..networks import Network

MAX_MICRO_BATCHES = 2**12
MAX_PLAN_DEVICES = 2**10
"""The most devices of a plan: even an allreduce of k devices has about 2k² transfers."""

COMPUTES = ("F", "B", "I", "W")
"""The computations for a stage and a micro-batch: all computations but "update"."""


class Compute(NamedTuple):
    """A ``device`` computes ``what`` (`COMPUTES` or "update") for a stage and, except in an update, for a micro-batch.

    ``into``: for B and W, the value that gradients are added to, if not ("grads", stage).
    """

    what: str
    device: int
    stage: int
    micro_batch: int | None = None
    into: tuple | None = None

    def __str__(self):
        """In words: "device 1, B of stage 2, micro-batch 3"."""
        of = "" if self.micro_batch is None else f", micro-batch {self.micro_batch}"
        return f"device {self.device}, {self.what} of stage {self.stage}{of}"

    @property
    def grads(self):
        """The value that gradients are added to."""
        return self.into or ("grads", self.stage)

    @property
    def uses(self):
        """Three tuples: the values that the computation reads, those that it creates, and those that it adds to.

        The values are listed as if there were stages before and after.
        """
        what, _, s, m, _ = self
        params, grads = ("params", s), self.grads
        x, y, cache, delta = ("y", s - 1, m), ("y", s, m), ("cache", s, m), ("delta", s, m)
        dx, dy = ("dy", s - 1, m), ("dy", s, m)
        return {
            "F": ((params, x), (cache, y), ()),
            "B": ((params, dy, cache), (dx,), (grads,)),
            "I": ((params, dy, cache), (dx, delta), ()),
            "W": ((cache, delta), (), (grads,)),
            "update": ((params, grads), (params,), ()),
        }[what]


class Stage(NamedTuple):
    """The network's layers ``first`` to ``stop`` - 1, whose parameters have ``params`` elements.

    ``split``: "columns" if each device has only some of the units, None if a device computes the stage as a whole.
    """

    first: int
    stop: int
    params: int
    split: str | None = None


class Part(NamedTuple):
    """The part of a stage that a device holds between steps.

    ``params``: the elements (start, stop) of the parameters. ``state``: those of them that the device updates, so it
    also holds the optimiser's state for them, if the optimiser has any.
    """

    stage: int
    params: tuple
    state: tuple


class Plan(NamedTuple):
    """A training step of a ``network``, cut into ``stages``, on a minibatch that is cut into ``micro_batches``.

    ``layout[i]`` lists the `Part` of each stage that device i holds between steps. ``steps``: lists of the `Transfer`
    and `Compute` actions that happen at the same time.
    """

    name: str
    network: Network
    stages: Sequence
    micro_batches: int
    layout: Sequence
    steps: Sequence

    @property
    def k(self):
        """The number of devices."""
        return len(self.layout)

    @property
    def actions(self):
        """For each device, its actions in order: computations, and transfers from and to it."""
        lists = [[] for _ in self.layout]
        for step in self.steps:
            for action in step:
                devices = (action.device,) if isinstance(action, Compute) else {action.source, action.destination}
                for device in devices:
                    lists[device].append(action)
        return lists


class PlanError(ValueError):
    """A plan does not do what it should; the message names the step, the device and the micro-batch."""


def full_range(stage):
    """The (start, stop) of all elements of a stage's parameters."""
    return 0, stage.params


def computed_with(plan, device, s):
    """The elements (start, stop) of a stage's parameters with which the device computes, or None if it has no part."""
    if plan.stages[s].split is None:
        return full_range(plan.stages[s])
    return next((part.params for part in plan.layout[device] if part.stage == s), None)


def norms_of(stage, network):
    """The number of channels of each batch norm layer in the stage."""
    return [layer.channels for layer in network[stage.first : stage.stop] if layer.channels]


def shapes_of(stage, network):
    """The shapes of the stage's parameters."""
    return [shape for layer in network[stage.first : stage.stop] for shape in layer.shapes]


def stage_of(network, first, stop, split=None):
    """The `Stage` of these layers."""
    stage = Stage(first, stop, 0, split)
    return stage._replace(params=sum(map(math.prod, shapes_of(stage, network))))
