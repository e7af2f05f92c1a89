"""What a plan is: a whole training step as plain data.

A network is cut into *stages*, runs of its layers, and a minibatch into *micro-batches*,
numbered through over all devices, so that an action's number says which examples it is about.
A plan has a *layout*, which says what each device holds between steps, and for each device a
list of *actions*, which it does one after the other.

Actions make, use and free *values*. Those of a stage s and a micro-batch m:

    y       what the stage hands on to the next one; the last stage ends with the loss and hands on nothing
    dy      the loss's gradient with respect to y, which the next stage hands back
    cache   what forward keeps for backward
    delta   what I keeps for W: the gradients of the outputs of the layers that have parameters

and of a stage s alone:

    params  its parameters, one after the other in one flat array
    grads   their gradient so far, likewise; the first backward makes it, the others add to it

Of params and grads the layout may give a device a part: elements in an array of their own. Beside it
there may be the whole array: a collective of params makes that, and a backward that of grads.

    action                     uses                            makes
    F  s m                     params s, y s-1 m               y s m, cache s m
    B  s m                     params s, dy s m, cache s m     dy s-1 m, adds to grads s
    I  s m                     params s, dy s m, cache s m     dy s-1 m, delta s m
    W  s m                     cache s m, delta s m            adds to grads s
    send, receive              a value, from one device to its peer
    collective                 a value of all devices of a group, by a schedule (see language/actions.py), which
                               is of the part's elements where the devices have a part of a split stage
    update s                   params s, grads s: those elements whose optimiser state the device holds
    free                       a value; with ``part`` the whole array only, of which grads are first added to
                               the device's part

B does what I and W do together. F of the first stage takes the examples, which are on the
devices before the step begins. Three actions wait for other devices, no others do: "receive"
until the value has been sent, "free" until what was sent has been received, "collective" until
all devices of the group are there. Nothing vanishes by itself: between steps there is on each
device what the layout says, and no more. So the memory of a device follows from its own list.

A stage may be *split* by its units, channels or a dense layer's outputs (split.py): of its parameters the layout
gives a device a part, and with that alone it computes. What it has of values is then not all:

    "columns"  its y is a part, of the units that are its own; its dy of the stage before is a share, one summand
               (Megatron's column-parallel layers)
    "rows"     from its part of y of the stage before it makes a share of y; its dy of the stage before is a part
               (Megatron's row-parallel layers)

and B takes what of dy is its own. A collective of y or dy makes the whole array, zero where nothing was, in which
its schedule, whose elements are units (of all examples), adds and copies: so parts are gathered, and shares added.
All others need the whole. The last stage may be without layers: the loss alone.

The readers of plans, which execute, time, draw and prove them, need no more than this page.
"""

import math
from typing import NamedTuple

from ..networks import Network

MOST_MICRO_BATCHES = 2**12
MOST_DEVICES = 2**10
"""Of a plan: an allreduce of k devices alone has some 2k² transfers."""

COMPUTES = ("F", "B", "I", "W")
"""Actions that are computations, of a stage and a micro-batch."""
MOVES = ("send", "receive", "collective")
ACTIONS = (*COMPUTES, *MOVES, "update", "free")
OF_MICRO_BATCHES = ("y", "dy", "cache", "delta")
OF_STAGES = ("params", "grads")


class Action(NamedTuple):
    """What a device does at a time: ("F", stage, micro_batch) and the like, or with the other fields.

    ``value``: of "send", "receive", "collective" and "free", which one, of this stage and micro-batch.
    ``peer``: the other device of "send" and "receive". ``group`` and ``schedule``: of "collective", whose schedule's
    device i is ``group[i]``. ``part``: the device's part (start, stop) of params or grads, which "free" keeps; None: it
    keeps nothing.
    """

    what: str
    stage: int
    micro_batch: int = None
    value: str = None
    peer: int = None
    group: tuple = ()
    schedule: tuple = ()
    part: tuple = None

    @property
    def key(self):
        """The value that it is about: (name, stage, micro_batch)."""
        return self.value, self.stage, self.micro_batch

    def __str__(self):
        """ "B of stage 2, micro-batch 3", "send of y of stage 0, micro-batch 3, to device 1"."""
        text = f"{self.what} of {self.value} of " if self.value else f"{self.what} of "
        text += f"stage {self.stage}" + ("" if self.micro_batch is None else f", micro-batch {self.micro_batch}")
        if self.what in ("send", "receive"):
            text += f", {'to' if self.what == 'send' else 'from'} device {self.peer}"
        if self.what == "collective":
            text += f", of devices {', '.join(map(str, self.group))}"
        return text


class Stage(NamedTuple):
    """The network's layers ``first`` to ``stop`` - 1, whose parameters are ``params`` elements.

    ``split``: None, "columns" or "rows".
    """

    first: int
    stop: int
    params: int
    split: str = None


class Part(NamedTuple):
    """What a device holds of a stage: elements (start, stop) of parameters, of gradients, of the optimiser's state.

    Parameters and state it holds between steps; gradients in the step, up to the update. To hold the state is to have
    to update those elements, also where the optimiser has no state.
    """

    stage: int
    params: tuple
    grads: tuple
    state: tuple


class Plan(NamedTuple):
    """A training step of a ``network``, cut into ``stages``, on a minibatch that is cut into ``micro_batches``.

    ``layout[i]`` lists the `Part` of each stage that device i holds between steps, ``actions[i]`` what it does.
    """

    name: str
    network: Network
    stages: tuple
    micro_batches: int
    layout: tuple
    actions: tuple

    @property
    def k(self):
        """The number of devices."""
        return len(self.actions)


class PlanError(ValueError):
    """A plan does not do what it should; the message names device, action and micro-batch."""


def device_action(device, number, action):
    """How errors begin: "device 1, action 7 (B of stage 2, micro-batch 3)"."""
    return f"device {device}, action {number} ({action})"


def all_of(stage):
    """All elements of a stage's parameters, (start, stop)."""
    return 0, stage.params


def part_updated(plan, device, s):
    """How much of a stage's elements is the device's to update, of 1."""
    held = sum(part.state[1] - part.state[0] for part in plan.layout[device] if part.stage == s)
    return held / plan.stages[s].params if plan.stages[s].params else 1


def shapes_of(stage, network):
    """The shapes of the stage's parameters."""
    return [shape for layer in network[stage.first : stage.stop] for shape in layer.shapes]


def stage_of(network, first, stop, split=None):
    """The `Stage` of these layers."""
    stage = Stage(first, stop, 0, split)
    return stage._replace(params=sum(map(math.prod, shapes_of(stage, network))))
