"""What a scaling experiment is about: what is trained, checked before, and the machine on which it is trained."""

import platform
from dataclasses import asdict, dataclass
from datetime import date

import numpy as np

from ..arguments import check_list, check_name, check_whole, shown
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
"""Settings that decide how long a step takes, beside those that an experiment has as arguments."""


@dataclass
class Scaling:
    """A scaling experiment: what was trained, on what, and what was found.

    ``batch_size``: examples in all in mode "strong", on each device in mode "weak".
    ``parameters``: how many numbers the network learns. ``steps`` of a turn. ``settings``: others that are not as by
    default.

    Of `measure_scaling` there are ``rows``, a `Row` for each number of devices; ``places``: how many of the devices can
    work at the same time, cores or GPUs; and ``model``: what predictions were made from, or None.

    Of `measure_cluster_scaling` there are ``measured``: seconds of a step, the median, the least and the most of the
    rounds; and ``predicted``: `Prediction`s, the first of the cluster itself, the others of more processes. ``compute``
    and ``wires`` are what they were made from.
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
    measured: list = None
    predicted: list = None
    compute: dict = None
    wires: dict = None
    processes_per_host: int = None
    devices_per_process: int = None

    def as_dict(self):
        """As JSON has it: without what the other kind of experiment finds."""
        return {name: value for name, value in asdict(self).items() if value is not None or name == "model"}

    def of_places(self):
        """What the devices are, in words: "2 cores", "1 GPU"."""
        kinds = {name.partition("(")[0] for name in self.devices}
        kind = "/".join("core" if kind == "cpu" else "GPU" for kind in sorted(kinds))
        return several(self.places, kind)


def find_subject(data, network, width, batch_statistics="local"):
    """What is trained: the data (Fashion-MNIST for None), the network's name and its layers.

    ``width``: times the usual channels of a network by name. Raises ValueError where these do not go together.
    """
    data = load_fashion_mnist() if data is None else check_parts(data, least=2)
    return data, *network_for(data, network, width, batch_statistics=batch_statistics)


def begin(
    devices, algorithm, mode="strong", batch_size=256, network="lenet", width=1, repeats=5, data=None, settings=None
):
    """A `Scaling` of which nothing is found yet, on a machine with these ``devices``; data; the network.

    ``algorithm``: an allreduce by name. ``batch_size``: of the minibatch in mode "strong", of each device's part in
    mode "weak". ``network``: a name, or what `networks.sequential` makes; ``width`` multiplies the channels of one by
    name. ``repeats``: the rounds. ``data``: X_train, y_train and maybe more, as `train` takes it; Fashion-MNIST unless
    given. ``settings``: a `Settings`, of which those in `HOW` are trained with, such as
    ``Settings(preprocess="flip")``.

    Raises ValueError where these do not go together, DeviceError for what the devices cannot do.
    """
    settings, usual = settings or Settings(), Settings()
    data, name, network = find_subject(data, network, width, settings.batch_statistics)
    check_precision(settings.precision, devices)
    what = {"mode": mode, "network": name, "width": width, "batch_size": batch_size, "allreduce": algorithm}
    what["parameters"] = sum(param.size for param in init_params(network=network))
    changed = {name: getattr(settings, name) for name in HOW if getattr(settings, name) != getattr(usual, name)}
    return Scaling(**what, rounds=repeats, settings=changed, **_machine(devices)), data, network


def check_counts(counts, devices=None):
    """The numbers of devices, ascending. Raises ValueError unless they can be compared, on ``devices`` if given."""
    counts = check_list("devices", counts, of="different whole numbers, such as 1,2,4")
    if any(not isinstance(k, (int, np.integer)) or k < 1 for k in counts) or len(set(counts)) < len(counts):
        raise ValueError(f"devices are {shown(counts)}; they should be different whole numbers, such as 1,2,4")
    if 1 not in counts:
        raise ValueError(f"devices are {shown(counts)}; 1 should be among them, with which the others are compared")
    if devices is not None and max(counts) > len(devices):
        raise ValueError(f"devices are {shown(counts)}, but only {len(devices)} were given")
    return sorted(counts)


def batch_sizes(mode, counts, batch_size):
    """Examples in a minibatch, for each number of devices. Raises ValueError for an unknown mode or no batch size."""
    check_name("mode", mode, MODES)
    check_whole("batch_size", batch_size)
    return {k: batch_size * k if mode == "weak" else batch_size for k in counts}


def check_steps(steps, repeats, batches, examples):
    """How many steps a turn can have: ``steps``, or as many as the data set has minibatches of the largest size.

    Raises ValueError for numbers below 1, and for minibatches larger than the data set.
    """
    check_whole("steps", steps)
    check_whole("repeats", repeats)
    largest = max(batches.values())
    if largest > examples:
        raise ValueError(f"a minibatch of {largest} examples is more than the {examples} there are; give a smaller one")
    return min(steps, examples // largest)


def count_places(devices):
    """How many of the devices can work at the same time: different GPUs, and the cores for virtual devices."""
    cards = {device.card for device in devices if device.kind == "gpu"}
    virtual = sum(device.kind == "cpu" for device in devices)
    return len(cards) + min(virtual, count_cores())


def _machine(devices):
    """The processors behind the devices, in words, and the versions of what computes on them today."""
    kinds = {device.kind for device in devices}
    found = [row.description for row in device_table() if row.kind in kinds]
    names = ", ".join(f"{found.count(name)} × {name}" for name in dict.fromkeys(found))
    versions = {"python": platform.python_version(), "numpy": np.__version__}
    if "gpu" in kinds:
        import cupy

        versions["cupy"] = str(cupy.__version__)
    machine = f"{names}; {platform.system()} {platform.machine()}"
    return {"machine": machine, "versions": versions, "date": date.today().isoformat()}
