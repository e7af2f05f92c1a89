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

from collections.abc import Callable

import numpy as np

from ..arguments import as_numpy, check_array, check_flag, check_list, check_number, check_sized, shown
from ..cluster import as_cluster, gather
from ..collectives import allreduce, check_algorithm
from ..devices import Batch, DeviceArray, DeviceMismatchError, parts_of, put, to_host
from ..devices.errors import HOST
from ..devices.transfer import result_to_host
from ..exact import ExactSums, as_floats
from ..networks import (
    LENET,
    channels,
    check_drawing,
    check_images,
    check_network,
    check_params,
    check_running,
    loss_and_grads,
)
from ..networks.losses import find_loss
from ..optimizers import OPTIMIZERS, DeviceOptimizer, init_optimizer
from ..timing import span
from .shards import check_loads, granule_of, put_parts, shard_bounds


def get_params(params, device) -> list[DeviceArray]:
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


def split_batch(X, y, devices, loads=None, sums="float") -> tuple[list[DeviceArray], list[DeviceArray]]:
    """Split examples over the devices: (list of X shards, list of y shards), each on its device.

    Shard sizes differ by at most one, or follow ``loads``, a number for each
    device (its share of the work, in any unit; 0 leaves a device idle). A shard
    may be empty: fewer examples than devices are legal. With ``sums`` "exact" shards are whole
    granules of 64 examples, see exact.py, and their numbers differ by at most one. Of a `Cluster` each
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
    bounds = everybody.part(shard_bounds(len(X), len(everybody), loads, granule_of(sums)))
    return put_parts(X, bounds, everybody.mine), put_parts(y, bounds, everybody.mine)


def train_batch(
    X,
    y,
    device_params,
    devices,
    lr,
    algorithm: str | Callable = "naive",
    flat=False,
    network=LENET,
    optimizer: str | list = "sgd",
    statistics=None,
    loss: str | tuple = "cross_entropy",
    draws=None,
    sums="float",
) -> float:
    """One training step on all devices, in place; returns the loss summed over the batch.

    ``X`` (N, C, H, W) in the parameters' dtype and ``y`` (N,) are on the host;
    ``device_params`` holds a full copy of the network's parameters for each device. The
    gradients are exchanged one by one, as in the textbook, or with ``flat`` as one message.

    ``optimizer``: "sgd", or what `init_optimizer` made for these parameters. ``statistics``:
    batch norm's running means and variances, a list on each device, which follow those of
    its own images; None: they are not needed. ``loss``: as of `loss_and_grads`; ``draws``:
    the whole minibatch's, for a network with dropout. ``sums``: "exact" adds gradients as integers, so that any number
    of devices and any allreduce give the same bits (exact.py), for networks without batch norm.

    On a `Cluster` all processes call this, with the same batch and with what is on their
    own devices, and get the loss of all.

    The step is submitted to the devices as a whole: an interrupt leaves all of it or nothing, and those of several host
    threads come one after the other. If the work of a device fails, no parameters change.

    Raises ValueError for arguments that do not fit together, for labels that are no classes, and without examples;
    DeviceMismatchError for arrays that are not on their devices.
    """
    X, y = as_numpy("train_batch: X", X), as_numpy("train_batch: y", y)
    devices, loss = as_cluster(devices), find_loss(loss)
    replicas = _replicas(devices.mine, device_params, network, optimizer, statistics)
    _check_step(X, y, devices, replicas, lr, algorithm, flat, network, loss, draws)
    granule = granule_of(sums)
    if granule > 1 and channels(network):
        raise ValueError(
            "train_batch: sums are exact, but batch norm takes statistics of each device's own images; train with "
            "batch_statistics='synchronised', or a network without batch norm"
        )
    bounds = devices.part(shard_bounds(len(y), len(devices), granule=granule))
    for replica, (first, _) in zip(replicas, bounds, strict=True):
        replica.how = {"network": network, "loss": loss, "draws": draws and draws.after(first)}
        if granule > 1:
            replica.add_exactly(len(y))
    with span("data"):
        X_shards, y_shards = split_batch(X, y, devices, sums=sums)
    batch = Batch()  # of work
    each_device = zip(replicas, X_shards, y_shards, strict=True)  # which compute at the same time
    tasks = [batch.run(replica.device, replica.loss_and_grads, X, y) for replica, X, y in each_device]
    messages = [[replica.flat_grads] if flat else replica.grads for replica in replicas]
    for grads in zip(*messages, strict=True):  # each gradient: all now hold the sum
        allreduce(grads, devices.across(algorithm), batch)
    # every device steps its own copy
    updates = [batch.submit(replica.device, replica.update, tasks, lr, len(y)) for replica in replicas]
    batch.commit()
    for task in tasks:
        task.asked = True  # if several fail, the first error speaks for all
    for update in updates:
        update.result()
    losses = [[float(result_to_host(loss))] for loss in [task.result() for task in tasks]]
    return sum(gather(devices, losses).ravel().tolist())


class Replica:
    """What a device has of its own: ``params`` of `get_params`, updated in place, and their gradients.

    Gradients, in one buffer, lie in the same memory for all replicas of a device: a step uses them up.
    ``optimizer``: a `DeviceOptimizer`; ``statistics``: batch norm's, or None. ``how``: other arguments of
    `loss_and_grads`.
    """

    def __init__(self, device, params, optimizer, statistics):
        self.device, self.params, self.optimizer, self.statistics = device, params, optimizer, statistics
        self.exact = None
        self._place_grads("gradients", params[0].dtype)

    def add_exactly(self, examples):
        """Gradients are to be exact sums, int64, of a minibatch of so many ``examples`` on all devices."""
        self.exact = ExactSums(examples, f"on {self.device}")
        self._place_grads("exact gradients", np.int64)

    def _place_grads(self, name, dtype):
        flat = self.device.buffer(name, sum(param.size for param in self.params), dtype)
        self.raw = [param.raw for param in self.params], parts_of(flat, self.params)  # plain arrays
        self.grads = [DeviceArray(part, self.device) for part in self.raw[1]]
        self.flat_grads = DeviceArray(flat, self.device)

    def loss_and_grads(self, X, y):
        """Runs on the device, with plain arrays: the loss summed over the shard; gradients are written to ``grads``."""
        self.moved = None if self.statistics is None else [array.raw.copy() for array in self.statistics]
        params, grads = self.raw
        loss, _ = loss_and_grads(X, y, params, out=grads, statistics=self.moved, exact=self.exact, **self.how)
        return loss

    def update(self, tasks, lr, batch_size):
        """Runs on the device, with the gradients summed: a step of the optimiser, unless one of ``tasks`` failed."""
        if any(task.error for task in tasks):  # all were waited for in the allreduce
            return
        params, grads = self.raw
        if self.exact:
            grads = [as_floats(grad, param.dtype) for param, grad in zip(params, grads, strict=True)]
        self.optimizer.update(params, grads, lr, batch_size)
        for array, moved in zip(self.statistics or (), self.moved or (), strict=True):
            array.raw[...] = moved


def _replicas(devices, device_params, network, optimizer, statistics):
    """A `Replica` on each device, of what is checked to be there."""
    check_network(network)
    params = _on_each(devices, "the parameters", device_params, check_params, network)
    if isinstance(optimizer, str):
        name, optimizer = optimizer, init_optimizer(optimizer, params)
        if OPTIMIZERS[name].states:
            raise ValueError(
                f"optimizer {name!r} remembers numbers from step to step: make it once, with "
                f"optimizer = d2l.init_optimizer({name!r}, device_params), and give that to each step"
            )
    optimizer = check_list("optimizer", optimizer, of="what init_optimizer makes, for each device", length=len(devices))
    for device, own in zip(devices, optimizer, strict=True):
        if not isinstance(own, DeviceOptimizer):
            raise ValueError(f"optimizer: {shown(own)} is none; give what init_optimizer makes")
        for state in own.state:
            _on_each([device], "the optimizer's state", [state], check_params, network)
    if statistics is None:
        statistics = [None] * len(devices)
    else:
        statistics = _on_each(devices, "the statistics", statistics, check_running, network)
    return [Replica(*own) for own in zip(devices, params, optimizer, statistics, strict=True)]


def _on_each(devices, what, lists, check, network):
    """``lists`` of arrays as a list, checked: one on each device, as the network has them."""
    of = "lists of arrays, one for each device"
    lists = check_list(f"train_batch: {what}", lists, of, length=len(devices))
    for device, arrays in zip(devices, lists, strict=True):
        check(f"train_batch: {what} on {device}", arrays, network)
        for array in arrays:
            place = array.device if isinstance(array, DeviceArray) else HOST
            if place is not device:
                raise DeviceMismatchError("train_batch", device, place)
    return lists


def _check_step(X, y, everybody, replicas, lr, algorithm, flat, network, loss, draws):
    if everybody.size == 1 or str(algorithm) != "mpi":
        check_algorithm(algorithm, training=True)
    check_number("lr", lr)
    check_flag("flat", flat)
    check_drawing(network, draws)
    for replica in replicas:
        check_images("train_batch: X", X, replica.params, network)
    loss.check(y, len(X), network.classes)
    if len(y) == 0:
        raise ValueError("the minibatch has no examples; a training step needs at least one")
