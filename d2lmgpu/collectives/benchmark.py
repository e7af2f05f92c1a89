"""How fast is an allreduce here, by the conventions of NCCL-tests, and which network explains the times?

S is the size of the array on each device, and t the time of one allreduce:

    algbw = S / t                      what the user sees
    busbw = algbw · 2(k-1)/k           what the wires see: comparable for any number of devices

The simulated time of a schedule on virtual devices is a sum of four terms, each proportional to one of the `CONSTANTS`:
the seconds to start, per message, per byte copied and per byte added. So the constants are fitted by least squares, and
judged by how well they predict the times of other allreduces.

Source: NCCL-tests, "Performance reported by NCCL tests".
"""

import re
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from ..base.arguments import check_list, check_whole, plain_numbers, shown
from ..base.measuring import fit, repeated, repeats_in, seconds_of
from ..base.text import name_of
from ..devices import Group, check_devices, isolated_errors, put, synchronize, to_host
from ..devices.device import MAX_BYTES
from .allreduce import allreduce, check_algorithm, find_algorithm
from .execute import Collective
from .network import shared_cores
from .simulate import simulate


@dataclass
class Measurement:
    """One row of measurements, with bandwidths in GB/s (10⁹ bytes per second).

    ``seconds`` is the median of the repeats. ``correct`` says that the sums were checked; it is None for "none", which
    sums nothing. ``steps`` and ``bytes_sent_per_device`` are None for a library, which does not report them.
    """

    algorithm: str
    devices: int
    bytes: int
    seconds: float
    algbw: float
    busbw: float
    bytes_sent_per_device: list
    steps: int
    correct: bool

    as_dict = asdict


def measure_allreduce(devices, algorithms, sizes):
    """Time allreduces: an iterator over a `Measurement` for each size in bytes and algorithm (a name or a function).

    On a `Cluster`, all processes call this and get the same measurements.

    Raises ValueError, at once, for unknown algorithms and for sizes that are not whole numbers of at least 4;
    RuntimeError for a wrong sum.
    """
    group = devices if isinstance(devices, Group) else Group(check_devices(devices))
    algorithms = check_list("algorithms", algorithms, of="names, or functions of k and n", one=(str, Callable))
    sizes = check_list("sizes", sizes, of="numbers of bytes", one=(int, float, np.number))
    sizes = [check_whole("size", nbytes, least=4, most=MAX_BYTES) for nbytes in sizes]
    names = [name_of(algorithm) if callable(algorithm) else algorithm for algorithm in algorithms]
    algorithms = [group.across(algorithm) for algorithm in algorithms]
    for algorithm in algorithms:
        check_algorithm(algorithm)
    pairs = list(zip(names, algorithms, strict=True))
    return (_measure(group, *pair, nbytes) for nbytes in sizes for pair in pairs)


def _measure(group, name, algorithm, nbytes, budget=0.3):
    """Time an allreduce over the devices of a `Group` for float32 arrays of ``nbytes`` bytes: a `Measurement`.

    All devices are synchronised before and after each repeat. The first repeat is a warm-up: it does not count, but its
    result is checked against the exact sum. Then as many repeats follow as fit into ``budget`` seconds, at least 5 and
    at most 1000. Each process measures its own devices; a time is the mean over all devices.

    Raises RuntimeError if the sum is wrong.
    """
    k, n = len(group), nbytes // 4

    def once():
        group.mean([0])  # all processes begin at the same time
        return seconds_of(lambda: allreduce(data, algorithm), lambda: synchronize(group.mine))

    with isolated_errors(group.mine):
        data = [put(value_of(i, n), device) for i, device in enumerate(group.mine, group.first)]
        once()
        if name != "none":
            total = np.sum([value_of(i, n) for i in range(k)], axis=0)
            if group.mean([sum(not np.array_equal(to_host(array), total) for array in data)])[0]:
                raise RuntimeError(f"allreduce {name!r} of {nbytes} bytes on {k} devices gave a wrong sum")
        for array in data:
            array.fill(0)  # otherwise repeated sums would overflow
        seconds = group.mean(repeated(once, repeats_in(budget, *group.mean([once()]))))
    median = statistics.median(seconds)
    algbw = nbytes / median / 1e9
    steps = sent = None
    found = find_algorithm(algorithm)
    schedules = found.schedules if isinstance(found, Collective) else found
    if schedules is not None:
        schedule = schedules(k, n)
        steps = len(schedule)
        sent = [sum(4 * t.size for step in schedule for t in step if t.source == i) for i in range(k)]
    return Measurement(
        algorithm=name,
        devices=k,
        bytes=nbytes,
        seconds=median,
        algbw=algbw,
        busbw=algbw * 2 * (k - 1) / k,
        bytes_sent_per_device=sent,
        steps=steps,
        correct=None if name == "none" else True,
    )


def value_of(i, n):
    """The array with which device i starts: n whole numbers as float32, whose sums over any devices are exact."""
    return (np.arange(n, dtype=np.int32) % 61 + 7 * i).astype(np.float32)


_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def parse_size(text):
    """The bytes of "512", "4K", "64M" or "1.5G" (K is 1024), a multiple of 4.

    Raises ValueError for any other text, for less than 4 bytes, or for more than any machine has.
    """
    found = re.fullmatch(r"([0-9]{1,20}(?:\.[0-9]{1,9})?)([KMGT]?)B?", text.strip().upper())
    nbytes = int(float(found[1]) * _UNITS[found[2]]) if found else 0
    if not 4 <= nbytes <= MAX_BYTES:
        raise ValueError(f"size {shown(text)}: give bytes, at least 4 and at most 1024T, such as 512, 4K or 1.5G")
    return nbytes // 4 * 4


CONSTANTS = ("startup", "occupancy", "beta", "gamma")
"""The seconds to start per device, then those per message, per byte that is copied, and per byte that is added."""


@plain_numbers
def virtual_devices(constants, cores):
    """A function of k that returns the network of k virtual devices with these ``constants``, a dict by `CONSTANTS`."""

    def network(k):
        bandwidth, startup = 1 / max(constants["beta"], 1e-30), k * constants["startup"]
        return shared_cores(k, cores, bandwidth, constants["occupancy"], constants["gamma"], startup)

    return network


def fit_virtual_devices(measurements, algorithms, cores):
    """The `CONSTANTS` of this computer, fitted to `Measurement` rows, as a dict.

    ``algorithms`` maps names to schedule functions; ``cores`` is the number of
    cores that the devices share. There should be more rows than constants.
    """
    alone = [{other: float(other == name) for other in CONSTANTS} for name in CONSTANTS]  # one is 1, the others 0
    terms = [predicted_times(measurements, algorithms, virtual_devices(constants, cores)) for constants in alone]
    seconds = [row.seconds for row in measurements]
    return dict(zip(CONSTANTS, fit(np.transpose(terms), seconds).tolist(), strict=True))


def predicted_times(measurements, algorithms, network):
    """The simulated seconds of each row's allreduce; ``network`` is a function of k."""
    schedules = [algorithms[row.algorithm](row.devices, row.bytes // 4) for row in measurements]
    networks = [network(row.devices) for row in measurements]
    return np.array([simulate(*pair).seconds for pair in zip(schedules, networks, strict=True)])
