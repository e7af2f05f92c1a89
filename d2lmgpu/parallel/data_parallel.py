"""`train_batch`, the textbook's name for one training step on all devices: a `Step` of what people give, checked."""

from collections.abc import Callable

from ..base.arguments import check_flag, check_list, check_number, shown
from ..base.foreign import as_numpy
from ..cluster import Across, as_cluster
from ..collectives import check_algorithm, find_algorithm
from ..devices import DeviceArray, DeviceMismatchError
from ..devices.errors import HOST
from ..devices.records import span
from ..networks import LENET
from ..networks.checks import check_drawing, check_images, check_network, check_params, check_running, check_trainable
from ..networks.losses import as_targets, find_loss
from ..networks.optimizers import OPTIMIZERS, DeviceOptimizer, init_optimizer
from .computation import computation_for
from .shards import granule_of, shard_bounds
from .step import Replica, Step, split_batch


def train_batch(
    X,
    y,
    device_params,
    devices,
    lr,
    algorithm: str | Callable | Across = "naive",
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
    (layers/exact.py); the network must not have batch norm.

    On a `Cluster`, all processes call this with the same batch and with the parameters on their own devices, and all of
    them get the loss of the whole batch.

    The step is submitted to the devices as a whole: if it is interrupted, either all or none of it is done, and steps
    from several host threads run one after the other. If a device cannot compute its gradients, no parameters change.

    Raises ValueError for arguments that do not fit together, for labels that are not classes, and for an empty batch;
    DeviceMismatchError for arrays that are on wrong devices.
    """
    X, y = as_numpy("train_batch: X", X), as_numpy("train_batch: y", y)
    devices, loss = as_cluster(devices), find_loss(loss)
    replicas = _replicas(devices.mine, device_params, network, optimizer, loss, statistics, sums)
    lr, flat = check_number("lr", lr), check_flag("flat", flat)
    _check_step(X, y, devices, replicas, algorithm, network, loss, draws, sums)
    algorithm = find_algorithm(devices.across(algorithm))
    if draws is not None:
        draws = draws.after(devices.part(shard_bounds(len(y), len(devices), granule=granule_of(sums)))[0][0])
    with span("data"):
        X_shards, y_shards = split_batch(X, as_targets(y, X.dtype), devices, sums=sums)
    return Step(replicas, X_shards, y_shards, lr, len(y), devices, algorithm, flat, draws).finish()[0]


def _replicas(devices, device_params, network, optimizer, loss, statistics, sums):
    """A `Replica` on each of this process's devices, after checking what they are given."""
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
        statistics = [()] * len(devices)
    else:
        statistics = _on_each(devices, "the statistics", statistics, check_running, network)
    granule_of(sums)  # an error if there are no such sums
    computation, each = computation_for(network, sums=sums), zip(devices, params, optimizer, statistics, strict=True)
    return [Replica(*own, computation(own[0], network, loss, running)) for *own, running in each]


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


def _check_step(X, y, devices, replicas, algorithm, network, loss, draws, sums):
    """Raise ValueError for arguments that do not fit together."""
    if devices.size == 1 or str(algorithm) != "mpi":
        check_algorithm(algorithm, training=True)
    check_drawing(network, draws)
    for replica in replicas:
        check_images("train_batch: X", X, replica.params, network)
    loss.check(y, len(X), network.classes)
    if len(y) == 0:
        raise ValueError("the minibatch has no examples; a training step needs at least one")
