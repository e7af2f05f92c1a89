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

import statistics
from typing import NamedTuple

import numpy as np

from ..base.arguments import check_whole, plain
from ..base.measuring import repeated, seconds_of
from ..collectives import ALGORITHMS, fit_virtual_devices, measure_allreduce, virtual_devices
from ..devices import Task, count_cores
from ..devices.timeline import Timeline, span
from ..layers import Draws
from ..networks import init_params
from .execution.compute import FUNCTIONS
from .execution.execute import Execution
from .execution.modes import FUSED, IN_FUSED, ExecutionModes
from .plan import COMPUTES, Compute
from .proof.check import check_plan
from .proof.sizes import examples_in_each
from .splits.compose import compose
from .splits.data import in_turn

MICRO_BATCHES = 4
"""The number of micro-batches when a single device computes whole stages."""

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

    Raises ValueError for a plan with split stages: no device has a whole stage.
    """
    batch_size, rounds = plain(batch_size), check_whole("rounds", rounds)
    ways = ExecutionModes(plan, check_plan(plan))
    if any(stage.split for stage in plan.stages):
        raise ValueError(f"plan {plan.name} splits its stages, so one device alone cannot be measured; measure another")
    alone = _Alone(plan, max(1, *examples_in_each(batch_size, plan.micro_batches)), optimizer, dtype)
    runs, at_once = alone.run(devices[:1], rounds), alone.run_at_once(devices[0], rounds)
    costs, work = alone.costs(runs), _median_work(runs)
    faster = _median_work(at_once) / work
    for s in {s for (_, s, _), way in ways.of.items() if way in (FUSED, IN_FUSED)}:
        costs[s] |= {what: faster * seconds for what, seconds in costs[s].items() if what != "update"}
    left = [run.seconds - run.work for run in at_once]
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
    """The plan's stages as a plan for one device, with ``examples`` in each micro-batch."""

    def __init__(self, plan, examples, optimizer, dtype):
        self.plan, self.optimizer = _for_one_device(plan), optimizer
        self.timed = [action for step in self.plan.steps for action in step]  # computations and updates
        self.params = init_params(init="he", dtype=dtype, network=plan.network)
        rng, size = np.random.default_rng(0), MICRO_BATCHES * examples
        self.X = rng.random((size, *plan.network.input_shape)).astype(dtype)
        self.y = rng.integers(plan.network.classes, size=size)

    def run(self, devices, rounds):
        """Do all computations on all devices at once; return ``rounds`` `_Run`s, after one that does not count."""
        return self._runs(self.plan, devices, rounds)

    def run_at_once(self, device, rounds):
        """Like `run`, for one device on which each micro-batch goes forward and immediately back."""
        stages = self.plan.stages
        order = in_turn(0, MICRO_BATCHES, len(stages))
        return self._runs(compose([order], MICRO_BATCHES, self.plan.network, stages, "alone"), [device], rounds)

    def _runs(self, plan, devices, rounds):
        executions = [Execution(plan, self.params, [device], self.optimizer) for device in devices]
        for execution in executions:
            execution.functions = IN_SPANS

        def step():
            placed = [each.place_examples(self.X, self.y, Draws(0), len(self.y)) for each in executions]
            begin = Task()  # all devices begin at the same time
            for device in devices:
                device.wait(begin)
            steps = [each.submit_placed(own, lr=1e-4) for each, own in zip(executions, placed, strict=True)]
            begin.finish(None)
            for each, begun in zip(executions, steps, strict=True):
                each.finish(begun)

        return repeated(lambda: _round(devices, step), rounds)

    def costs(self, runs):
        """The median costs of each stage: a list of dicts for `simulate`."""
        seconds = [{} for _ in self.plan.stages]
        for run in runs:
            for action, (begin, end) in zip(self.timed, run.spans[0], strict=True):
                seconds[action.stage].setdefault(action.what, []).append(end - begin)
        return [{what: statistics.median(found) for what, found in own.items()} for own in seconds]


def _for_one_device(plan):
    """The plan's stages as a plan for one device in which no micro-batch goes back immediately."""
    whats = {action.what for step in plan.steps for action in step if isinstance(action, Compute)}
    ways, turns = {"F": "F", "B": "IW" if "W" in whats else "B"}, in_turn(0, 1, len(plan.stages))
    order = [(what, s, m) for way, s, _ in turns for m in range(MICRO_BATCHES) for what in ways[way]]
    return compose([order], MICRO_BATCHES, plan.network, plan.stages, "alone")


def _in_span(function):
    """The function of an action, which records a span "action"; runs on a device."""

    def timed(store, action, *more):
        with span("action"):
            function(store, action, *more)

    return timed


WORK = (*COMPUTES, "update")
"""The actions whose spans are recorded."""

IN_SPANS = {key: _in_span(function) if key[0] in WORK else function for key, function in FUNCTIONS.items()}
"""What does each kind of action, with a span for those of `WORK`."""


def _round(devices, work):
    """The `_Run` of a call ``work()`` on these devices."""
    with Timeline(devices, spans=True) as timeline:
        seconds = seconds_of(work)
    found = [each for each in timeline.all_spans() if each.name == "action"]
    return _Run(seconds, [[(each.begin, each.end) for each in found if each.row == str(device)] for device in devices])
