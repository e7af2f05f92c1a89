"""Measure how long a plan's computations take on one device, for `simulate`.

The device computes all stages of the plan, each for all micro-batches before the next stage, so what forward computes
for backward is kept. (A stage that goes back immediately keeps nothing, see execution/modes.py, and is faster.) This is
repeated, and the median of each stage's forward, backward and update counts. The time of messages follows from the
network (collectives/benchmark.py).
"""

import functools
import statistics

import numpy as np

from ..base.arguments import check_whole, plain
from ..base.measuring import repeated
from ..devices.timeline import Timeline, span
from ..layers import Draws
from ..networks import init_params
from .execution.compute import FUNCTIONS
from .execution.execute import Execution
from .plan import COMPUTES, Compute
from .proof.check import check_plan
from .proof.sizes import examples_in_each
from .splits.compose import compose
from .splits.data import in_turn

MICRO_BATCHES = 4
"""The number of micro-batches when a single device computes whole stages."""


def measure_costs(plan, device, batch_size=256, optimizer="sgd", dtype="float32", rounds=11):
    """Measure the plan's stages on a device; return their costs for `simulate`: for each stage a dict of seconds.

    A plan with the same stages and size of micro-batches runs ``rounds`` times, after one run that does not count.

    Raises ValueError for a plan with split stages: no device has a whole stage.
    """
    check_plan(plan)
    batch_size, rounds = plain(batch_size), check_whole("rounds", rounds)
    if any(stage.split for stage in plan.stages):
        raise ValueError(f"plan {plan.name} splits its stages, so one device alone cannot be measured; measure another")
    alone, rng = _for_one_device(plan), np.random.default_rng(0)
    size = MICRO_BATCHES * max(1, *examples_in_each(batch_size, plan.micro_batches))
    X = rng.random((size, *plan.network.input_shape)).astype(dtype)
    y = rng.integers(plan.network.classes, size=size)
    params = init_params(init="he", dtype=dtype, network=plan.network)
    execution = Execution(alone, params, [device], optimizer)
    execution.functions = IN_SPANS
    step = functools.partial(execution.step, X, y, 1e-4, Draws(0))
    seconds = [{} for _ in plan.stages]
    for times in repeated(lambda: _times(device, step), rounds):
        for (action,), time in zip(alone.steps, times, strict=True):
            seconds[action.stage].setdefault(action.what, []).append(time)
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


def _times(device, step):
    """The seconds of each action in a call of ``step``."""
    with Timeline([device], spans=True) as timeline:
        step()
    return [each.end - each.begin for each in timeline.all_spans() if each.name == "action"]
