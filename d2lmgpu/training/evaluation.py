"""Test sets on the devices, and your own metrics: functions that compute a measure of how good a network is.

    def top_3(logits, labels):                                     (n, classes), (n,)
        best = logits.argsort(axis=1)[:, -3:]
        return (best == labels[:, None]).sum()                     a number: summed over the n images

A metric gets plain NumPy or CuPy arrays for as many images as a device evaluates at a time, and returns a *sum* over
these images. The sums from all devices are added up, and the total is divided once by the number of images, as are the
right answers and the losses. If outputs are not finite, metrics are not called; they are NaN.
"""

import math

import numpy as np

from ..base.arguments import check_function, check_list
from ..base.text import shown
from ..cluster import as_cluster, gather, sum_disjoint
from ..data.minibatches import to_float
from ..devices import array_module, put, to_host
from ..devices.records import span
from ..layers.exact import SUMS, ExactSums, slices_of_granules
from ..layers.loss import answers, right_answers
from ..networks import CROSS_ENTROPY, HALF, channels, logits, logits_as_written
from ..networks.checks import check_params, check_running
from ..networks.losses import as_number, as_targets, call_named, on_host
from ..parallel import get_params, split_batch
from ..plans.plan import Compute, norms_of, shapes_of
from .splits import limits_of

EVALUATION_BATCH = 4096
"""The number of test images that the devices evaluate at a time."""

PREDICTION_BATCH = 256
"""The same where memory counts: in `predict`, and for a split."""

EXAMPLES, _TOLERANCE = 7, 1e-3
"""The number of examples with which a metric is tried, and how far its sums may be off, relative to their size."""

TAKEN = "accuracy", "loss"
"""Names that `evaluate` uses for other things."""


def check_metrics(metrics):
    """A copy of ``metrics``, a dict of functions; {} for None. Raises ValueError for anything else."""
    if metrics is None:
        return {}
    if not isinstance(metrics, dict):
        raise ValueError(f"metrics are {shown(metrics)}; give functions by their names: {{'top 3': function}}")
    for name, function in metrics.items():
        if not isinstance(name, str) or not name.strip() or not name.isprintable() or name in TAKEN:
            raise ValueError(f"{shown(name)} cannot be a metric's name; give a word or two, not {' or '.join(TAKEN)}")
        check_function(f"metric {name}", function, "outputs", "labels")
    return dict(metrics)


def try_metrics(metrics, y, outputs):
    """Runs on a device: try each metric with random outputs (n, ``outputs``) and a few labels or targets ``y``.

    Raises ValueError unless each metric returns a finite number that is a sum over the examples.
    """
    random = np.random.default_rng(0).normal(size=(len(y), outputs)).astype(np.float32)
    logits = array_module(y).array(random)
    whole = sum_metrics(metrics, logits, y, finite=True)
    each = [sum_metrics(metrics, logits[i : i + 1], y[i : i + 1], finite=True) for i in range(len(y))]
    for name, value, *parts in zip(metrics, whole, *each, strict=True):
        if abs(value - sum(parts)) > _TOLERANCE * max(map(abs, [value, *parts])):
            raise ValueError(
                f"metric {name} gives {value:.6g} for {len(y)} images, and {sum(parts):.6g} in all if each is given on "
                "its own; it should return a sum over the images (which is then divided by their number), not a mean"
            )


def sum_metrics(metrics, outputs, y, finite=False):
    """A list of the metrics, as floats, for plain arrays ``outputs`` (n, K) and targets ``y`` (n, ...), n above 0.

    Of outputs that are not finite, metrics are NaN: top_3 would take NaN for the largest of numbers.

    Raises ValueError, with the metric's name, if a metric fails or does not return a number.
    """
    y, sums = as_targets(y, outputs.dtype), []
    finite_outputs = bool(metrics) and bool((answers(outputs) >= 0).all())
    for name, function in metrics.items():
        value = call_named(f"metric {name}", function, outputs, y) if finite_outputs else math.nan
        sums.append(as_number(f"metric {name} returned", value, "the sum over images", finite))
    return sums


class TestSet:
    """Images and labels that stay on the devices, to be evaluated again and again; the arguments are as in `evaluate`.

    The images keep their type, such as uint8, and become floats on the devices when they are used. ``size``: the number
    of images; ``loss``: None if labels are classes.
    """

    __test__ = False  # otherwise pytest would take it for a test

    def __init__(self, X, y, devices, network, loss, metrics, sums="float"):
        self.loss = loss if y.dtype.kind == "f" and loss is not CROSS_ENTROPY else None
        self.group = as_cluster(devices)
        self.devices, self.network, self.size = self.group.mine, network, len(X)
        self.metrics, self.sums = metrics, sums
        self.exact = ExactSums(len(X), "of the test set") if sums == "exact" else None
        if self.metrics:
            some = put(y[:EXAMPLES], self.devices[0])
            self.devices[0].run(try_metrics, self.metrics, some, network.classes).result()
        self._place(X, y)

    def _place(self, X, y):
        """Put all images and labels on the devices."""
        parts = [slice(start, start + EVALUATION_BATCH) for start in range(0, len(X), EVALUATION_BATCH)]
        self.shards = [split_batch(X[part], y[part], self.group, sums=self.sums) for part in parts]

    def evaluate(self, params_or_device_params, statistics=()):
        """A dict of ``test_accuracy``, or of ``test_loss`` without classes, and of ``metrics`` if there are any."""
        device_params, device_statistics = on_each(params_or_device_params, statistics, self.devices, self.network)
        tasks = []
        for shards in self.shards:
            each_device = zip(self.devices, *shards, device_params, device_statistics, strict=True)
            options = self.network, self.loss, self.metrics, self.exact
            tasks.append([device.run(_sums, *arrays, *options) for device, *arrays in each_device])
        found = [[task.result() for task in of_each] for of_each in tasks]
        return self._reached(sum(gather(self.group, sum(np.array(found)))))

    def _reached(self, sums):
        """The result of `evaluate`, from the ``sums`` over all images."""
        first, *others = (sums / self.size).tolist()
        metrics = {"metrics": dict(zip(self.metrics, others, strict=True))} if self.metrics else {}
        return {"test_loss" if self.loss else "test_accuracy": first} | metrics


def _sums(X, y, params, statistics, network, loss, metrics, exact):
    """Runs on a device: the sums of the correct answers (or the losses, if a ``loss`` is given) and of each metric."""
    if not len(X):
        return [0.0] * (1 + len(metrics))
    with span("evaluate"):
        outputs = (by_granules if exact else logits)(to_float(X), params, network, statistics)
        return sums_of(outputs, y, loss, metrics, exact)


def by_granules(X, params, network, statistics=()):
    """Like `logits`, computed granule by granule, and thus with the same bits on any number of devices."""
    parts = [logits(X[part], params, network, statistics) for part in slices_of_granules(len(X))]
    return array_module(X).concatenate(parts)


def sums_of(outputs, y, loss, metrics, exact=None):
    """The sums of the correct answers (or the losses, if a ``loss`` is given) and of each metric, for plain outputs.

    ``exact``: the `ExactSums` that add up the sums of the granules.
    """
    if exact:
        parts = slices_of_granules(len(y))
        rows = [np.array(sums_of(outputs[part], y[part], loss, metrics)) for part in parts]
        return sum(map(exact.losses, rows)).tolist()
    first = right_answers(outputs, y) if loss is None else loss.forward(outputs, as_targets(y, outputs.dtype))[0]
    return [float(on_host(first)), *sum_metrics(metrics, outputs, y)]


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

    def evaluate(self, device_params, statistics=()):
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


def on_each(params, statistics, devices, network):
    """Parameters and statistics on each device: as they are if there is a list for each device, otherwise copied.

    Raises ValueError unless parameters and statistics fit the network.
    """
    if channels(network) and isinstance(statistics, (list, tuple)) and not statistics:
        raise ValueError(
            "the network has batch norm: give its running means and variances, such as statistics=result.statistics"
        )
    device_params = _lists("parameters", params, devices, check_params, network)
    return device_params, _lists("statistics", statistics, devices, check_running, network)


def _lists(what, arrays, devices, check, network):
    arrays = check_list(what, arrays, of="arrays, or such a list for each device")
    are_there = bool(arrays) and isinstance(arrays[0], (list, tuple))
    each = arrays if are_there else [arrays] * len(devices)
    if len(each) != len(devices):
        raise ValueError(f"{len(each)} copies of the {what} for {len(devices)} devices")
    for own in each:
        check(what, own, network)
    return each if are_there or not arrays else [get_params(arrays, device) for device in devices]
