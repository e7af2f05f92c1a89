"""The setup of a scaling experiment: numbers that are checked beforehand, and the machine."""

import platform
from dataclasses import asdict, dataclass

from ..arguments import as_whole, check_list, check_name, check_whole, shown
from ..devices import count_cores, device_table
from ..words import several

MODES = ("strong", "weak")


@dataclass
class Scaling:
    """A scaling experiment: what was trained, on which devices, and the results.

    ``batch_size``: the number of examples in all in mode "strong", or on each device in mode "weak". ``parameters``:
    how many numbers the network learns. ``steps``: the steps per turn. ``places``: how many of the devices can work at
    the same time (cores or GPUs).

    ``rows``: a `Row` for each number of devices. ``model``: the basis of predictions, or None.
    """

    mode: str
    network: str
    width: float
    parameters: int
    batch_size: int
    allreduce: str
    rounds: int
    steps: int
    devices: list
    places: int
    machine: str
    date: str
    rows: list = None
    model: dict = None

    as_dict = asdict

    def of_places(self):
        """The processors, in words: "2 cores", "1 GPU"."""
        kinds = {name.partition("(")[0] for name in self.devices}
        kind = "/".join("core" if kind == "cpu" else "GPU" for kind in sorted(kinds))
        return several(self.places, kind)


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


def machine_of(devices):
    """The processors behind the devices, in words."""
    kinds = {device.kind for device in devices}
    found = [row.description for row in device_table() if row.kind in kinds]
    names = ", ".join(f"{found.count(name)} × {name}" for name in dict.fromkeys(found))
    return f"{names}; {platform.system()} {platform.machine()}"
