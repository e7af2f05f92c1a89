"""Simulate a plan: how long would a step take, which devices wait, and how much memory do they hold when?

A computation takes the time given by its cost; collectives/simulate.py decides when it begins, and when transfers begin
and end. Updates take no time unless they have a cost, and moves within a device take none.

The bubble is the fraction of all devices' time during a step in which they compute nothing.
"""

import functools
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ..base.arguments import plain, shown
from ..collectives.columns import sent_by
from ..collectives.simulate import Clock
from ..networks import layer_rows
from ..networks.optimizers import OPTIMIZERS
from .plan import Compute
from .proof.memory import held_in_steps, joined_values, unit_bytes
from .proof.prove import check_minibatch, replayed

EQUAL = {"F": 1, "B": 2, "I": 1, "W": 1, "update": 0}
"""Costs for equal stages: for each product of forward, backward has two."""


class Event(NamedTuple):
    """A computation, or a transfer (an ``action``), from ``start`` to ``end``, in a ``step`` of the plan (from 1)."""

    step: int
    action: tuple
    start: float
    end: float
    nbytes: int = 0


@dataclass
class PlanSimulation:
    """The timing of a simulated step.

    ``seconds``: the time of the step, in seconds or in the unit of the costs. ``bubble``: a fraction from 0 to 1.
    ``utilisation``: for each device, the fraction of the time in which it computes. ``link_bytes``: the bytes sent over
    each link, or None without a network. ``events``: the computations with their times. ``memory``: for each device, a
    list of (time, bytes held from then on), which begins at time 0. ``peak``: the largest number of bytes that each
    device holds. ``sent``: the number of bytes that each device sends.

    For pictures, ``moved`` lists all transfers: the step, `TransferColumns`, the bytes of an element, and two arrays
    with the times when the transfers begin and end. ``joined``: the y and dy that are sent as parts or shares.
    """

    seconds: float
    bubble: float
    utilisation: list
    link_bytes: np.ndarray
    events: list
    memory: list
    peak: list
    sent: list
    moved: list = field(repr=False)
    joined: set = field(repr=False)

    @functools.cached_property
    def messages(self):
        """An `Event` for each transfer from one device to another."""
        return [
            Event(number, each.transfer(i), float(starts[i]), float(ends[i]), int(nbytes * each.size[i]))
            for number, each, nbytes, starts, ends in self.moved
            for i in np.flatnonzero((each.source != each.destination) & (each.size > 0)).tolist()
        ]


def simulate(plan, network=None, costs=None, batch_size=256, optimizer="sgd", dtype="float32"):
    """Prove and time a plan. Returns a `PlanSimulation`.

    ``network``: from `collectives.network`, with at least as many devices as the plan; without one, messages take no
    time. ``costs``: the seconds that "F", "B", "I", "W" and "update" take, as a dict for all stages or a list with one
    dict for each stage; by default `EQUAL`. Computations that are not in a dict cost nothing. "update" is the cost for
    all elements of the stage; a device that updates only some of them takes that fraction of the time.
    `estimate_costs` makes such a list.

    Raises PlanError for a wrong plan, and ValueError for costs or a network that do not fit.
    """
    columns = replayed(plan).columns
    batch_size = check_minibatch(plan, batch_size, optimizer, dtype)
    costs, bytes_of = check_costs(costs, plan), unit_bytes(plan, batch_size, dtype)
    clock, events, moved = Clock(plan.k, network, bytes_of), [], []
    for number, (computes, moves) in enumerate(columns, 1):
        each = [costs[c.stage].get(c.what, 0) * _fraction(plan, c) for c in computes]
        times, computed = clock.step(moves, computes, each)
        events += [Event(number, compute, *pair) for compute, pair in zip(computes, computed, strict=True)]
        moved += [(number, each, bytes_of(each.value), *pair) for each, pair in zip(moves, times, strict=True)]
    busy = np.zeros(plan.k)
    for event in events:
        busy[event.action.device] += event.end - event.start
    whole = clock.end * plan.k
    held = held_in_steps(plan, columns, batch_size, OPTIMIZERS[optimizer].states, dtype)
    return PlanSimulation(
        clock.end,
        float(whole - busy.sum()) / whole if whole else 0.0,
        [time / clock.end if clock.end else 0.0 for time in busy.tolist()],
        clock.link_bytes,
        events,
        _memory(plan, len(columns), held, events, moved),
        [each.peak for each in held],
        sent_by([moves for _, moves in columns], plan.k, bytes_of),
        moved,
        joined_values(plan, columns),
    )


def _fraction(plan, compute):
    """Of its stage's elements, the fraction that an update updates; 1 for any other computation."""
    n = plan.stages[compute.stage].params if compute.what == "update" else 0
    held = sum(part.state[1] - part.state[0] for part in plan.layout[compute.device] if part.stage == compute.stage)
    return held / n if n else 1


def check_costs(costs, plan):
    """A list with a dict of costs for each stage. Raises ValueError for costs that do not fit the plan."""
    given = EQUAL if costs is None else plain(costs)
    each = [given] * len(plan.stages) if isinstance(given, dict) else given
    if len(each) != len(plan.stages) or not all(cost.keys() <= EQUAL.keys() for cost in each):
        n = len(plan.stages)
        raise ValueError(f"costs are {shown(costs)}; give a dict of {', '.join(EQUAL)}, or a list of {n}, one a stage")
    return each


def estimate_costs(plan, batch_size=256, speed=1e12):
    """Costs of each stage for `simulate`, in seconds: for the products of forward, and as many for each gradient.

    ``speed``: how many multiplications each device does per second. The first layer needs no gradient of its input. If
    several devices compute a stage for the same examples, each does an equal part of the work.
    """
    products, costs = [row[-1] for row in layer_rows(plan.network)], []
    computes = [action for step in plan.steps for action in step if isinstance(action, Compute)]
    for s, stage in enumerate(plan.stages):
        together = len({c.device for c in computes if c[:1] + c[2:4] == ("F", s, 0)})
        seconds = batch_size / plan.micro_batches / plain(speed) / max(1, together)  # for one product of an image
        whole = sum(products[stage.first : stage.stop])
        first = next(filter(None, products), 0) if stage.first == 0 else 0
        forward, inputs = float(whole * seconds), float((whole - first) * seconds)
        costs.append({"F": forward, "B": inputs + forward, "I": inputs, "W": forward, "update": 0})
    return costs


def _memory(plan, count, held, events, moved):
    """For each device, a list of (time, bytes held from then on); ``count``: the number of the plan's steps."""
    begins, ends = np.full((count + 2, plan.k), np.inf), np.full((count + 2, plan.k), -np.inf)  # of each step
    for number, compute, start, end, _ in events:
        begins[number, compute.device], ends[number, compute.device] = start, end
    for number, each, _, starts, stops in moved:
        for devices in each.source, each.destination:
            np.minimum.at(begins[number], devices, starts)
            np.maximum.at(ends[number], devices, stops)
    times = np.zeros((count + 2, plan.k))
    times[1:] = np.maximum(np.where(np.isfinite(begins[1:]), begins[1:], ends[:-1]), 0)
    lines = []
    for device, own in enumerate(held):
        numbers, nbytes = zip(*own.line, strict=True)
        since = np.maximum.accumulate(times[list(numbers), device]).tolist()
        lines.append(list(zip(since, nbytes, strict=True)))
    return lines
