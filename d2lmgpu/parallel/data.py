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

from ..arguments import as_numpy, check_array, check_flag, check_list, check_number, check_sized
from ..cluster import as_cluster
from ..collectives import allreduce, check_algorithm
from ..devices import Batch, DeviceArray, DeviceMismatchError, check_devices, parts_of, put, to_host
from ..devices.errors import HOST
from ..devices.transfer import result_to_host
from ..layers import check_labels
from ..networks import LENET, check_images, check_params, loss_and_grads
from ..optimizers import sgd
from ..timing import span
from .shards import check_loads, put_parts, shard_bounds


def get_params(params, device):
    """A full copy of the parameters on ``device``: a list of device arrays, all in one buffer.

    Raises ValueError unless ``params`` is a list of arrays, DeviceError for what is no device.
    """
    params = check_list("get_params: params", params, of="arrays, as of init_params")
    params = [check_array(f"get_params: params: number {i}", param) for i, param in enumerate(params)]
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
    X, y = check_sized("split_batch: X", X), check_sized("split_batch: y", y)
    if len(X) != len(y):
        raise ValueError(f"split_batch: {len(X)} examples in X and {len(y)} labels in y; each example needs one")
    if loads is not None:
        loads = check_loads(loads, len(everybody))
    bounds = everybody.part(shard_bounds(len(X), len(everybody), loads))
    return put_parts(X, bounds, everybody.mine), put_parts(y, bounds, everybody.mine)


def train_batch(X, y, device_params, devices, lr, algorithm="naive", flat=False):
    """One training step on all devices, in place; returns the loss summed over the batch.

    ``X`` (N, 1, 28, 28) in the parameters' dtype and ``y`` (N,) are on the host;
    ``device_params`` holds a full copy of LeNet's parameters for each device. The
    gradients are exchanged one by one, as in the textbook, or with ``flat`` as
    one message.

    The step is submitted to the devices as a whole: an interrupt leaves all of it or nothing, and those of several host
    threads come one after the other. If the work of a device fails, no parameters change.

    Raises ValueError for arguments that do not fit together, for labels that are no classes, and without examples;
    DeviceMismatchError for parameters that are not on their devices.
    """
    X, y = as_numpy("train_batch: X", X), as_numpy("train_batch: y", y)
    devices = check_devices(devices)
    _check_train_batch(X, y, device_params, devices, lr, algorithm, flat)
    with span("data"):
        X_shards, y_shards = split_batch(X, y, devices)
    replicas = [Replica(params, device) for params, device in zip(device_params, devices, strict=True)]
    batch = Batch()  # of work
    each_device = zip(replicas, X_shards, y_shards, strict=True)  # which compute at the same time
    tasks = [batch.run(replica.device, replica.loss_and_grads, X, y) for replica, X, y in each_device]
    messages = [[replica.flat_grads] if flat else replica.grads for replica in replicas]
    for grads in zip(*messages, strict=True):  # each gradient: all now hold the sum
        allreduce(grads, algorithm, batch)
    # every device steps its own copy
    updates = [batch.submit(replica.device, replica.update, tasks, lr, len(y)) for replica in replicas]
    batch.commit()
    for task in tasks:
        task.asked = True  # if several fail, the first error speaks for all
    for update in updates:
        update.result()
    return sum(float(result_to_host(loss)) for loss in [task.result() for task in tasks])


class Replica:
    """A device's copy of LeNet's parameters, ``params`` of `get_params`, updated in place, and its gradients.

    Gradients, in one buffer, lie in the same memory for all replicas of a device: a step uses them up.
    """

    def __init__(self, params, device):
        self.device, self.params = device, params
        flat = device.buffer("gradients", sum(param.size for param in params), params[0].dtype)
        self.grads = [DeviceArray(part, device) for part in parts_of(flat, params)]
        self.flat_grads = DeviceArray(flat, device)

    def loss_and_grads(self, X, y):
        """Runs on the device, with plain arrays: the loss summed over the shard; gradients are written to ``grads``."""
        loss, _ = loss_and_grads(X, y, [param.raw for param in self.params], out=[grad.raw for grad in self.grads])
        return loss

    def update(self, tasks, lr, batch_size):
        """Runs on the device, with the gradients summed: a step of SGD, unless one of ``tasks`` failed."""
        if any(task.error for task in tasks):  # all were waited for in the allreduce
            return
        sgd([param.raw for param in self.params], [grad.raw for grad in self.grads], lr, batch_size)


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
                raise DeviceMismatchError("train_batch", device, param.device if hasattr(param, "raw") else HOST)
        check_images("train_batch: X", X, params, LENET)
    check_labels(y, len(X), LENET.classes)
    if len(y) == 0:
        raise ValueError("the minibatch has no examples; a training step needs at least one")
