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

import numpy as np

from ...layers.functions import EACH_BY_ITSELF, function_of
from ..plan import COMPUTES

FUSED, IN_FUSED, CACHED, REFERENCE, EMPTY = "fused", "in fused", "cached", "reference", "empty"
"""The modes. `IN_FUSED`: in a run that begins with another stage. `EMPTY`: without examples or units; a plan does not
show this, so only the store of a device finds it.
"""


class ExecutionModes:
    """How the stages of a plan are computed; ``columns``: its steps as `check_plan` returns them.

    ``of[device, stage, micro_batch]``: one of the modes. ``runs``: by the same keys, with the first stage of each run,
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
        # By device, a run that may go on: its F's without a B so far, (stage, micro-batch, step), and its B's so far,
        # (B, step of its F, step).
        self._runs = {}
        for number, (computes, moves) in enumerate(columns, 1):
            for each in moves if self._runs else ():
                for device in np.unique((each.source, each.destination)).tolist():
                    self._runs.pop(device, None)  # a transfer ends its devices' runs
            for compute in computes:
                self._compute(compute, number)

    def is_nothing(self, device, value):
        """Whether this y, dy or cache of the device is made and used within a run, so it is not a value of the plan."""
        kind, s, *m = value
        if kind == "cache":
            return self.of[(device, s, *m)] in (FUSED, IN_FUSED)
        return kind in ("y", "dy") and self.of.get((device, s + 1, *m)) == IN_FUSED

    def _compute(self, compute, number):
        what, device, s, m, _ = compute
        forward, back = self._runs.pop(device, ([], []))
        if what == "F":
            follows = forward and forward[-1][:2] == (s - 1, m)
            self._runs[device] = [*(forward if follows else ()), (s, m, number)], []
            return
        goes_back = forward and forward[-1][:2] == (s, m) and (back or s == len(self.plan.stages) - 1)
        if what == "B" and goes_back and self.of[device, s, m] == CACHED:
            *forward, (*_, begin) = forward
            back.append((compute, begin, number))
            self._note(back)
            if forward:
                self._runs[device] = forward, back

    def _note(self, back):
        """Note what is known so far: the run goes back by these B's, and begins with the F of the last of them."""
        begin = back[-1][1]
        for compute, _, number in back:
            _, device, s, m, _ = compute
            self.of[device, s, m] = IN_FUSED
            self.runs.pop((device, s, m), None)
            self.early[device, compute.grads, number] = begin
        self.of[device, s, m] = FUSED
        self.runs[device, s, m] = [compute.grads for compute, *_ in reversed(back)]
        self.early[device, ("dy", s - 1, m), back[-1][2]] = begin


def _has_kernels(stage, plan):
    """Whether kernels compute the stage for some examples at a time, where batch norm does not need all."""
    layers = plan.network[stage.first : stage.stop]
    return bool(layers) and all(layer.channels or function_of(layer)[0] in EACH_BY_ITSELF for layer in layers)
