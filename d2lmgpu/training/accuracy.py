"""What a trained network says of images, and how often it is right: computed on all the devices."""

import functools

import numpy as np

from ..data import to_float
from ..devices import check_devices, to_host
from ..networks import LENET, count_correct, logits
from ..parallel import get_params, split_batch
from .checks import check_data, check_images

EVALUATION_BATCH = 4096
"""Test images that are on the devices at a time."""

PREDICTION_BATCH = 256
"""The same of `predict`, which needs more memory for each."""


def evaluate(params_or_device_params, X, y, devices, network=LENET, statistics=()):
    """Accuracy, the fraction of images whose label is the largest logit, computed on all the devices.

    ``X`` uint8 or float (N, C, H, W) and ``y`` (N,) on the host. The parameters
    are one list, which is then copied to every device, or a list of such lists,
    one on each device; so are batch norm's ``statistics``. Every example counts
    the same however the shards fall: correct answers are counted, and divided once.

    Raises ValueError if there are no examples, or not one label for each, of the network's classes.
    """
    return TestSet(X, y, devices, network).accuracy(params_or_device_params, statistics)


class TestSet:
    """Images and labels that stay on the devices, to be evaluated again and again; arguments are those of `evaluate`.

    They stay as they are, uint8 maybe, and become floats on the devices when they are used.
    """

    __test__ = False  # pytest would take it for a test

    def __init__(self, X, y, devices, network=LENET):
        self.devices, self.network, self.size = check_devices(devices), network, len(X)
        check_data(X, y, network)
        starts = range(0, len(X), EVALUATION_BATCH)
        parts = [slice(start, start + EVALUATION_BATCH) for start in starts]
        self.shards = [split_batch(X[part], y[part], self.devices) for part in parts]

    def accuracy(self, params_or_device_params, statistics=()):
        """As `evaluate` does it."""
        device_params = _on_each(params_or_device_params, self.devices)
        device_statistics = _on_each(statistics, self.devices)
        tasks = []
        for X_shards, y_shards in self.shards:
            each_device = zip(self.devices, X_shards, y_shards, device_params, device_statistics, strict=True)
            for device, X_shard, y_shard, params, fixed in each_device:
                tasks.append(device.run(_count_correct, X_shard, y_shard, params, self.network, fixed))
        return sum(int(task.result()) for task in tasks) / self.size


def _count_correct(X, y, params, network, statistics):
    """Runs on a device."""
    return count_correct(to_float(X), y, params, network, statistics)


def predict(params_or_device_params, X, devices, network=LENET, statistics=()):
    """The probability of each class for each image, float (N, classes) on the host, in the images' order.

    Arguments are those of `evaluate`. Raises ValueError for images that do not fit the network.
    """
    devices = check_devices(devices)
    check_images(X, network)
    device_params = _on_each(params_or_device_params, devices)
    device_statistics = _on_each(statistics, devices)
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
    """How many images of class i (the row) were taken for class j (the column): integers (classes, classes)."""
    return np.bincount(np.asarray(y, int) * classes + predicted, minlength=classes**2).reshape(classes, classes)


def _on_each(arrays, devices):
    """``arrays`` on each device: as they are if they are a list for each device, otherwise copied."""
    if arrays and isinstance(arrays[0], (list, tuple)):
        return arrays
    return [get_params(arrays, device) if arrays else [] for device in devices]
