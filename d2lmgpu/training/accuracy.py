"""What a trained network says of images, and how often it is right: computed on all the devices."""

import functools

import numpy as np

from ..arguments import as_array, check_list, check_whole
from ..data import to_float
from ..devices import check_devices, to_host
from ..layers import check_labels
from ..networks import LENET, channels, count_correct, logits
from ..parallel import get_params, split_batch
from ..timing import span
from .checks import check_data, check_images

EVALUATION_BATCH = 4096
"""Test images that are on the devices at a time."""

PREDICTION_BATCH = 256
"""The same of `predict`, which needs more memory for each."""


def evaluate(params_or_device_params, X, y, devices, network=LENET, statistics=()):
    """Accuracy, the fraction of images whose label is the largest logit, computed on all the devices.

    ``X`` uint8 or float32 (N, C, H, W) and ``y`` (N,) on the host. The parameters
    are one list, which is then copied to every device, or a list of such lists,
    one on each device; so are batch norm's ``statistics``, the running means and
    variances, without which a network with batch norm is not evaluated: an image's
    class must not depend on the others. Every example counts the same however the
    shards fall: correct answers are counted, and divided once.

    Raises ValueError if there are no examples, or not one label for each, a whole number below the network's classes.
    """
    return TestSet(X, y, devices, network).accuracy(params_or_device_params, statistics)


class TestSet:
    """Images and labels that stay on the devices, to be evaluated again and again; arguments are those of `evaluate`.

    They stay as they are, uint8 maybe, and become floats on the devices when they are used.
    """

    __test__ = False  # pytest would take it for a test

    def __init__(self, X, y, devices, network=LENET):
        check_data(X, y, network)
        self.devices, self.network, self.size = check_devices(devices), network, len(X)
        starts = range(0, len(X), EVALUATION_BATCH)
        parts = [slice(start, start + EVALUATION_BATCH) for start in starts]
        self.shards = [split_batch(X[part], y[part], self.devices) for part in parts]

    def accuracy(self, params_or_device_params, statistics=(), tell=None):
        """As `evaluate` does it. ``tell(done)`` is called with how many images are evaluated so far."""
        device_params, device_statistics = _on_each(params_or_device_params, statistics, self.devices, self.network)
        tasks = []
        for X_shards, y_shards in self.shards:
            each_device = zip(self.devices, X_shards, y_shards, device_params, device_statistics, strict=True)
            for device, X_shard, y_shard, params, fixed in each_device:
                tasks.append(device.run(_count_correct, X_shard, y_shard, params, self.network, fixed))
        right = done = 0
        for number, task in enumerate(tasks, 1):
            right += int(task.result())
            if tell and number % len(self.devices) == 0:
                done = min(self.size, done + EVALUATION_BATCH)
                tell(done)
        return right / self.size


def _count_correct(X, y, params, network, statistics):
    """Runs on a device."""
    with span("evaluate"):
        return count_correct(to_float(X), y, params, network, statistics)


def predict(params_or_device_params, X, devices, network=LENET, statistics=()):
    """The probability of each class for each image, float (N, classes) on the host, in the images' order.

    Arguments are those of `evaluate`. Raises ValueError for images that do not fit the network.
    """
    devices = check_devices(devices)
    check_images(X, network)
    device_params, device_statistics = _on_each(params_or_device_params, statistics, devices, network)
    tasks = []
    for start in range(0, len(X), PREDICTION_BATCH):
        part = X[start : start + PREDICTION_BATCH]
        shards, _ = split_batch(to_float(part), np.zeros(len(part), np.uint8), devices)
        for device, shard, params, fixed in zip(devices, shards, device_params, device_statistics, strict=True):
            tasks.append(device.run(functools.partial(logits, network=network), shard, params, statistics=fixed))
    scores = np.concatenate([np.zeros((0, network.classes)), *(to_host(task.result()) for task in tasks)])
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return scores / scores.sum(axis=1, keepdims=True)


def confusion_matrix(y, predicted, classes):
    """How many images of class i (the row) were taken for class j (the column): integers (classes, classes).

    Raises ValueError unless ``y`` and ``predicted`` are labels of so many classes, as many of one as of the other.
    """
    check_whole("classes", classes, least=2, most=10**4)
    y, predicted = as_array("y", y), as_array("predicted", predicted)
    n = len(predicted) if predicted.ndim else 0
    check_labels(y, n, classes)
    check_labels(predicted, n, classes)
    cells = np.asarray(y, np.intp) * classes + np.asarray(predicted, np.intp)
    return np.bincount(cells, minlength=classes**2).reshape(classes, classes)


def _on_each(params, statistics, devices, network):
    """Parameters and statistics on each device: as they are if they are a list for each device, otherwise copied.

    Raises ValueError unless they are the network's.
    """
    shapes = [tuple(shape) for layer in network for shape in layer.shapes]
    norms = [(C,) for C in channels(network) for _ in range(2)]
    if norms and isinstance(statistics, (list, tuple)) and not statistics:
        raise ValueError(
            "the network has batch norm: give its running means and variances, such as statistics=result.statistics"
        )
    result = []
    for what, arrays, wanted in (("parameters", params, shapes), ("statistics", statistics, norms)):
        arrays = check_list(what, arrays, of="arrays, or such a list for each device")
        each = arrays if len(arrays) and isinstance(arrays[0], (list, tuple)) else None
        if each is not None and len(each) != len(devices):
            raise ValueError(f"{len(each)} copies of the {what} for {len(devices)} devices")
        for mine in [arrays] if each is None else each:
            if [np.shape(array) for array in mine] != wanted:
                raise ValueError(
                    f"{what} of shapes {[np.shape(array) for array in mine]}; the network has {wanted}: "
                    "give the one that they are of, such as network=result.network"
                )
        result.append(each or [get_params(arrays, device) if wanted else [] for device in devices])
    return result
