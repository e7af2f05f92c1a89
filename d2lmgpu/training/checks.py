"""Settings and data are checked before the work begins."""

import numbers
from pathlib import Path

import numpy as np

from ..arguments import (
    check_flag,
    check_function,
    check_list,
    check_name,
    check_number,
    check_path,
    check_seed,
    check_text,
    check_whole,
    shown,
)
from ..collectives import check_algorithm
from ..layers import check_labels
from ..monitor import Callback
from ..networks import LENET, NETWORKS, Network, channels, check_init, check_network, known_network
from ..optimizers import check_optimizer
from ..output import check_writable
from ..parallel import check_batch_statistics, check_precision
from ..schedules import learning_rates
from ..timing import Timeline

MOST_EPOCHS, MOST_LR = 10**6, 1e6
"""Beyond all sense; but within what float32 and the progress bar can take, also times the number of devices."""


def plain(value):
    """A setting as JSON knows it: numbers of NumPy and other libraries as Python's, and so lists of them.

    A history, a checkpoint and a sweep's file hold no others. What is no number stays as it is.
    """
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if type(value) in (list, tuple, range):  # but no `Network`, which is a tuple
        return [plain(part) for part in value]
    for kinds, python in (((bool, np.bool_), bool), (numbers.Integral, int), (numbers.Real, float)):
        if isinstance(value, kinds):
            return python(value)
    return str(value) if isinstance(value, np.str_) else value


def find_network(network, classes=None):
    """The name and the layers of a network, given by either; ``classes``: their names, if they are not Fashion-MNIST's.

    Raises ValueError for a name that there is not, or another number of classes.
    """
    if classes is not None:
        classes = check_list("classes", classes, of="names")
        for name in classes:
            check_text("the name of a class", name)
    if classes is not None and len(set(classes)) < max(2, len(classes)):
        raise ValueError(f"classes are {', '.join(map(str, classes))}; there should be two or more, of different names")
    if isinstance(network, Network):
        if classes is not None and len(classes) != network.classes:
            raise ValueError(f"the network has {network.classes} classes and the data {len(classes)}")
        return "custom", network
    if not isinstance(network, str):
        raise ValueError(
            f"network is a {type(network).__name__}; choose from {', '.join(NETWORKS)}, or give what "
            "networks.sequential makes"
        )
    check_name("network", network, NETWORKS, also=", or give what networks.sequential makes")
    return network, NETWORKS[network] if classes is None else known_network(network, len(classes))


def check_settings(
    batch_size,
    lr,
    num_epochs,
    seed,
    init,
    algorithm,
    optimizer,
    batch_statistics,
    precision,
    warmup,
    schedule,
):
    """Raise ValueError for settings with which no training can be done, on whatever devices."""
    check_whole("batch_size", batch_size)
    check_whole("epochs", num_epochs, most=MOST_EPOCHS)
    check_seed(seed)
    check_number("lr", lr, above=0, most=MOST_LR)
    check_init(init)
    check_algorithm(algorithm, training=True)
    check_optimizer(optimizer)
    check_batch_statistics(batch_statistics)
    check_precision(precision, devices=())
    learning_rates(lr, 0, 1, num_epochs, warmup, schedule)  # raises now what it would raise later


def check_statistics(batch_statistics, network, name):
    """Raise ValueError where statistics are to be exchanged for a network ``name`` that has no batch norm."""
    if batch_statistics != "local" and not channels(network):
        raise ValueError(
            f"batch_statistics is {batch_statistics!r}, but network {name!r} has no batch norm; leave it out, or train "
            "another, such as lenet-bn"
        )


def check_ways(preprocess, callbacks, timeline, environment, **flags):
    """Raise ValueError unless `train` can be given these, of which none is a setting; ``flags`` are True or False."""
    for name, value in flags.items():
        check_flag(name, value)
    if preprocess is not None:
        check_function("preprocess", preprocess)
    for callback in check_list("callbacks", callbacks, of="monitor.Callback objects"):
        if not isinstance(callback, Callback):
            raise ValueError(f"callbacks: {shown(callback)} is no Callback; derive its class from d2lmgpu.Callback")
    if timeline is not None and not isinstance(timeline, Timeline):
        raise ValueError(f"timeline is {shown(timeline)}; it should be a timing.Timeline")
    if environment is not None:
        check_text("environment", environment)


def check_data(X, y, network=LENET):
    """Raise ValueError unless each image fits the network and has a label: a GPU would take others without a word."""
    check_images(X, network)
    if len(X) == 0:
        raise ValueError("0 images; there should be some")
    check_labels(y, len(X), network.classes)


def check_images(X, network):
    """Raise ValueError unless the images are uint8, or float32 as parameters are, of the network's shape."""
    check_network(network)
    if not hasattr(X, "dtype"):
        raise ValueError(f"images are a {type(X).__name__}; they should be an array (N, C, H, W)")
    if X.ndim == 0 or X.shape[1:] != network.input_shape:
        raise ValueError(f"images of shape {X.shape[1:]}; the network takes {network.input_shape}")
    if X.dtype not in (np.uint8, np.float32):
        advice = "; give X.astype(np.float32)" if X.dtype.kind == "f" else ""
        raise ValueError(f"images of type {X.dtype}; they should be uint8, 0 to 255, or float32, 0 to 1{advice}")


def check_checkpoint(checkpoint, checkpoint_steps, resume):
    """Raise now what would go wrong with the file later; nobody's checkpoint is overwritten by another run."""
    if checkpoint_steps is not None:
        check_whole("checkpoint_steps", checkpoint_steps)
        if checkpoint is None:
            raise ValueError(
                f"checkpoint_steps is {checkpoint_steps}, which needs a checkpoint file; give checkpoint, too"
            )
    if resume is not None:
        check_path("resume", resume)
    if checkpoint is None:
        return
    check_writable(checkpoint)
    file = Path(checkpoint)
    if file.exists() and (resume is None or not file.samefile(resume)):
        raise ValueError(f"checkpoint {checkpoint} exists; resume from it, give another name, or remove it")
