"""Accuracy, computed on all the devices."""

import functools

from ..data import to_float
from ..devices import check_devices
from ..networks import LENET, count_correct
from ..parallel import get_params, split_batch
from .checks import check_data

EVALUATION_BATCH = 4096
"""Test images that are on the devices at a time."""


def evaluate(params_or_device_params, X, y, devices, network=LENET, statistics=()):
    """Accuracy, the fraction of images whose label is the largest logit, computed on all the devices.

    ``X`` uint8 or float (N, C, H, W) and ``y`` (N,) on the host. The parameters
    are one list, which is then copied to every device, or a list of such lists,
    one on each device; so are batch norm's ``statistics``. Every example counts
    the same however the shards fall: correct answers are counted, and divided once.

    Raises ValueError if there are no examples, or not one label for each, of the network's classes.
    """
    devices = check_devices(devices)
    check_data(X, y, network)
    device_params = _on_each(params_or_device_params, devices)
    device_statistics = _on_each(statistics, devices)
    count = functools.partial(count_correct, network=network)
    tasks = []
    for start in range(0, len(X), EVALUATION_BATCH):
        part = slice(start, start + EVALUATION_BATCH)
        X_shards, y_shards = split_batch(to_float(X[part]), y[part], devices)
        each_device = zip(devices, X_shards, y_shards, device_params, device_statistics, strict=True)
        for device, X_shard, y_shard, params, fixed in each_device:
            tasks.append(device.run(count, X_shard, y_shard, params, statistics=fixed))
    return sum(int(task.result()) for task in tasks) / len(X)


def _on_each(arrays, devices):
    """``arrays`` on each device: as they are if they are a list for each device, otherwise copied."""
    if arrays and isinstance(arrays[0], (list, tuple)):
        return arrays
    return [get_params(arrays, device) if arrays else [] for device in devices]
