"""Data parallelism: every device holds all parameters, and a part of each minibatch.

One step, as in Dive into Deep Learning, "Training on Multiple GPUs":

             minibatch X, y
            ↙              ↘            split_batch
    shard on device 0   shard on device 1
            ↓               ↓           loss_and_grads, at the same time
       gradients        gradients
            ↓ ←───────────→ ↓           allreduce: now both devices hold the sum
       parameters       parameters      sgd, on each device's own copy
"""

from collections.abc import Callable

import numpy as np

from ..arguments import as_numpy, check_array, check_flag, check_list, check_number, shown
from ..cluster import as_cluster, gather
from ..collectives import allreduce, check_algorithm
from ..data import check_examples
from ..devices import Batch, DeviceArray, DeviceMismatchError, parts_of, put, to_host
from ..devices.errors import HOST
from ..devices.transfer import result_to_host
from ..exact import ExactSums, as_floats
from ..networks import LENET, channels, loss_and_grads
from ..networks.checks import check_drawing, check_images, check_network, check_params, check_running, check_trainable
from ..networks.losses import find_loss
from ..optimizers import OPTIMIZERS, DeviceOptimizer, init_optimizer
from ..timing import span
from .shards import check_loads, granule_of, put_parts, shard_bounds


def get_params(params, device) -> list[DeviceArray]:
    """A full copy of the parameters on ``device``: a list of device arrays, all in one buffer.

    Raises ValueError unless ``params`` is a list of arrays, and DeviceError unless ``device`` is a device.
    """
    params = check_list("get_params: params", params, of="arrays, as from init_params")
    params = [check_array(f"get_params: params: number {i}", param) for i, param in enumerate(params)]
    if not params:
        raise ValueError("get_params: the list of parameters is empty; give those of init_params, or a network's")
    if len({param.dtype for param in params}) > 1:
        return [put(param, device) for param in params]
    flat = put(np.concatenate([to_host(param).reshape(-1) for param in params]), device)
    return [DeviceArray(part, device) for part in parts_of(flat.raw, params)]


def split_batch(X, y, devices, loads=None, sums="float") -> tuple[list[DeviceArray], list[DeviceArray]]:
    """Split examples over the devices: (list of X shards, list of y shards), each shard on its device.

    Shard sizes differ by at most one, or follow ``loads``, a number for each device: its share of the work in any unit,
    where 0 leaves the device idle. Shards may be empty, so there may be fewer examples than devices. With
    ``sums="exact"``, shards consist of whole granules of 64 examples (see exact.py), and their sizes differ by at most
    one granule. On a `Cluster`, each process gets the shards of its own devices.

    Raises ValueError if X and y differ in length, and for invalid devices or loads.
    """
    everybody = as_cluster(devices)
    X, y = check_examples("split_batch", X, y)
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
    """Do one training step on all devices, in place; return the loss summed over the batch.

    ``X`` (N, C, H, W), in the parameters' dtype, and ``y`` (N,) are on the host; ``device_params`` holds a full copy of
    the network's parameters for each device. The gradients are exchanged one by one, as in the textbook, or with
    ``flat`` as one message.

    ``optimizer``: "sgd", or the result of `init_optimizer` for these parameters. ``statistics``: batch norm's running
    means and variances, a list on each device, which are updated from the device's own images; None if they are not
    needed. ``loss``: as in `loss_and_grads`. ``draws``: those of the whole minibatch, for a network with dropout.
    ``sums``: "exact" adds gradients as integers, so that any number of devices and any allreduce give the same bits
    (exact.py); the network must not have batch norm.

    On a `Cluster`, all processes call this with the same batch and with the parameters on their own devices, and all of
    them get the loss of the whole batch.

    The step is submitted to the devices as a whole: if it is interrupted, either all or none of it is done, and steps
    from several host threads run one after the other. If a device fails, no parameters change.

    Raises ValueError for arguments that do not fit together, for labels that are not classes, and for an empty batch;
    DeviceMismatchError for arrays that are on wrong devices.
    """
    X, y = as_numpy("train_batch: X", X), as_numpy("train_batch: y", y)
    devices, loss = as_cluster(devices), find_loss(loss)
    replicas = _replicas(devices.mine, device_params, network, optimizer, statistics)
    lr, flat = check_number("lr", lr), check_flag("flat", flat)
    _check_step(X, y, devices, replicas, algorithm, network, loss, draws)
    granule = granule_of(sums)
    if granule > 1 and channels(network):
        raise ValueError(
            "train_batch: sums are exact, but batch norm uses statistics of each device's own images; use train with "
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
    each_device = zip(replicas, X_shards, y_shards, strict=True)  # all devices compute at the same time
    tasks = [batch.run(replica.device, replica.loss_and_grads, X, y) for replica, X, y in each_device]
    messages = [[replica.flat_grads] if flat else replica.grads for replica in replicas]
    for grads in zip(*messages, strict=True):  # afterwards, all devices hold the sum of this gradient
        allreduce(grads, devices.across(algorithm), batch)
    # every device updates its own copy
    updates = [batch.submit(replica.device, replica.update, tasks, lr, len(y)) for replica in replicas]
    batch.commit()
    for task in tasks:
        task.asked = True  # if several fail, only the first error is raised
    for update in updates:
        update.result()
    losses = [[float(result_to_host(loss))] for loss in [task.result() for task in tasks]]
    return sum(gather(devices, losses).ravel().tolist())


class Replica:
    """A device's own ``params`` (from `get_params`), which are updated in place, and their gradients.

    All replicas on a device share one buffer for gradients, since no gradients are needed after a step. ``optimizer``:
    a `DeviceOptimizer`. ``statistics``: those of batch norm, or None. ``how``: other arguments of `loss_and_grads`.
    """

    def __init__(self, device, params, optimizer, statistics):
        self.device, self.params, self.optimizer, self.statistics = device, params, optimizer, statistics
        self.exact = None
        self._place_grads("gradients", params[0].dtype)

    def add_exactly(self, examples):
        """Make the gradients exact sums, int64. ``examples``: how many the minibatch has on all devices together."""
        self.exact = ExactSums(examples, f"on {self.device}")
        self._place_grads("exact gradients", np.int64)

    def _place_grads(self, name, dtype):
        flat = self.device.buffer(name, sum(param.size for param in self.params), dtype)
        self.raw = [param.raw for param in self.params], parts_of(flat, self.params)  # plain arrays
        self.grads = [DeviceArray(part, self.device) for part in self.raw[1]]
        self.flat_grads = DeviceArray(flat, self.device)

    def loss_and_grads(self, X, y):
        """Write ``grads``, and return the loss summed over the shard. Runs on the device, with plain arrays."""
        self.moved = None if self.statistics is None else [array.raw.copy() for array in self.statistics]
        params, grads = self.raw
        loss, _ = loss_and_grads(X, y, params, out=grads, statistics=self.moved, exact=self.exact, **self.how)
        return loss

    def update(self, tasks, lr, batch_size):
        """Do a step of the optimiser with the summed gradients, unless a task has failed. Runs on the device."""
        if any(task.error for task in tasks):  # the allreduce has waited for all of them
            return
        params, grads = self.raw
        if self.exact:
            grads = [as_floats(grad, param.dtype) for param, grad in zip(params, grads, strict=True)]
        self.optimizer.update(params, grads, lr, batch_size)
        for array, moved in zip(self.statistics or (), self.moved or (), strict=True):
            array.raw[...] = moved


def _replicas(devices, device_params, network, optimizer, statistics):
    """A `Replica` on each device, after checking the parameters and statistics."""
    check_network(network)
    check_trainable(network)
    params = _on_each(devices, "the parameters", device_params, check_params, network)
    if isinstance(optimizer, str):
        name, optimizer = optimizer, init_optimizer(optimizer, params)
        if OPTIMIZERS[name].states:
            raise ValueError(
                f"optimizer {name!r} has a state that lasts from step to step: create it once with "
                f"optimizer = d2l.init_optimizer({name!r}, device_params), and give it to each step"
            )
    optimizer = check_list("optimizer", optimizer, of="what init_optimizer makes, for each device", length=len(devices))
    for device, own in zip(devices, optimizer, strict=True):
        if not isinstance(own, DeviceOptimizer):
            raise ValueError(f"optimizer holds {shown(own)}; give 'sgd', or what init_optimizer returns")
        for state in own.state:
            _on_each([device], "the optimizer's state", [state], check_params, network)
    if statistics is None:
        statistics = [None] * len(devices)
    else:
        statistics = _on_each(devices, "the statistics", statistics, check_running, network)
    return [Replica(*own) for own in zip(devices, params, optimizer, statistics, strict=True)]


def _on_each(devices, what, lists, check, network):
    """``lists`` of arrays as a list, after checking that there is one on each device and that they fit the network."""
    of = "lists of arrays, one for each device"
    lists = check_list(f"train_batch: {what}", lists, of, length=len(devices))
    for device, arrays in zip(devices, lists, strict=True):
        check(f"train_batch: {what} on {device}", arrays, network)
        for array in arrays:
            place = array.device if isinstance(array, DeviceArray) else HOST
            if place is not device:
                raise DeviceMismatchError("train_batch", device, place)
    return lists


def _check_step(X, y, everybody, replicas, algorithm, network, loss, draws):
    if everybody.size == 1 or str(algorithm) != "mpi":
        check_algorithm(algorithm, training=True)
    check_drawing(network, draws)
    for replica in replicas:
        check_images("train_batch: X", X, replica.params, network)
    loss.check(y, len(X), network.classes)
    if len(y) == 0:
        raise ValueError("the minibatch has no examples; a training step needs at least one")
