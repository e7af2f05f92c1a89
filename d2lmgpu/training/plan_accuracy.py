"""Evaluation of the test set on the devices of a plan in which no device has all parameters."""

import numpy as np

from ..cluster import sum_disjoint
from ..data.minibatches import to_float
from ..devices import put, to_host
from ..devices.records import span
from ..layers.exact import SUMS
from ..networks import CROSS_ENTROPY, HALF, logits, logits_as_written
from ..plans.plan import Compute, norms_of, shapes_of
from .accuracy import PREDICTION_BATCH, TestSet, by_granules, sums_of
from .splits import limits_of


class SplitTestSet(TestSet):
    """Images and labels on the host, evaluated by the devices of a ``plan``, each stage where the plan computes it.

    ``devices``: a list, or a `Cluster` with one test set in each process. ``batch_size``: the batch size of training.
    It matters if a device's memory is limited: then a device holds no more images at a time than a micro-batch has.

    No device has all parameters, unless it trains all of them. A stage's parameters are copied from the host before
    images go through it. This takes no more memory than the stage's gradients took in a training step. As many batches
    are evaluated at a time as there are devices for a stage.

    Each of P processes takes every P-th batch through all stages on its own devices, each stage where the plan computes
    it, so no image is sent to another process. A stage that the plan computes only in another process is computed on
    host arrays, which do not count towards any limit.
    """

    def __init__(self, X, y, plan, devices, batch_size, loss=CROSS_ENTROPY, metrics=(), sums="float"):
        self.plan, self.batch_size = plan, batch_size
        super().__init__(X, y, devices, plan.network, loss, metrics, sums)

    def _place(self, X, y):
        """Place nothing on the devices; only find out which devices compute each stage."""
        self.X, self.y, plan = X, y, self.plan
        self.batch, self.logits = PREDICTION_BATCH, by_granules if self.exact else logits
        if any(limits_of(self.group)):
            self.batch = max(1, min(PREDICTION_BATCH, self.batch_size // plan.micro_batches))
            if self.exact:
                self.batch = -(-self.batch // SUMS["exact"]) * SUMS["exact"]
            else:
                self.logits = logits_as_written  # the kernels' programs would hold on to GPU memory
        computing = {(c.device, c.stage) for step in plan.steps for c in step if isinstance(c, Compute)}
        self.holders = [  # for each stage, the devices that compute it
            [device for i, device in enumerate(self.devices, self.group.first) if (i, s) in computing]
            for s in range(len(plan.stages))
        ]

    def evaluate(self, device_params, statistics=(), tell=None):
        """Like `TestSet.evaluate`, but with only the first list of parameters and the first list of statistics."""
        own, rest, fixed = [], iter(map(to_host, device_params[0])), iter([*map(to_host, next(iter(statistics), ()))])
        for stage in self.plan.stages:
            params = [next(rest) for _ in shapes_of(stage, self.network)]
            own.append((params, [next(fixed) for _ in norms_of(stage, self.network) for _ in ("mean", "variance")]))
        parts = [slice(a, min(self.size, a + self.batch)) for a in range(0, self.size, self.batch)]
        rank, size = self.group.rank, self.group.size
        found, together = np.zeros((len(parts), 1 + len(self.metrics))), max(map(len, self.holders))
        mine = range(len(parts))[rank::size]
        for start in range(0, len(mine), together):
            some = mine[start : start + together]
            found[some] = self._evaluate([parts[i] for i in some], own)
            if tell:
                tell(min(self.size, parts[some[-1]].stop * size))
        sum_disjoint(self.group, found.reshape(-1))
        return self._reached(sum(found))

    def _evaluate(self, parts, own):
        """Take batches side by side through all stages; return each batch's sums, as from `sums_of`."""
        batches = [to_float(self.X[part]) for part in parts]
        for stage, holders, arrays in zip(self.plan.stages, self.holders, own, strict=True):
            layers, tasks = [each for each in self.plan.network[stage.first : stage.stop] if each is not HALF], []
            for i, batch in enumerate(batches):
                if holders:
                    device = holders[i % len(holders)]
                    here = [[put(array, device) for array in some] for some in arrays]
                    tasks.append(device.run(_forward, self.logits, put(batch, device), *here, layers))
                else:
                    device = self.devices[i % len(self.devices)]  # any, since none has the stage
                    tasks.append(device.submit(_forward, self.logits, to_host(batch), *arrays, layers))
            batches = [task.result() for task in tasks]
        each = zip(map(to_host, batches), parts, strict=True)
        return [sums_of(outputs, self.y[part], self.loss, self.metrics, self.exact) for outputs, part in each]


def _forward(logits, x, params, statistics, layers):
    """Runs on a device: return the outputs of a stage."""
    with span("evaluate"):
        return logits(x, params, layers, statistics)
