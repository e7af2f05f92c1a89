"""Data parallelism: every device holds all parameters, and a part of each minibatch.

One step, as in Dive into Deep Learning, "Training on Multiple GPUs":

             minibatch X, y
            ↙              ↘            split_batch
    shard on device 0   shard on device 1
            ↓               ↓           loss_and_grads, at the same time
       gradients        gradients
            ↓ ←───────────→ ↓           allreduce: now both devices hold the sum
       parameters       parameters      update, on each device's own copy

A `Step` is submitted to the devices as a whole; `finish` waits for it. `train_batch` (data_parallel.py) does one step
after another; `train` submits the next step while the devices do this one:

    under_way = []
    while queue.hasdata:
        under_way.append(Step(replicas, *queue.next(), lr, batch_size, devices, algorithm, flat))
        if len(under_way) > 1:
            loss, right, _ = under_way.pop(0).finish()

The network, its loss and its arithmetic are a `Computation` (computation.py), which a replica is given.
"""

import numpy as np

from ..base.arguments import check_array, check_examples, check_list
from ..collectives import add_allreduce
from ..devices import Batch, DeviceArray, as_group, parts_of, put, to_host
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
    ``sums="exact"``, shards consist of whole granules of 64 examples (layers/exact.py), and their sizes differ by at
    most one granule. On a `Cluster`, each process gets the shards of its own devices.

    Raises ValueError if X and y differ in length, and for invalid devices or loads.
    """
    devices = as_group(devices)
    X, y = check_examples("split_batch", X, y)
    if loads is not None:
        loads = check_loads(loads, len(devices))
    bounds = devices.part(shard_bounds(len(X), len(devices), loads, granule_of(sums)))
    return put_parts(X, bounds, devices.mine), put_parts(y, bounds, devices.mine)


class Replica:
    """A device's own copy of the parameters (from `get_params`), and their gradients.

    ``optimizer``: a `DeviceOptimizer`; ``computation``: a `Computation`. All replicas on a device share one buffer for
    gradients, since no gradients are needed after a step.
    """

    def __init__(self, device, params, optimizer, computation):
        self.device, self.params, self.optimizer, self.computation = device, params, optimizer, computation
        dtype = computation.dtype_of_grads(params[0].dtype)
        flat = device.buffer("gradients", sum(param.size for param in params), dtype)
        self.raw = [param.raw for param in params], parts_of(flat, params)  # plain arrays, for work on the device
        self.grads = [DeviceArray(grad, device) for grad in self.raw[1]]
        self.flat_grads = DeviceArray(flat, device)

    def loss_and_grads(self, X, y, batch_size, draws):
        """Write ``grads``; return the loss and the number of right answers of the shard. Runs on the device."""
        return self.computation.loss_and_grads(X, y, *self.raw, batch_size, draws)

    def messages(self, flat):
        """What is summed over the devices: gradients, one by one or ``flat``, and what the computation shares."""
        return ([self.flat_grads] if flat else self.grads) + self.computation.shared

    def update(self, lr, batch_size):
        """Do a step of the optimiser with the summed gradients. Runs on the device."""
        params, grads = self.raw
        grads, scale = self.computation.final(params, grads)
        if grads is not None:
            self.optimizer.update(params, grads, lr, batch_size * scale)


class Step:
    """One training step. An interrupt leaves all or none of it done; if a device cannot compute, no parameters change.

    - ``batch_size``: the number of examples on all ``devices``, a `Group`, together
    - ``algorithm``: what sums gradients, as `add_allreduce` takes it; ``flat``: whether all of them are one message
    - ``draws``: those of this process's first example, for dropout
    - ``tell``: a number that all processes of a cluster get to know
    - ``batch``: by default a new `Batch` that fails as a whole; its errors may be those of other steps, too
    """

    def __init__(
        self, replicas, X_shards, y_shards, lr, batch_size, devices, algorithm, flat, draws=None, tell=0, batch=None
    ):
        batch = self.batch = batch or Batch(errors=[])
        sums = []
        for replica, X, y in zip(replicas, X_shards, y_shards, strict=True):  # all devices compute at the same time
            sums.append(batch.run(replica.device, replica.loss_and_grads, X, y, batch_size, draws))
            draws = draws and draws.after(len(y))
        for arrays in zip(*(replica.messages(flat) for replica in replicas), strict=True):
            add_allreduce(batch, arrays, algorithm)  # afterwards, all devices hold the sum
        self.rows = devices.rows_later(batch, sums, tell)
        # every device updates its own copy
        self.updates = [batch.submit(replica.device, replica.update, lr, batch_size) for replica in replicas]
        batch.commit()

    def finish(self):
        """Wait for the step; return its loss, the number of right answers, and the sum of what was told.

        Raises the first error of a device.
        """
        for update in self.updates:
            update.wait()
        self.batch.check()
        return [sum(column) for column in zip(*self.rows(), strict=True)]
