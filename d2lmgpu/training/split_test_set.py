"""The test set, evaluated by a plan's devices: stage after stage, each where the plan has it.

No device has all parameters, unless it trains all. A stage's are copied from the host for as long as its images go
through, which takes no more memory than its gradients did in the step. Images go in as many batches at a time as there
are devices for a stage.

Of P processes each takes every P-th batch through all stages on its own devices, each stage where the plan has it. So
no image travels. A stage that the plan has in other processes is computed on arrays of the host, which no limit counts.
"""

import numpy as np

from ..arguments import as_array
from ..cluster import as_cluster, gather
from ..data import to_float
from ..devices import DeviceArray, put, to_host
from ..layers.labels import check_labels, right_answers
from ..networks import logits
from ..networks.losses import on_host
from ..plans.plan import shapes_of
from ..timing import span
from .accuracy import PREDICTION_BATCH
from .checks import check_images
from .metrics import EXAMPLES, sum_metrics, try_metrics
from .splits import limits_of


class SplitTestSet:
    """Images and labels on the host, for the devices of a ``plan``; ``metrics`` as of `TestSet`.

    ``devices``: a list, or a `Cluster`, of which all processes have one.

    ``batch_size``: that of training, where a device's memory has a limit: then no more images are on a device at a
    time than a micro-batch has. Raises ValueError for images or labels that do not fit the network.
    """

    loss = None  # labels are classes

    def __init__(self, X, y, plan, devices, batch_size, metrics=()):
        check_images(X, plan.network)
        y = as_array("labels", y)
        check_labels(y, len(X), plan.network.classes)
        self.X, self.y, self.plan, self.everybody = X, y, plan, as_cluster(devices)
        self.size, self.metrics, own = len(X), dict(metrics), self.everybody.mine
        limited = any(limits_of(self.everybody))
        self.batch = max(1, min(PREDICTION_BATCH, batch_size // plan.micro_batches)) if limited else PREDICTION_BATCH
        if self.metrics:
            some = put(y[:EXAMPLES], own[0])
            own[0].run(try_metrics, self.metrics, some, plan.network.classes).result()
        actions = self.everybody.part(plan.actions)
        self.holders = [  # of each stage, who computes it
            [device for device, todo in zip(own, actions, strict=True) if any(a[:2] == ("F", s) for a in todo)]
            for s in range(len(plan.stages))
        ]

    def evaluate(self, device_params, statistics=(), tell=None):
        """As `TestSet.evaluate`, but there is one list of parameters, all of them, on the host: ``[params]``."""
        own, rest = [], iter(*device_params)
        for stage in self.plan.stages:
            own.append([next(rest) for _ in shapes_of(stage, self.plan.network)])
        parts = [slice(a, min(self.size, a + self.batch)) for a in range(0, self.size, self.batch)]
        rank, size = self.everybody.rank, self.everybody.size
        found, together = np.zeros((len(parts), 1 + len(self.metrics))), max(map(len, self.holders))
        mine = range(len(parts))[rank::size]
        for start in range(0, len(mine), together):
            some = mine[start : start + together]
            found[some] = self._evaluate([parts[i] for i in some], own)
            if tell:
                tell(min(self.size, parts[some[-1]].stop * size))
        sums = np.zeros(1 + len(self.metrics))
        for row in self._of_all(found):
            sums += row
        first, *others = (sums / self.size).tolist()
        metrics = {"metrics": dict(zip(self.metrics, others, strict=True))} if self.metrics else {}
        return {"test_accuracy": first} | metrics

    def _of_all(self, found):
        """What all processes have found: a row for each batch, in their order."""
        size, first = self.everybody.size, self.everybody.owners.index
        if size == 1:
            return found
        rows = gather(self.everybody, [found.reshape(-1)] * len(self.everybody.mine)).reshape(-1, *found.shape)
        return [rows[first(i % size), i] for i in range(len(found))]

    def _evaluate(self, parts, own):
        """Batches side by side through all stages: for each the right answers and the metrics."""
        batches = [to_float(self.X[part]) for part in parts]
        for stage, holders, params in zip(self.plan.stages, self.holders, own, strict=True):
            layers, tasks = self.plan.network[stage.first : stage.stop], []
            for i, batch in enumerate(batches):
                if holders:
                    device = holders[i % len(holders)]
                    tasks.append(device.run(_forward, put(batch, device), [put(p, device) for p in params], layers))
                else:
                    tasks.append(self._device(i).submit(_forward, to_host(batch), params, layers))
            batches = [task.result() for task in tasks]
        tasks = []
        for i, (outputs, part) in enumerate(zip(batches, parts, strict=True)):
            if isinstance(outputs, DeviceArray):
                tasks.append(outputs.device.run(_sums, outputs, put(self.y[part], outputs.device), self.metrics))
            else:
                tasks.append(self._device(i).submit(_sums, outputs, self.y[part], self.metrics))
        return [task.result() for task in tasks]

    def _device(self, i):
        """One of this process's, for a stage of which none of them has anything: it computes with the host's arrays."""
        return self.everybody.mine[i % len(self.everybody.mine)]


def _forward(x, params, layers):
    """Runs on a device."""
    with span("evaluate"):
        return logits(x, params, layers)


def _sums(outputs, y, metrics):
    """Runs on a device."""
    with span("evaluate"):
        own = sum_metrics(metrics, outputs, y, outputs.dtype) if metrics else []
        return [float(on_host(right_answers(outputs, y))), *own]
