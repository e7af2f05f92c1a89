"""How each stage of a plan is computed, and how forward keeps what backward needs.

    FUSED      Backward of a micro-batch follows forward immediately on the same device: both are done together, for as
               many examples at a time as fit into a core's cache, and nothing is kept. This also works for several
               stages whose F's lead to the loss and whose B's lead back: F0 F1 F2 B2 B1 B0 is one *run*, and the data
               that stages exchange within the run are not values of the plan.
    CACHED     Other work comes in between, so the data that the kernels keep count as the device's memory.
    REFERENCE  Stages without kernels, with I and W, or computed more than once go layer by layer, as they are written.

Source: Huang et al. 2019, "GPipe", which shows that a pipeline's last stage needs no cache, and what the others cost.
"""

import itertools
from typing import NamedTuple

import numpy as np

from ...layers.functions import EACH_BY_ITSELF, function_of
from ..plan import COMPUTES

FUSED, IN_FUSED, CACHED, REFERENCE, EMPTY = "fused", "in fused", "cached", "reference", "empty"
"""`IN_FUSED`: in a run that begins with another stage. `EMPTY`: there are no examples, which plans do not show."""


class ExecutionModes:
    """How the stages of a plan are computed; ``columns``: its steps as `check_plan` returns them.

    ``of[device, stage, micro_batch]``: one of the ways. ``runs``: by the same keys, with the first stage of each run,
    the gradients to which the run's B's add, from the first stage to the last. ``early``: by (device, value, step) of
    what a run makes, the step of the run's first F, in which all of it is computed. ``computed``: for each device, a
    list of (stage, micro-batch).
    """

    def __init__(self, plan, columns):
        self.plan, self.of, self.runs, self.early = plan, {}, {}, {}
        done = {}  # by device, stage and micro-batch
        for compute in itertools.chain(*(computes for computes, _ in columns)):
            if compute.what in COMPUTES:
                done.setdefault(compute[1:4], []).append(compute.what)
        self.computed, with_kernels = [[] for _ in plan.layout], [_has_kernels(each, plan) for each in plan.stages]
        for (device, s, m), whats in done.items():
            self.of[device, s, m] = CACHED if sorted(whats) == ["B", "F"] and with_kernels[s] else REFERENCE
            self.computed[device].append((s, m))
        self._runs = {}  # by device, a run whose F's may still go back
        for number, (each, moves) in enumerate(columns, 1):
            for one in moves:
                self._cut(one)
            for compute in each:
                self._compute(compute, number)

    def is_nothing(self, device, value):
        """Whether this y, dy or cache of the device is made and used within a run, so it is not a value of the plan."""
        kind, s, *m = value
        if kind == "cache":
            return self.of[(device, s, *m)] in (FUSED, IN_FUSED)
        return kind in ("y", "dy") and self.of.get((device, s + 1, *m)) == IN_FUSED

    def _cut(self, moves):
        """End the runs of devices that take part in the transfers, unless these are of another micro-batch."""
        kind, *numbers = moves.value
        for device in np.unique((moves.source, moves.destination)).tolist() if self._runs else ():
            run = self._runs.get(device)
            if run and (kind not in ("y", "dy") or numbers[1] == run.forward[-1][0].micro_batch):
                del self._runs[device]

    def _compute(self, compute, number):
        what, device, s, m, _ = compute
        run = self._runs.get(device)
        if what == "F":
            follows = run and not run.back and run.forward[-1][0][2:4] == (s - 1, m)
            if not follows:
                run = self._runs[device] = _Run([], [])
            run.forward.append((compute, number))
            return
        goes_back = run and run.forward[-1][0][2:4] == (s, m) and (run.back or s == len(self.plan.stages) - 1)
        if what == "B" and goes_back and self.of[device, s, m] == CACHED:
            _, begin = run.forward.pop()
            run.back.append((compute, begin, number))
            self._note(run)
            if run.forward:
                return
        self._runs.pop(device, None)

    def _note(self, run):
        """Note what is known so far: the run has the B's in ``back``, and begins with the F of the last of them."""
        begin = run.back[-1][1]
        for compute, _, number in run.back:
            _, device, s, m, _ = compute
            self.of[device, s, m] = IN_FUSED
            self.runs.pop((device, s, m), None)
            self.early[device, compute.grads, number] = begin
        self.of[device, s, m] = FUSED
        self.runs[device, s, m] = [compute.grads for compute, *_ in reversed(run.back)]
        self.early[device, ("dy", s - 1, m), run.back[-1][2]] = begin


class _Run(NamedTuple):
    """A device's consecutive F's and their steps, pairs, except those that already have a B in ``back``.

    ``back``: triples of a B, the step of its F, and its own step.
    """

    forward: list
    back: list


def _has_kernels(stage, plan):
    """Whether kernels compute the stage for some examples at a time, where batch norm does not need all."""
    layers = plan.network[stage.first : stage.stop]
    return bool(layers) and all(layer.channels or function_of(layer)[0] in EACH_BY_ITSELF for layer in layers)
