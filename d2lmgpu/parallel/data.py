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

import numpy as np

from ..collectives import allreduce, check_algorithm, chunk_bounds
from ..devices import DeviceArray, check_devices, one_buffer, parts_of, put, to_host
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
    return train_shards(X_shards, y_shards, device_params, devices, lr, algorithm, flat)


def train_shards(
    X_shards, y_shards, device_params, devices, lr, algorithm="naive", flat=False, overlap=False, meanwhile=None
):
    """The step of `train_batch` on a minibatch that is split already.

    ``overlap``: exchange the gradients in buckets, each as soon as all devices
    have it, while they go on computing the others. ``meanwhile``: a function
    that is called while the devices compute, such as one that prepares the next
    minibatch.
    """
    exchange = Exchange(device_params, devices, algorithm, flat) if overlap else None
    tasks = []
    for i, (device, params) in enumerate(zip(devices, device_params, strict=True)):  # submitted to all
        grads = gradient_arrays(params, device)
        ready = exchange.expect(i, grads) if overlap else None
        tasks.append(device.run(loss_and_grads, X_shards[i], y_shards[i], params, out=grads, ready=ready))
    if overlap:
        exchange.start()
    if meanwhile is not None:
        meanwhile()
    for task in tasks:
        task.asked = True  # if several fail, the first error speaks for all
    if overlap:
        exchange.let_go(tasks)
    losses, device_grads = zip(*(task.result() for task in tasks), strict=True)  # before any result is waited for
    if overlap:
        exchange.finish()
    elif flat:
        allreduce([one_buffer(grads) for grads in device_grads], algorithm)
    else:
        for grads in zip(*device_grads, strict=True):  # sum each gradient over the devices
            allreduce(grads, algorithm)
    batch_size = sum(len(y_shard) for y_shard in y_shards)
    for device, params, grads in zip(devices, device_params, device_grads, strict=True):
        device.run(sgd, params, grads, lr, batch_size)  # every device updates its own copy
    return sum(float(loss) for loss in losses)


def gradient_arrays(params, device):
    """Arrays like ``params`` in one buffer of the device, the same ones each time: a step uses them up."""
    flat = device.buffer("gradients", sum(param.size for param in params), params[0].dtype)
    return [DeviceArray(part, device) for part in parts_of(flat, params)]


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
