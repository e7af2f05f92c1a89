"""What a scaling experiment is about to do, checked, and the machine on which it does it."""

import platform
from dataclasses import fields

import numpy as np

from ..arguments import check_list, check_name, check_whole, shown
from ..data import check_parts
from ..devices import check_devices, count_cores, device_table
from ..fashion_mnist import load_fashion_mnist
from ..networks import check_width
from ..parallel import check_precision
from ..training import Settings
from ..training.checks import check_data, check_statistics, find_network, image_shape

MODES = ("strong", "weak")
HOW = "optimizer weight_decay batch_statistics preprocess flat overlap prefetch graphs precision".split()
"""Settings that decide how long a step takes, beside those that an experiment has as arguments."""


def widened(network, width, data):
    """The name and the layers of a network for ``data``, with ``width`` times its usual channels.

    Raises ValueError where that cannot be.
    """
    check_width(width)
    return find_network(network, data[4] if len(data) > 4 else None, image_shape(data[0]), width=width)


def subject(data, network, width, settings, devices):
    """What an experiment trains: its data (Fashion-MNIST for None), the network's name and layers, `check_settings`.

    Raises ValueError where these do not go together.
    """
    data = load_fashion_mnist() if data is None else check_parts(data, least=2)
    name, network = widened(network, width, data)
    check_data(*data[:2], network)
    return data, name, network, check_settings(settings, devices, network, name)


def check_settings(settings, devices, network, name):
    """Those of `HOW` that are not as by default, by name; ``settings``: a `Settings`, or None.

    Raises ValueError for anything else, and for what the network cannot do, DeviceError for what the devices cannot.
    """
    if settings is None:
        return {}
    if not isinstance(settings, Settings):
        raise ValueError(f"settings are {shown(settings)}; give a Settings, such as Settings(optimizer='adam')")
    check_statistics(settings.batch_statistics, network, name)
    check_precision(settings.precision, devices)
    chosen = {about.name: getattr(settings, about.name) for about in fields(Settings) if about.name in HOW}
    return {name: value for name, value in chosen.items() if value != getattr(Settings(), name)}


def check_counts(counts, devices=None):
    """The numbers of devices, ascending. Raises ValueError unless they can be compared, on ``devices`` if given."""
    counts = check_list("devices", counts, of="different whole numbers, such as 1,2,4")
    if any(not isinstance(k, (int, np.integer)) or k < 1 for k in counts) or len(set(counts)) < len(counts):
        raise ValueError(f"devices are {shown(counts)}; they should be different whole numbers, such as 1,2,4")
    if 1 not in counts:
        raise ValueError(f"devices are {shown(counts)}; 1 should be among them, with which the others are compared")
    if devices is not None and max(counts) > len(check_devices(devices)):
        raise ValueError(f"devices are {shown(counts)}, but only {len(devices)} were given")
    return sorted(counts)


def batch_sizes(mode, counts, batch_size):
    """Examples in a minibatch, for each number of devices. Raises ValueError for an unknown mode or no batch size."""
    check_name("mode", mode, MODES)
    check_whole("batch_size", batch_size)
    return {k: batch_size * k if mode == "weak" else batch_size for k in counts}


def check_steps(steps, repeats, batches, examples):
    """How many steps a turn can have: ``steps``, or as many as the data set has minibatches of the largest size.

    Raises ValueError for numbers that are none, and for minibatches larger than the data set.
    """
    for name, value in (("steps", steps), ("repeats", repeats)):
        check_whole(name, value)
    largest = max(batches.values())
    if largest > examples:
        raise ValueError(f"a minibatch of {largest} examples is more than the {examples} there are; give a smaller one")
    return min(steps, examples // largest)


def count_places(devices):
    """How many of the devices can work at the same time: different GPUs, and the cores for virtual devices.

    Raises ValueError for what are no devices.
    """
    check_devices(devices)
    cards = {device.card for device in devices if device.kind == "gpu"}
    virtual = sum(device.kind == "cpu" for device in devices)
    return len(cards) + min(virtual, count_cores())


def machine(devices):
    """The processors behind the devices, in words."""
    kinds = {device.kind for device in devices}
    found = [row.description for row in device_table() if row.kind in kinds]
    names = [f"{found.count(name)} × {name}" for name in dict.fromkeys(found)]
    return f"{', '.join(names)}; {platform.system()} {platform.machine()}"


def versions(devices):
    """Versions of what computes, by name."""
    found = {"python": platform.python_version(), "numpy": np.__version__}
    if any(device.kind == "gpu" for device in devices):
        import cupy

        found["cupy"] = str(cupy.__version__)
    return found
