"""A trained network's predictions for images, and how often they are right, computed on all the devices."""

from typing import overload

import numpy as np

from ..base.arguments import as_array, check_list, check_whole
from ..base.foreign import as_numpy
from ..cluster import as_cluster, gather
from ..data.minibatches import to_float
from ..devices import array_module, put, to_host
from ..devices.records import span
from ..layers import check_labels
from ..layers.exact import ExactSums, slices_of_granules
from ..layers.loss import right_answers
from ..networks import CROSS_ENTROPY, LENET, channels, find_loss, logits
from ..networks.checks import check_params, check_running
from ..networks.losses import as_targets, on_host
from ..parallel import get_params, split_batch
from ..parallel.shards import shard_bounds
from .checks import check_data, check_image_data
from .metrics import EXAMPLES, check_metrics, sum_metrics, try_metrics

EVALUATION_BATCH = 4096
"""The number of test images that the devices evaluate at a time."""

PREDICTION_BATCH = 256
"""The same for `predict`, which needs more memory per image."""


@overload
def evaluate(
    params_or_device_params, X, y, devices=..., network=..., statistics=..., loss=..., metrics: None = None, sums=...
) -> float: ...
@overload
def evaluate(
    params_or_device_params, X, y, devices=..., network=..., statistics=..., loss=..., *, metrics: dict, sums=...
) -> dict: ...
def evaluate(
    params_or_device_params,
    X,
    y,
    devices=None,
    network=LENET,
    statistics=(),
    loss="cross_entropy",
    metrics=None,
    sums="float",
) -> float | dict:
    """The accuracy: the fraction of images whose label has the largest logit, computed on all the devices.

    ``X``, uint8 or float32 (N, C, H, W), and ``y`` (N,) are on the host; ``devices``: by default [try_gpu(0)]. The
    parameters are one list, which is copied to every device, or a list of such lists, one on each device. The same
    holds for batch norm's ``statistics``, the running means and variances; a network with batch norm needs them,
    because an image's class must not depend on the other images. Every example counts the same, however the examples
    are split: the correct answers on all devices are added up, and the total is divided once.

    ``loss``: the loss used in training. For the cross-entropy, one-hot or soft labels, floats (N, classes), stand for
    the class with the largest value. Other targets that are not whole numbers are not classes; then the result is the
    loss per example.

    With ``metrics``, a dict of functions (see metrics.py), the result is a dict of "accuracy" (or "loss") and each
    metric, per example. ``sums``: "exact" gives the same bits on any number of devices (see layers/exact.py).

    On a `Cluster` all processes call this and get the same result; the parameters are one list, or one for each of the
    process's own devices.

    Raises ValueError if there are no examples, if a label is not a whole number below the number of classes, or if
    ``metrics`` is not a dict of functions.
    """
    X, y, loss, metrics = as_numpy("X", X), as_array("labels", y), find_loss(loss), check_metrics(metrics)
    check_data(X, y, network, loss)
    tested = TestSet(X, y, devices, network, loss, metrics, sums).evaluate(params_or_device_params, statistics)
    if not metrics:
        return next(iter(tested.values()))
    own = tested.pop("metrics")
    return {name.removeprefix("test_"): value for name, value in tested.items()} | own


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

    def evaluate(self, params_or_device_params, statistics=(), tell=None):
        """A dict of ``test_accuracy``, or ``test_loss`` if targets are not classes, and ``metrics`` if there are any.

        ``tell(done)`` is called with the number of images evaluated so far.
        """
        device_params, device_statistics = _on_each(params_or_device_params, statistics, self.devices, self.network)
        tasks, found = [], []
        for shards in self.shards:
            each_device = zip(self.devices, *shards, device_params, device_statistics, strict=True)
            options = self.network, self.loss, self.metrics, self.exact
            tasks.append([device.run(_sums, *arrays, *options) for device, *arrays in each_device])
        for number, of_each in enumerate(tasks, 1):
            found.append([task.result() for task in of_each])
            if tell:
                tell(min(self.size, number * EVALUATION_BATCH))
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


def predict(
    params_or_device_params, X, devices=None, network=LENET, statistics=(), loss: str | tuple = "cross_entropy"
) -> np.ndarray:
    """The probability of each class for each image, floats (N, classes) on the host, in the images' order.

    The arguments are as in `evaluate`. With a ``loss`` other than cross_entropy, the outputs need not be logits and are
    returned unchanged. On a `Cluster` all processes call this and get all outputs. Raises ValueError for images that do
    not fit the network.
    """
    X = as_numpy("X", X)
    loss, group = find_loss(loss), as_cluster(devices)
    check_image_data(X, network)
    device_params, device_statistics = _on_each(params_or_device_params, statistics, group.mine, network)
    parts = []
    for start in range(0, len(X), PREDICTION_BATCH):
        part = X[start : start + PREDICTION_BATCH]
        shards, _ = split_batch(to_float(part), np.zeros(len(part), np.uint8), group)
        each_device = zip(group.mine, shards, device_params, device_statistics, strict=True)
        tasks = [device.run(logits, shard, params, network, own) for device, shard, params, own in each_device]
        parts.append((len(part), tasks))
    found = (_in_order([task.result() for task in tasks], n, group) for n, tasks in parts)
    scores = np.concatenate([np.zeros((0, network.classes)), *found])
    if loss is not CROSS_ENTROPY:
        return scores
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return scores / scores.sum(axis=1, keepdims=True)


def _in_order(shards, n, group):
    """The outputs (n, classes) of all devices, on the host; ``shards`` are those of this process's devices."""
    bounds = shard_bounds(n, len(group))
    most = bounds[0][1]  # no shard is larger than the first
    rows = gather(group, [np.resize(to_host(shard), (most, shard.shape[1])).ravel() for shard in shards])
    rows = rows.reshape(len(group), most, -1)
    return np.concatenate([row[: stop - start] for row, (start, stop) in zip(rows, bounds, strict=True)])


def confusion_matrix(y, predicted, classes) -> np.ndarray:
    """How many images of class i (the row) were predicted to be class j (the column): integers (classes, classes).

    Raises ValueError unless ``y`` and ``predicted`` are labels below ``classes``.
    """
    y, predicted = as_array("labels", y), as_array("predicted labels", predicted)
    classes = check_whole("classes", classes)
    check_labels(y, y.size, classes)
    check_labels(predicted, y.size, classes)
    cells = np.asarray(y, np.intp) * classes + np.asarray(predicted, np.intp)
    return np.bincount(cells, minlength=classes**2).reshape(classes, classes)


def _on_each(params, statistics, devices, network):
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
