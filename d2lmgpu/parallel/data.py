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

from ..collectives import allreduce, check_algorithm, chunk_bounds
from ..devices import DeviceArray, check_devices, in_one_piece, parts_of, put, to_host
from ..devices.transfer import result_to_host
from ..networks import loss_and_grads
from ..optimizers import sgd
from ..timing import span
from .overlap import Exchange


def get_params(params, device):
    """A full copy of the parameters on ``device``: a list of device arrays, all in one buffer."""
    if len({param.dtype for param in params}) > 1:
        return [put(param, device) for param in params]
    flat = put(np.concatenate([to_host(param).reshape(-1) for param in params]), device)
    return [DeviceArray(part, device) for part in parts_of(flat.raw, params)]


def split_batch(X, y, devices, loads=None):
    """Split examples over the devices: (list of X shards, list of y shards), each on its device.

    Shard sizes differ by at most one, or follow ``loads``, a number for each
    device (its share of the work, in any unit; 0 leaves a device idle). A shard
    may be empty: fewer examples than devices are legal.

    Raises ValueError if X and y differ in length, or for devices or loads that
    make no sense.
    """
    devices = check_devices(devices)
    if len(X) != len(y):
        raise ValueError(f"split_batch: {len(X)} examples in X and {len(y)} labels in y; each example needs one")
    bounds = chunk_bounds(len(X), len(devices)) if loads is None else load_bounds(len(X), _check_loads(loads, devices))
    X_shards = [put(X[start:stop], device) for (start, stop), device in zip(bounds, devices, strict=True)]
    y_shards = [put(y[start:stop], device) for (start, stop), device in zip(bounds, devices, strict=True)]
    return X_shards, y_shards


def load_bounds(n, loads):
    """Split n examples in proportion to ``loads``: a pair (start, stop) for each.

    Each part is its exact share rounded down; the examples left over go to the
    parts that lost most by rounding (the largest-remainder method).
    """
    shares = n * np.asarray(loads, float) / np.sum(loads)
    sizes = np.floor(shares).astype(int)
    neediest = np.argsort(sizes - shares, kind="stable")
    sizes[neediest[: n - sizes.sum()]] += 1
    stops = np.cumsum(sizes).tolist()
    return list(zip([0, *stops[:-1]], stops, strict=True))


def train_batch(X, y, device_params, devices, lr, algorithm="naive", flat=False):
    """One training step on all devices, in place; returns the loss summed over the batch.

    ``X`` (N, 1, 28, 28) in the parameters' dtype and ``y`` (N,) are on the host;
    ``device_params`` holds a full copy of the parameters for each device. The
    gradients are exchanged one by one, as in the textbook, or with ``flat`` as
    one message.

    Raises ValueError for arguments that do not fit together.
    """
    _check_step(device_params, devices, algorithm)
    with span("data"):
        X_shards, y_shards = split_batch(X, y, devices)
    return summed_loss(submit_step(X_shards, y_shards, device_params, devices, lr, algorithm, flat))


def submit_step(
    X_shards, y_shards, device_params, devices, lr, algorithm="naive", flat=False, overlap=False, buffers=None
):
    """Submit the step of `train_batch` on a minibatch that is split already; returns a `Step` at once.

    `summed_loss` waits for them. Whatever is submitted to the devices from now
    on, another step for instance, comes after this one. ``overlap``: exchange
    the gradients in buckets, each as soon as all devices have it, while they go
    on computing the others. ``buffers``: the devices' `Buffers`, if there are
    some. If the work of a device fails, no parameters change.
    """
    if buffers is None:
        buffers = [Buffers(params, device) for params, device in zip(device_params, devices, strict=True)]
    device_grads = [buffer.grads for buffer in buffers]
    exchange = Exchange(device_grads, devices, algorithm, flat) if overlap else None
    signals = [exchange.ready(i) if overlap else None for i in range(len(devices))]
    each_device = zip(devices, X_shards, y_shards, device_params, device_grads, signals, strict=True)
    tasks = [  # submitted to all devices, which compute at the same time
        device.run(loss_and_grads, X_shard, y_shard, params, out=grads, ready=ready)
        for device, X_shard, y_shard, params, grads, ready in each_device
    ]
    if overlap:
        exchange.submit(tasks)
    elif flat:
        allreduce([buffer.flat_grads for buffer in buffers], algorithm)
    else:
        for grads in zip(*device_grads, strict=True):  # each gradient: all devices now hold the sum
            allreduce(grads, algorithm)
    batch_size = sum(len(y_shard) for y_shard in y_shards)
    updates = [  # every device steps its own copy
        device.run(_update, tasks, *buffer.for_update, lr, batch_size)
        for device, buffer in zip(devices, buffers, strict=True)
    ]
    return Step(tasks, updates)


class Step(NamedTuple):
    """A step under way: for each device its task of `loss_and_grads`, and that of the update."""

    tasks: list
    updates: list


class Buffers:
    """One device's gradients, in one buffer, and what is updated with what: whole buffers where that can be.

    The memory is the same each time: a step uses the gradients up.
    """

    def __init__(self, params, device):
        flat = device.buffer("gradients", sum(param.size for param in params), params[0].dtype)
        self.grads = [DeviceArray(part, device) for part in parts_of(flat, params)]
        self.flat_grads = DeviceArray(flat, device)
        pieces = in_one_piece([param.raw for param in params])
        self.for_update = params, self.grads
        if len(pieces) == 1:
            self.for_update = [DeviceArray(pieces[0], device)], [self.flat_grads]


def summed_loss(step):
    """Wait for a step; the loss summed over all shards, or the error of a device."""
    for task in step.tasks:
        task.asked = True  # if several fail, the first error speaks for all
    for update in step.updates:
        update.result()
    return sum(float(result_to_host(loss)) for loss, _ in [task.result() for task in step.tasks])


def _update(tasks, params, grads, lr, batch_size):
    """`sgd`, unless the gradients of some device are missing. All tasks were waited for in the allreduce."""
    if not any(task.exception() for task in tasks):
        sgd(params, grads, lr, batch_size)


def _check_step(device_params, devices, algorithm):
    check_devices(devices)
    check_algorithm(algorithm, training=True)
    if len(device_params) != len(devices):
        raise ValueError(f"train_batch: {len(device_params)} copies of the parameters for {len(devices)} devices")


def _check_loads(loads, devices):
    loads = np.asarray(loads, float)
    if loads.shape != (len(devices),) or not np.isfinite(loads).all() or (loads < 0).any() or loads.sum() == 0:
        raise ValueError(
            f"loads {loads.tolist()}: give {len(devices)} numbers, one for each device, none below 0 and not all 0"
        )
    return loads
