"""The setup of a scaling experiment: what is trained, which is checked beforehand, and on which machine."""

import platform
from dataclasses import asdict, dataclass
from datetime import date

import numpy as np

from ..arguments import as_whole, check_list, check_name, check_whole, plain, shown
from ..data import check_parts
from ..devices import count_cores, device_table
from ..fashion_mnist import load_fashion_mnist
from ..networks import init_params
from ..parallel import check_precision
from ..training import Settings
from ..training.checks import network_for
from ..words import several

MODES = ("strong", "weak")
HOW = "optimizer weight_decay batch_statistics preprocess flat overlap prefetch graphs precision".split()
"""Settings that affect the time of a step, besides those that an experiment has as arguments."""


@dataclass
class Scaling:
    """A scaling experiment: what was trained, on which devices, and the results.

    ``batch_size``: the number of examples in all in mode "strong", or on each device in mode "weak". ``parameters``:
    how many numbers the network learns. ``steps``: the steps per turn. ``settings``: the other settings that differ
    from the defaults.

    `measure_scaling` sets ``rows``, a `Row` for each number of devices; ``places``, how many of the devices can work at
    the same time (cores or GPUs); and ``model``, the basis of predictions, or None.
    """

    mode: str
    network: str
    width: float
    parameters: int
    batch_size: int
    allreduce: str
    rounds: int
    machine: str
    versions: dict
    date: str
    settings: dict
    devices: list = None
    steps: int = None
    rows: list = None
    places: int = None
    model: dict = None

    as_dict = asdict

    def of_places(self):
        """The processors, in words: "2 cores", "1 GPU"."""
        kinds = {name.partition("(")[0] for name in self.devices}
        kind = "/".join("core" if kind == "cpu" else "GPU" for kind in sorted(kinds))
        return several(self.places, kind)


def find_subject(data, network, width, batch_statistics="local"):
    """What to train: the data (Fashion-MNIST for None), the network's name and its layers.

    ``width``: a factor for the channels of a network given by name. Raises ValueError if these do not fit together.
    """
    data = load_fashion_mnist() if data is None else check_parts(data, least=2)
    return data, *network_for(data, network, width, batch_statistics=batch_statistics)


def begin(
    devices, algorithm, mode="strong", batch_size=256, network="lenet", width=1, repeats=5, data=None, settings=None
):
    """Return a `Scaling` on a machine with these ``devices``, still without results; the data; and the network.

    ``algorithm``: an allreduce by name. ``batch_size``: the size of the minibatch in mode "strong", of each device's
    part in mode "weak". ``network``: a name, or the result of `networks.sequential`; ``width`` multiplies the channels
    of a network given by name. ``repeats``: the number of rounds. ``data``: X_train, y_train and optionally more, as in
    `train`; by default Fashion-MNIST. ``settings``: a `Settings`, of which only those in `HOW` are used, such as
    ``Settings(preprocess="flip")``.

    Raises ValueError if these do not fit together, DeviceError if the devices do not support them.
    """
    settings, usual = settings or Settings(), Settings()
    width, batch_size, repeats = plain((width, batch_size, repeats))
    data, name, network = find_subject(data, network, width, settings.batch_statistics)
    check_precision(settings.precision, devices)
    what = {"mode": mode, "network": name, "width": width, "batch_size": batch_size, "allreduce": algorithm}
    what["parameters"] = sum(param.size for param in init_params(network=network))
    changed = {name: getattr(settings, name) for name in HOW if getattr(settings, name) != getattr(usual, name)}
    return Scaling(**what, rounds=repeats, settings=changed, **_machine(devices)), data, network


def check_counts(counts, devices=None):
    """The numbers of devices, ascending. Raises ValueError unless they can be compared, on ``devices`` if given."""
    counts = check_list("devices", counts, of="different whole numbers, such as 1,2,4")
    whole = [*map(as_whole, counts)]
    if None in whole or min(whole, default=1) < 1 or len({*whole}) < len(whole):
        raise ValueError(f"devices are {shown(counts)}; they should be different whole numbers, such as 1,2,4")
    if 1 not in counts:
        raise ValueError(f"devices are {shown(counts)}; 1 should be among them, for comparison")
    if devices is not None and max(counts) > len(devices):
        raise ValueError(f"devices are {shown(counts)}, but only {len(devices)} were given")
    return sorted(whole)


def batch_sizes(mode, counts, batch_size):
    """Examples in a minibatch, for each number of devices. Raises ValueError for a wrong mode or batch size."""
    check_name("mode", mode, MODES)
    batch_size = check_whole("batch_size", batch_size)
    return {k: batch_size * k if mode == "weak" else batch_size for k in counts}


def check_steps(steps, repeats, batches, examples):
    """How many steps a turn can have: ``steps``, but no more than the data set has minibatches of the largest size.

    Raises ValueError for numbers below 1, and for minibatches larger than the data set.
    """
    steps, _ = check_whole("steps", steps), check_whole("repeats", repeats)
    largest = max(batches.values())
    if largest > examples:
        raise ValueError(f"a minibatch of {largest} examples is more than the {examples} there are; give a smaller one")
    return min(steps, examples // largest)


def count_places(devices):
    """How many of the devices can work at the same time: distinct GPUs, or cores for virtual devices."""
    cards = {device.card for device in devices if device.kind == "gpu"}
    virtual = sum(device.kind == "cpu" for device in devices)
    return len(cards) + min(virtual, count_cores())


def _machine(devices):
    """The processors behind the devices, in words, and the versions of the software that computes on them."""
    kinds = {device.kind for device in devices}
    found = [row.description for row in device_table() if row.kind in kinds]
    names = ", ".join(f"{found.count(name)} × {name}" for name in dict.fromkeys(found))
    versions = {"python": platform.python_version(), "numpy": np.__version__}
    if "gpu" in kinds:
        import cupy

        versions["cupy"] = str(cupy.__version__)
    machine = f"{names}; {platform.system()} {platform.machine()}"
    return {"machine": machine, "versions": versions, "date": date.today().isoformat()}
