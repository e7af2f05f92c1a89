"""One reader of plans: how long would a step take, which devices wait, and how much memory do they hold when?

Each device does its actions one after the other. A computation takes what it is said to cost. A message

    leaves when the links on its way are free    arrives after   latency + bytes / bandwidth of the slowest link

while its sender goes on; so messages that share a link wait for each other. A collective begins when its last device
is there, and takes what `collectives.simulate` says of its schedule. The rest takes no time.

Bubble: the part of all devices' time, from the step's begin to its end, in which they compute nothing.
"""

import functools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .. import collectives
from ..arguments import shown
from ..collectives.network import NO_LINK, check_network
from ..language.plan import COMPUTES, OF_STAGES, Action, part_updated
from ..language.sizes import examples_in_each, stage_sizes
from ..language.split import units_of_outputs
from ..networks import layer_rows
from .check import check_plan
from .contention import slowed
from .prove import check_minibatch, replay

EQUAL = {"F": 1, "B": 2, "I": 1, "W": 1, "update": 0}
"""Costs of stages that are all alike: backward is two products for forward's one."""


class Message(NamedTuple):
    """A value on its way: the ``action`` that sends it, the devices, from the send to the receipt, its size."""

    action: Action
    source: int
    destination: int
    start: float
    end: float
    nbytes: int


@dataclass
class PlanSimulation:
    """What a step looks like in time.

    ``seconds`` (or the unit of the costs) in all; ``bubble``: a part of 1; ``utilisation``: of each device the part of
    the time in which it computes; ``link_bytes`` over each link, None without a network; ``events``: all actions with
    their times; ``messages``: a `Message` for each send; ``memory``: for each device a list of (time, bytes held from
    then on), which begins at 0; ``peak``: the most of these; ``sent``: the bytes that each device sends.
    """

    seconds: float
    bubble: float
    utilisation: list
    link_bytes: np.ndarray
    events: list
    messages: list
    memory: list
    peak: list
    sent: list


def simulate(plan, network=None, costs=None, batch_size=256, optimizer="sgd", dtype="float32", contention=(1,)):
    """Time a plan, which is proved on the way. Returns a `PlanSimulation`.

    ``network``: of `collectives.network`, for at least the plan's devices; without one messages take no time.
    ``costs``: seconds of "F", "B", "I", "W" and "update", a dict for all stages or a list with one for each;
    `EQUAL` unless given. What a dict leaves out costs nothing. "update" is of all the stage's elements; a device that
    updates a part of them takes that part of it. ``contention``: how many times as long a computation takes
    while 1, 2, … devices compute, the last for more of them, too. `measure_costs` finds both.

    Raises PlanError for a plan that is wrong, ValueError for costs or a network that do not fit.
    """
    check_plan(plan)
    check_minibatch(batch_size, optimizer, dtype)
    costs = check_costs(costs, plan)

    timing = functools.partial(_Timing, plan, network, costs, batch_size, dtype)
    final = timing(slowed(plan, timing, contention) if tuple(contention) != (1,) else {})
    events, sent, messages, busy, memory = [], {}, [], [0] * plan.k, [[] for _ in range(plan.k)]
    for event, devices in replay(plan, batch_size, optimizer, dtype, final):
        for i in range(plan.k) if event is None else event.devices:
            memory[i].append((0 if event is None else event.end, devices[i].memory.total))
        if event is None:
            continue
        events.append(event)
        action, device = event.action, event.devices[0]
        if action.what in (*COMPUTES, "update"):
            busy[device] += event.end - event.start
        elif action.what == "send":
            sent[action.key, device, action.peer] = event
        elif action.what == "receive":
            send = sent.pop((action.key, action.peer, device))
            nbytes = final.nbytes(action)
            messages.append(Message(send.action, action.peer, device, send.start, event.end, nbytes))
    seconds = max((event.end for event in events), default=0)
    whole = seconds * plan.k
    return PlanSimulation(
        seconds,
        (whole - sum(busy)) / whole if whole else 0.0,
        [time / seconds if seconds else 0.0 for time in busy],
        final.link_bytes,
        events,
        messages,
        memory,
        [device.memory.peak for device in devices],
        [device.memory.sent for device in devices],
    )


def check_costs(costs, plan):
    """For each stage a dict of costs. Raises ValueError for costs of what there is not."""
    given = EQUAL if costs is None else costs
    each = [given] * len(plan.stages) if isinstance(given, dict) else given
    if len(each) != len(plan.stages) or not all(cost.keys() <= EQUAL.keys() for cost in each):
        n = len(plan.stages)
        raise ValueError(f"costs are {shown(costs)}; give a dict of {', '.join(EQUAL)}, or a list of {n}, one a stage")
    return each


def estimate_costs(plan, batch_size=256, speed=1e12):
    """Costs as `simulate` takes them, in seconds, for each stage: forward's products, once more for each gradient.

    ``speed``: multiplications a second of each device. The first layer needs no gradient of its input. Where several
    devices compute a stage for the same examples, each does its part.
    """
    products = [row[-1] for row in layer_rows(plan.network)]
    costs = []
    for s, stage in enumerate(plan.stages):
        together = sum(any(a.what == "F" and a[1:3] == (s, 0) for a in todo) for todo in plan.actions)
        seconds = batch_size / plan.micro_batches / speed / max(1, together)  # for one product of an image
        whole = sum(products[stage.first : stage.stop])
        first = next(filter(None, products), 0) if stage.first == 0 else 0
        F, I, W = (number * seconds for number in (whole, whole - first, whole))  # noqa: E741, N806
        costs.append({"F": F, "B": I + W, "I": I, "W": W, "update": 0})
    return costs


class _Timing:
    """The ``timing`` of `order`: when an action ends, and what it sends arrives.

    ``factors``: how many times as long a computation takes, by (device, action), where that is not once.
    """

    def __init__(self, plan, network, costs, batch_size, dtype, factors):
        self.plan, self.network, self.costs = plan, network, costs
        self.sizes = stage_sizes(plan.network, plan.stages, np.dtype(dtype))
        self.examples, self.itemsize = examples_in_each(batch_size, plan.micro_batches), np.dtype(dtype).itemsize
        self.collectives, self.link_bytes, self.factors = {}, None, factors
        if network is not None:
            check_network(network)
            if network.k < plan.k:
                raise ValueError(f"the network {network.name} has {network.k} devices, and the plan {plan.k}")
            self.link_bytes, self.free = np.zeros(len(network.links)), np.zeros(len(network.links))

    def __call__(self, devices, action, start):
        if action.what in self.costs[action.stage]:
            cost = self.costs[action.stage][action.what]
            if action.what == "update":
                cost *= part_updated(self.plan, devices[0], action.stage)
            end = start + cost * self.factors.get((devices[0], action), 1)
            return end, end
        if self.network is not None and action.what == "send":
            return start, self._arrival(devices[0], action, start)
        if self.network is not None and action.what == "collective":
            end = start + self._collective(action)
            return end, end
        return start, start

    def nbytes(self, action):
        """The size of what is sent, or received."""
        return self.sizes[action.stage].y(self.examples[action.micro_batch])

    def _arrival(self, source, action, start):
        nbytes = self.nbytes(action)
        ends = np.array([source], np.intp), np.array([action.peer], np.intp)
        way = self.network.route(*ends)[0]
        way = way[way != NO_LINK]
        begin = max(start, self.free[way].max(initial=0))
        busy = nbytes / self.network.bandwidth[way] + self.network.occupancy[way]
        self.free[way] = begin + busy
        self.link_bytes[way] += nbytes
        return float(begin + self.network.latency(*ends)[0] + busy.max(initial=0))

    def _collective(self, action):
        each = self._bytes_each(action)
        if not each:
            return 0
        key = id(action.schedule), action.group, each
        if key not in self.collectives:
            placed = collectives.place(action.schedule, action.group)
            self.collectives[key] = collectives.simulate(placed, self.network, each)
        self.link_bytes += self.collectives[key].link_bytes
        return float(self.collectives[key].seconds)

    def _bytes_each(self, action):
        """Of an element of a collective's schedule: of y and dy it is a unit, for all examples."""
        if action.value in OF_STAGES:
            return self.itemsize
        units = units_of_outputs(self.plan.network, self.plan.stages)[action.stage]
        return self.sizes[action.stage].y(self.examples[action.micro_batch]) // units
