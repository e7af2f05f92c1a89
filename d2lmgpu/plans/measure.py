"""What `simulate` needs to know of a machine: measured on one device alone, and on several that have nothing to do
with each other.

    costs        of each stage, forward and backward of a micro-batch, and the update: a device alone goes through all
                 of the plan's stages, by a plan of its own, and its spans are timed
    contention   k devices do that at the same time: how much slower does each of them compute? Virtual devices beyond
                 the number of cores are not measured: n of them share c cores, so that each computes at c/n of the
                 speed that c of them have
    preparation  the rest of the device's step, for each action: the host program lists them, before it begins

Everything is done a number of times; what is told are medians. Messages are the network's (collectives/measure.py).
"""

import statistics
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from ..collectives import ALGORITHMS, fit_virtual_devices, measure_allreduce, virtual_devices
from ..devices import count_cores, put, to_host
from ..language.check import check_plan
from ..language.plan import COMPUTES, Compute, part_updated
from ..language.sizes import examples_in_each
from ..language.ways import Ways
from ..layers import Draws
from ..measuring import repeated, seconds_of
from ..networks import CROSS_ENTROPY, init_params
from ..optimizers import OPTIMIZERS
from ..timing import Timeline
from .compose import compose
from .data import in_turn
from .execute import Execution, extents_of, numbered_stages
from .lower import events_of
from .store import Store
from .values import Minibatch

MICRO_BATCHES = 4
"""Of a step that is measured."""

SIZES = [2**13, 2**16, 2**19, 2**22]
"""Bytes that are exchanged to measure messages."""


class Measured(NamedTuple):
    """``costs`` and ``contention`` as `simulate` takes them, and ``preparation``, seconds for each computation."""

    costs: list
    contention: list
    preparation: float

    def step_seconds(self, simulation):
        """Seconds of a whole step, with its preparation, of which the rest was simulated with these costs."""
        return simulation.seconds + self.preparation * len(simulation.events)


def measure_costs(plan, devices, batch_size=256, optimizer="sgd", dtype="float32", rounds=11):
    """Measure what the plan's stages cost on the first of ``devices``, and what contention adds; a `Measured`.

    ``devices``: as many as may compute at the same time; one alone says nothing about contention. A plan of the stages'
    micro-batches runs on each of them ``rounds`` times, and once before; of virtual devices on no more than there are
    cores, beyond which contention is computed. Raises ValueError for a plan in which a device with a part of a stage
    receives messages.
    """
    alone = _Alone(plan, max(examples_in_each(batch_size, plan.micro_batches)), optimizer, dtype)
    runs = alone.run(devices[:1], rounds)
    costs = alone.costs(runs)
    left = [run.seconds - sum(end - begin for begin, end in run.spans[0]) for run in runs]
    contention, cores = [1.0], count_cores() if devices[0].kind == "cpu" else len(devices)
    for k in range(2, min(len(devices), cores) + 1):
        found = [alone.slower(run.spans, costs, contention) for run in alone.run(devices[:k], rounds)]
        contention.append(max(1.0, statistics.median(found)))
    contention += [contention[-1] * k / cores for k in range(cores + 1, len(devices) + 1)]
    return Measured(costs, contention, max(0.0, statistics.median(left)) / len(alone.timed))


def measure_messages(devices):
    """The `collectives.network.Network` of virtual devices that fits measured allreduces."""
    rows = list(measure_allreduce(devices, ["ring", "naive"], SIZES))
    return virtual_devices(fit_virtual_devices(rows, ALGORITHMS, count_cores()), count_cores())(len(devices))


class _Run(NamedTuple):
    """``seconds`` of a step, and of each device the (begin, end) of its computations and updates."""

    seconds: float
    spans: list


class _Alone:
    """The plan's stages as a plan for one device, with ``examples`` in each micro-batch."""

    def __init__(self, plan, examples, optimizer, dtype):
        self.is_split = any(stage.split for stage in plan.stages)
        self.optimizer = OPTIMIZERS[optimizer]
        self.plan, size = (plan, examples) if self.is_split else (_for_one_device(plan), MICRO_BATCHES * examples)
        self.timed = [action for action in self.plan.actions[0] if isinstance(action, Compute)]
        size = max(size, 1)
        rng = np.random.default_rng(0)
        self.X = rng.random((size, *plan.network.input_shape)).astype(dtype)
        self.y = rng.integers(plan.network.classes, size=size)
        self.params = init_params(init="he", dtype=dtype, network=plan.network)

    def run(self, devices, rounds):
        """Steps of all devices at the same time, each its own: a `_Run` for each round, after one to warm up."""
        if self.is_split:
            executions = [_OwnPart(self.plan, self.params, device, self.optimizer) for device in devices]
        else:
            executions = [Execution(self.plan, self.params, [device], self.optimizer) for device in devices]
        with ThreadPoolExecutor(len(devices)) as threads:
            return repeated(lambda: self._round(executions, devices, threads), rounds)

    def _round(self, executions, devices, threads):
        with Timeline(devices, spans=True) as timeline:
            seconds = seconds_of(lambda: list(threads.map(self._step, executions)))
        found = {str(device): [] for device in devices}
        for span in timeline.all_spans():
            if span.name in ("forward", "backward", "update"):
                found[span.row].append((span.begin, span.end))
        return _Run(seconds, list(found.values()))

    def _step(self, execution):
        execution.step(self.X, self.y, lr=1e-4, draws=Draws(0))

    def costs(self, runs):
        """For each stage the medians: a dict for `simulate`."""
        seconds = {}
        for run in runs:
            for action, (begin, end) in zip(self.timed, run.spans[0], strict=True):
                seconds.setdefault((action.stage, action.what), []).append((end - begin) / self._part_of(action))
        return [
            {what: statistics.median(found) for (s, what), found in seconds.items() if s == stage}
            for stage in range(len(self.plan.stages))
        ]

    def _part_of(self, action):
        """How much of what the action is for a whole stage it is here, of 1."""
        return part_updated(self.plan, 0, action.stage) if action.what == "update" else 1

    def slower(self, spans, costs, contention):
        """How many times as long computations take while all compute, if of fewer ``contention`` tells it.

        Work that is done in a second while j devices compute is j/contention[j]: what is left of all work is theirs.
        """
        k = len(spans)
        changes = sorted([(edge, 1 - 2 * i) for own in spans for pair in own for i, edge in enumerate(pair)])
        together, busy, before = [0.0] * (k + 1), 0, changes[0][0]
        for now, change in changes:
            together[busy] += now - before
            busy, before = busy + change, now
        work = k * sum(costs[action.stage][action.what] * self._part_of(action) for action in self.timed)
        left = work - sum(j * together[j] / contention[j - 1] for j in range(1, k))
        return k * together[k] / left if left > 0 else 1.0


class _OwnPart:
    """Device 0's part of a ``plan`` done alone, to see how long it takes; ``step`` as of `Execution`.

    Where stages are split, no device has a whole one, and a plan for one device would be another plan. So the device
    goes through its own list. At a collective it makes the whole array and puts its part in place, as in the plan, and
    exchanges nothing: numbers are wrong then, but as many as ever are multiplied and added. A plan with messages
    cannot be done so.
    """

    def __init__(self, plan, params, device, optimizer):
        columns = check_plan(plan)
        events = events_of(plan, columns)
        self.todo, self.device, self.steps = [event.action for event in events if 0 in event.devices], device, 0
        if any(action.what in ("send", "receive") for action in self.todo):
            raise ValueError(f"plan {plan.name}: what device 0 receives from others cannot be measured on one device")
        flats, extents = numbered_stages(list(map(to_host, params)), plan), extents_of(plan, columns, events)[0]
        arguments = flats, optimizer, extents, CROSS_ENTROPY, Ways(plan, columns)
        self.store = device.submit(Store, plan, 0, device, *arguments).result()

    def step(self, X, y, lr, draws):
        """Do all of it once, for each micro-batch with the whole of the examples ``X`` (n, C, H, W) and ``y`` (n,)."""
        X, y, store = put(X, self.device).raw, put(y, self.device).raw, self.store
        micro_batches = {action.micro_batch for action in self.todo if action.what in COMPUTES}
        minibatch = Minibatch([len(y)] * self.store.plan.micro_batches, draws)
        minibatch.X, minibatch.y = dict.fromkeys(micro_batches, X), dict.fromkeys(micro_batches, y)
        store.begin(minibatch)
        self.steps += 1
        self.device.submit(self._go, self.steps, lr, len(y)).result()

    def _go(self, *numbers):
        """Runs on the device."""
        for action in self.todo:
            if action.what == "collective":
                self.store.prepare(action.value)
            else:
                self.store.do(action, *(numbers if action.what == "update" else ()))


def _for_one_device(plan):
    """The plan's stages as a plan for one device."""
    whats = {action.what for step in plan.steps for action in step if isinstance(action, Compute)}
    back = "IW" if "W" in whats else "B"
    turns = in_turn(0, MICRO_BATCHES, len(plan.stages))
    order = [(what, s, m) for way, s, m in turns for what in (way if way == "F" else back)]
    return compose([order], MICRO_BATCHES, plan.network, plan.stages, "alone")
