"""Data parallelism: every device holds all parameters and a part of the minibatch.

One step, as in Dive into Deep Learning, "Training on Multiple GPUs":

             minibatch X, y
            ↙              ↘            split_batch
    shard on device 0   shard on device 1
            ↓               ↓           loss_and_grads, at the same time
       gradients        gradients
            ↓ ←───────────→ ↓           allreduce: both now hold the sum
       parameters       parameters      sgd, on each device's own copy
"""

from typing import NamedTuple

import numpy as np

from ..arguments import check_array, check_flag, check_list, check_number, check_sized
from ..cluster import as_cluster
from ..collectives import allreduce, check_algorithm
from ..devices import Batch, DeviceArray, DeviceMismatchError, check_devices, parts_of, put, to_host
from ..devices.errors import HOST
from ..devices.transfer import result_to_host
from ..layers import check_labels
from ..networks import LENET, check_images, check_params
from ..timing import span
from .replica import Replica
from .shards import check_loads, shard_bounds


def get_params(params, device):
    """A full copy of the parameters on ``device``: a list of device arrays, all in one buffer.

    Raises ValueError unless ``params`` is a list of arrays, DeviceError for what is no device.
    """
    params = check_list("get_params: params", params, of="arrays, as of init_params")
    for i, param in enumerate(params):
        check_array(f"get_params: params: number {i}", param)
    if not params:
        raise ValueError("get_params: the list of parameters is empty; give those of init_params, or a network's")
    if len({param.dtype for param in params}) > 1:
        return [put(param, device) for param in params]
    flat = put(np.concatenate([to_host(param).reshape(-1) for param in params]), device)
    return [DeviceArray(part, device) for part in parts_of(flat.raw, params)]


def split_batch(X, y, devices, loads=None):
    """Split examples over the devices: (list of X shards, list of y shards), each on its device.

    Shard sizes differ by at most one, or follow ``loads``, a number for each
    device (its share of the work, in any unit; 0 leaves a device idle). A shard
    may be empty: fewer examples than devices are legal. Of a `Cluster` each
    process gets the shards of its own devices.

    Raises ValueError if X and y differ in length, or for devices or loads that
    make no sense.
    """
    everybody = as_cluster(devices)
    for name, array in (("X", X), ("y", y)):
        check_sized(f"split_batch: {name}", array)
    if len(X) != len(y):
        raise ValueError(f"split_batch: {len(X)} examples in X and {len(y)} labels in y; each example needs one")
    if loads is not None:
        loads = check_loads(loads, len(everybody))
    bounds = everybody.part(shard_bounds(len(X), len(everybody), loads))
    X_shards = [put(X[start:stop], device) for (start, stop), device in zip(bounds, everybody.mine, strict=True)]
    y_shards = [put(y[start:stop], device) for (start, stop), device in zip(bounds, everybody.mine, strict=True)]
    return X_shards, y_shards


def train_batch(X, y, device_params, devices, lr, algorithm="naive", flat=False):
    """One training step on all devices, in place; returns the loss summed over the batch.

    ``X`` (N, 1, 28, 28) in the parameters' dtype and ``y`` (N,) are on the host;
    ``device_params`` holds a full copy of LeNet's parameters for each device. The
    gradients are exchanged one by one, as in the textbook, or with ``flat`` as
    one message.

    Raises ValueError for arguments that do not fit together, for labels that are no classes, and without examples;
    DeviceMismatchError for parameters that are not on their devices.
    """
    devices = check_devices(devices)
    _check_train_batch(X, y, device_params, devices, lr, algorithm, flat)
    with span("data"):
        X_shards, y_shards = split_batch(X, y, devices)
    replicas = [Replica(params, device) for params, device in zip(device_params, devices, strict=True)]
    exchange = allreduce_flat if flat else allreduce_each
    return summed_loss(train_shards(X_shards, y_shards, replicas, lr, algorithm, exchange=exchange))


def loss_and_grads_on_each(batch, X_shards, y_shards, replicas):
    """Add to a batch of work: each device its shard's gradients, all at the same time; returns their tasks."""
    each_device = zip(replicas, X_shards, y_shards, strict=True)
    return [batch.run(replica.device, replica.loss_and_grads, X, y) for replica, X, y in each_device]


def allreduce_each(batch, replicas, algorithm):
    """Add to a batch of work: all devices get the sum of each gradient, one after the other."""
    for grads in zip(*(replica.grads for replica in replicas), strict=True):
        allreduce(grads, algorithm, batch)


def allreduce_flat(batch, replicas, algorithm):
    """As `allreduce_each`, all gradients as one message."""
    allreduce([replica.flat_grads for replica in replicas], algorithm, batch)


def train_shards(
    X_shards,
    y_shards,
    replicas,
    lr,
    algorithm="naive",
    compute=loss_and_grads_on_each,
    exchange=allreduce_each,
    batch_size=None,
):
    """Submit the step of `train_batch` on a minibatch that is split already; returns a `Step` at once.

    ``replicas``: for each device its `Replica`, all of one network and optimiser. ``compute`` and ``exchange``:
    how gradients are computed and summed over devices, functions like their defaults; see variants.py for others.
    ``batch_size``: of the whole minibatch, where it has more than these shards.

    `summed_loss` waits for the step. Whatever is submitted to the devices from now on, another step for instance,
    comes after this one. If the work of a device fails, no parameters change. Raises ValueError for a minibatch
    without examples, which has no mean gradient.

    A step is submitted as a whole: an interrupt leaves all of it or nothing, and
    those of several host threads come one after the other.
    """
    if batch_size is None:
        batch_size = sum(len(y_shard) for y_shard in y_shards)
    if batch_size == 0:
        raise ValueError("the minibatch has no examples; a training step needs at least one")
    batch = Batch()  # of work
    tasks = compute(batch, X_shards, y_shards, replicas)
    exchange(batch, replicas, algorithm)
    updates = [batch.submit(replica.device, replica.update, tasks, lr, batch_size) for replica in replicas]
    batch.commit()
    return Step(tasks, updates)


class Step(NamedTuple):
    """A step under way: for each device its task of `loss_and_grads`, and that of the update."""

    tasks: list
    updates: list


def summed_loss(step):
    """Wait for a step; the loss summed over all shards, or the error of a device."""
    return loss_and_correct(step)[0]


def loss_and_correct(step):
    """As `summed_loss`, and with it for how many examples the largest logit was the label."""
    for task in step.tasks:
        task.asked = True  # if several fail, the first error speaks for all
    for update in step.updates:
        update.result()
    sums = [result_to_host(sums).tolist() for sums, _ in [task.result() for task in step.tasks]]
    return sum(loss for loss, _ in sums), sum(int(correct) for _, correct in sums)


def _check_train_batch(X, y, device_params, devices, lr, algorithm, flat):
    check_algorithm(algorithm, training=True)
    check_number("lr", lr)
    check_flag("flat", flat)
    device_params = check_list("device_params", device_params, of="lists of arrays, one for each device")
    if len(device_params) != len(devices):
        raise ValueError(f"train_batch: {len(device_params)} copies of the parameters for {len(devices)} devices")
    for params, device in zip(device_params, devices, strict=True):
        check_params(f"train_batch: the parameters on {device}", params, LENET)
        for param in params:
            if getattr(param, "device", None) is not device:
                raise DeviceMismatchError("train_batch", device, getattr(param, "device", HOST))
        check_images("train_batch: X", X, params, LENET)
    check_labels(y, len(X), LENET.classes)
