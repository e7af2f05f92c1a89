"""Settings and data are checked before the work begins."""

import math
from pathlib import Path

from ..collectives import check_algorithm
from ..data import check_whole
from ..networks import LENET, NETWORKS, Network, check_init, known_network
from ..optimizers import check_optimizer
from ..output import check_writable
from ..parallel import check_batch_statistics, check_precision
from ..schedules import learning_rates


def find_network(network, classes=None):
    """The name and the layers of a network, given by either; ``classes``: their names, if they are not Fashion-MNIST's.

    Raises ValueError for a name that there is not, or another number of classes.
    """
    if classes is not None and len(set(classes)) < max(2, len(classes)):
        raise ValueError(f"classes are {', '.join(map(str, classes))}; there should be two or more, of different names")
    if isinstance(network, Network):
        if classes is not None and len(classes) != network.classes:
            raise ValueError(f"the network has {network.classes} classes and the data {len(classes)}")
        return "custom", network
    if not isinstance(network, str) or network not in NETWORKS:
        given = f"{network!r} is unknown" if isinstance(network, str) else f"is a {type(network).__name__}"
        names = ", ".join(NETWORKS)
        raise ValueError(f"network {given}; choose from {names}, or give what networks.sequential makes")
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
    for name, value, least in (("batch_size", batch_size, 1), ("epochs", num_epochs, 1), ("seed", seed, 0)):
        check_whole(name, value, least)
    if not (math.isfinite(lr) and lr > 0):
        raise ValueError(f"lr is {lr}; it should be a finite number above 0, such as 0.2")
    check_init(init)
    check_algorithm(algorithm, training=True)
    check_optimizer(optimizer)
    check_batch_statistics(batch_statistics)
    check_precision(precision, devices=())
    learning_rates(lr, 0, 1, num_epochs, warmup, schedule)  # raises now what it would raise later


def check_data(X, y, network=LENET):
    """Raise ValueError unless each image fits the network and has a label: a GPU would take others without a word."""
    if len(X) == 0 or len(X) != len(y):
        raise ValueError(f"{len(X)} images and {len(y)} labels; there should be some, and a label for each image")
    check_images(X, network)
    if y.min() < 0 or y.max() >= network.classes:
        raise ValueError(
            f"labels from {y.min()} to {y.max()}; they should be whole numbers from 0 to {network.classes - 1}"
        )


def check_images(X, network):
    """Raise ValueError unless the images have the shape that the network takes."""
    if X.shape[1:] != network.input_shape:
        raise ValueError(f"images of shape {X.shape[1:]}; the network takes {network.input_shape}")


def check_checkpoint(checkpoint, checkpoint_steps, resume):
    """Raise now what would go wrong with the file later; nobody's checkpoint is overwritten by another run."""
    if checkpoint_steps is not None and (checkpoint is None or checkpoint_steps < 1):
        raise ValueError(
            f"checkpoint_steps is {checkpoint_steps}; it should be at least 1, and needs a checkpoint file"
        )
    if checkpoint is None:
        return
    check_writable(checkpoint)
    file = Path(checkpoint)
    if file.exists() and (resume is None or not file.samefile(resume)):
        raise ValueError(f"checkpoint {checkpoint} exists; resume from it, give another name, or remove it")
