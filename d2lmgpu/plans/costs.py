"""Measure the numbers that `simulate` needs about a machine, on one device alone and on several independent devices.

    costs        For each stage, the time of forward and backward for a micro-batch, and of the update. One device
                 computes all stages of the plan, each for all micro-batches before the next stage. If the plan goes
                 back immediately (execution/modes.py), which is faster, this is measured as well, and the costs are
                 reduced in proportion.
    contention   By what factor each device is slower if k devices begin this at the same time. Beyond the number of
                 cores, this is not measured for virtual devices: n of them share c cores, so each computes at c/n of
                 the speed that each of c devices has.
    preparation  The rest of the device's step, per action: the host program lists the actions before the step begins.

Everything is repeated, and medians are reported. The time of messages follows from the network
(collectives/benchmark.py).
"""

import functools
import statistics
from typing import NamedTuple

import numpy as np

from ..base.arguments import check_whole, plain
from ..base.measuring import repeated, seconds_of
from ..collectives import ALGORITHMS, fit_virtual_devices, measure_allreduce, virtual_devices
from ..devices import count_cores, put
from ..devices.timeline import Timeline, span
from ..layers import Draws
from ..networks import CROSS_ENTROPY, init_params
from ..networks.optimizers import OPTIMIZERS
from .execution.compute import FUNCTIONS, do
from .execution.execute import Execution, extents_of
from .execution.lower import actions_of
from .execution.modes import FUSED, IN_FUSED, ExecutionModes
from .execution.store import Minibatch, Store
from .plan import Compute, part_updated
from .proof.check import check_plan
from .proof.sizes import examples_in_each
from .splits.compose import compose
from .splits.data import in_turn
from .stages import numbered_stages

MICRO_BATCHES = 4
"""The number of micro-batches when a single device computes whole stages."""

WORK = ("forward", "backward", "update")
"""The names of the spans that count as work; exchanges do not."""

SIZES = [2**13, 2**16, 2**19, 2**22]
"""The sizes, in bytes, of the allreduces that `measure_messages` times."""


class Measured(NamedTuple):
    """``costs`` and ``contention`` for `simulate`, and the ``preparation`` in seconds for each computation."""

    costs: list
    contention: list
    preparation: float

    def step_seconds(self, simulation):
        """The seconds that a whole step takes: its preparation, and the time in the ``simulation`` with these costs."""
        return simulation.seconds + self.preparation * len(simulation.events)


def measure_costs(plan, devices, batch_size=256, optimizer="sgd", dtype="float32", rounds=11):
    """Measure the costs of the plan's stages on the first of ``devices``, and the contention; return a `Measured`.

    ``devices``: as many as can compute at the same time; from a single device, nothing is learned about contention. A
    plan with the same stages and size of micro-batches runs on each of them ``rounds`` times, after one run that does
    not count. For virtual devices beyond the number of cores, contention is computed, not measured.

    Raises ValueError for a plan with split stages in which device 0 sends or receives messages.
    """
    batch_size, rounds = plain(batch_size), check_whole("rounds", rounds)
    in_each = examples_in_each(batch_size, plan.micro_batches)
    alone = _Alone(plan, max(in_each), optimizer, dtype)
    whole = runs = alone.run(devices[:1], rounds)
    costs, work = alone.costs(runs), _median_work(runs)
    if not alone.is_split:
        whole = alone.run_at_once(devices[0], rounds)
        faster = _median_work(whole) / work
        for s in alone.at_once:
            costs[s] |= {what: faster * seconds for what, seconds in costs[s].items() if what != "update"}
    left = [run.seconds - run.work for run in whole]
    contention, cores = [1.0], count_cores() if devices[0].kind == "cpu" else len(devices)
    for k in range(2, min(len(devices), cores) + 1):
        contention.append(max(1.0, _median_work(alone.run(devices[:k], rounds)) / work))
    contention += [contention[-1] * k / cores for k in range(cores + 1, len(devices) + 1)]
    return Measured(costs, contention, max(0.0, statistics.median(left)) / len(alone.timed))


def measure_messages(devices):
    """The `collectives.topology.Topology` of virtual devices, fitted to measured allreduces."""
    rows = list(measure_allreduce(devices, ["ring", "naive"], SIZES))
    return virtual_devices(fit_virtual_devices(rows, ALGORITHMS, count_cores()), count_cores())(len(devices))


class _Run(NamedTuple):
    """The ``seconds`` that a step takes, and for each device the (begin, end) of its computations and updates."""

    seconds: float
    spans: list

    @property
    def work(self):
        """The seconds that a device spends on work, as a mean over devices."""
        return sum(end - begin for own in self.spans for begin, end in own) / len(self.spans)


def _median_work(runs):
    return statistics.median(run.work for run in runs)


class _Alone:
    """The plan's stages as a plan for one device, with ``examples`` in each micro-batch.

    If stages are split, no device has a whole stage, and a plan for one device would be a different plan. So device 0
    of the plan does its own actions. In a collective, it makes the whole array and puts its part in place, as in the
    plan, but exchanges nothing: the results are then wrong, but the number of operations is right. This does not work
    for plans with messages.
    """

    def __init__(self, plan, examples, optimizer, dtype):
        ways = ExecutionModes(plan, check_plan(plan))
        self.at_once = {s for (_, s, _), way in ways.of.items() if way in (FUSED, IN_FUSED)}  # stages
        self.is_split = any(stage.split for stage in plan.stages)
        self.plan = plan if self.is_split else _for_one_device(plan)
        columns, self.optimizer = check_plan(self.plan), OPTIMIZERS[optimizer]
        actions = actions_of(self.plan, columns)
        self.todo = [action for action in actions if 0 in action.devices]
        if any(action.what == "receive" for action in self.todo):
            raise ValueError(
                f"plan {plan.name}: device 0 exchanges messages with others, so it cannot be measured alone"
            )
        self.timed = [action for action in self.todo if action.value is None]  # computations and updates
        self.params = init_params(init="he", dtype=dtype, network=plan.network)
        flats, extents = numbered_stages(self.params, self.plan), extents_of(self.plan, columns, actions)[0]
        self.about = flats, self.optimizer, extents, CROSS_ENTROPY, ExecutionModes(self.plan, columns), False
        rng, self.examples = np.random.default_rng(0), max(examples, 1)
        size = self.examples if self.is_split else MICRO_BATCHES * self.examples
        self.X = rng.random((size, *plan.network.input_shape)).astype(dtype)
        self.y = rng.integers(plan.network.classes, size=size)

    def run(self, devices, rounds):
        """Do all computations on all devices at once; return ``rounds`` `_Run`s, after one that does not count."""
        stores = [device.submit(Store, self.plan, 0, device, *self.about).result() for device in devices]

        def once():
            for task in [self._begin(store) for store in stores]:
                task.result()

        return repeated(lambda: _round(devices, ("action",), once), rounds)

    def _begin(self, store):
        """Start doing all computations once, with the same examples in each micro-batch; return the task."""
        X, y = (put(array[: self.examples], store.device).raw for array in (self.X, self.y))
        count = self.plan.micro_batches
        minibatch = Minibatch([self.examples] * count, Draws(0))
        minibatch.X, minibatch.y = dict.fromkeys(range(count), X), dict.fromkeys(range(count), y)
        FUNCTIONS["begin"](store, minibatch)
        return store.device.submit(self._go, store, 1e-4, self.examples)

    def _go(self, store, *numbers):
        """Do all actions, and record a span "action" for each computation; runs on the device."""
        for action in self.todo:
            if action.what == "collective":
                store.prepare(action.value)
            else:
                with span("memory" if action.value else "action"):
                    do(FUNCTIONS, store, action, *(numbers if action.what == "update" else ()))

    def run_at_once(self, device, rounds):
        """Like `run`, for steps of one device in which each micro-batch goes forward and immediately back."""
        stages = self.plan.stages
        plan = compose([in_turn(0, MICRO_BATCHES, len(stages))], MICRO_BATCHES, self.plan.network, stages, "alone")
        execution = Execution(plan, self.params, [device], self.optimizer)
        step = functools.partial(execution.step, draws=Draws(0))
        return repeated(lambda: _round([device], WORK, lambda: step(self.X, self.y, lr=1e-4)), rounds)

    def costs(self, runs):
        """The median costs of each stage: a list of dicts for `simulate`."""
        seconds = [{} for _ in self.plan.stages]
        for run in runs:
            for action, (begin, end) in zip(self.timed, run.spans[0], strict=True):
                found = seconds[action.stage].setdefault(action.what, [])
                part = part_updated(self.plan, 0, action.stage) if action.what == "update" else 1
                found.append((end - begin) / part)
        return [{what: statistics.median(found) for what, found in own.items()} for own in seconds]


def _for_one_device(plan):
    """The plan's stages as a plan for one device in which no micro-batch goes back immediately."""
    whats = {action.what for step in plan.steps for action in step if isinstance(action, Compute)}
    ways, turns = {"F": "F", "B": "IW" if "W" in whats else "B"}, in_turn(0, 1, len(plan.stages))
    order = [(what, s, m) for way, s, _ in turns for m in range(MICRO_BATCHES) for what in ways[way]]
    return compose([order], MICRO_BATCHES, plan.network, plan.stages, "alone")


def _round(devices, names, work):
    """The `_Run` of a call ``work()`` on these devices, with the spans that have one of these ``names``."""
    with Timeline(devices, spans=True) as timeline:
        seconds = seconds_of(work)
    found = [each for each in timeline.all_spans() if each.name in names]
    return _Run(seconds, [[(each.begin, each.end) for each in found if each.row == str(device)] for device in devices])
