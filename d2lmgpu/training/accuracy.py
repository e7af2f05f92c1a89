"""A trained network's predictions for images, and how often they are right, computed on all the devices."""

from typing import overload

import numpy as np

from ..base.arguments import as_array, check_whole
from ..base.foreign import as_numpy
from ..cluster import as_cluster, gather
from ..data.minibatches import to_float
from ..devices import isolated_errors, to_host
from ..layers import check_labels
from ..networks import CROSS_ENTROPY, LENET, find_loss, logits
from ..parallel import split_batch
from ..parallel.shards import shard_bounds
from .checks import check_data, check_image_data
from .evaluation import PREDICTION_BATCH, TestSet, check_metrics, on_each


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

    With ``metrics``, a dict of functions (see evaluation.py), the result is a dict of "accuracy" (or "loss") and each
    metric, per example. ``sums``: "exact" gives the same bits on any number of devices (see layers/exact.py).

    On a `Cluster` all processes call this and get the same result; the parameters are one list, or one for each of the
    process's own devices.

    Raises ValueError if there are no examples, if a label is not a whole number below the number of classes, or if
    ``metrics`` is not a dict of functions.
    """
    X, y, loss, metrics = as_numpy("X", X), as_array("labels", y), find_loss(loss), check_metrics(metrics)
    check_data(X, y, network, loss)
    group = as_cluster(devices)
    with isolated_errors(group.mine):
        tested = TestSet(X, y, group, network, loss, metrics, sums).evaluate(params_or_device_params, statistics)
    if not metrics:
        return next(iter(tested.values()))
    own = tested.pop("metrics")
    return {name.removeprefix("test_"): value for name, value in tested.items()} | own


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
    with isolated_errors(group.mine):
        device_params, device_statistics = on_each(params_or_device_params, statistics, group.mine, network)
        parts = []
        for start in range(0, len(X), PREDICTION_BATCH):
            part = X[start : start + PREDICTION_BATCH]
            shards, _ = split_batch(to_float(part), np.zeros(len(part), np.uint8), group)
            each_device = zip(group.mine, shards, device_params, device_statistics, strict=True)
            tasks = [device.run(logits, shard, params, network, own) for device, shard, params, own in each_device]
            parts.append((len(part), tasks))
        found = [_in_order([task.result() for task in tasks], n, group) for n, tasks in parts]
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
