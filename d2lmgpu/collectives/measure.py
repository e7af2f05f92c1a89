"""How fast is an allreduce here? In the convention of NCCL-tests.

S is the size of the array on each device, t the time of one allreduce:

    algbw = S / t                      what the user sees
    busbw = algbw · 2(k-1)/k           what the wires see: comparable between numbers of devices

Source: NCCL-tests, "Performance reported by NCCL tests".
"""

import re
import statistics
from dataclasses import asdict, dataclass

import numpy as np

from ..arguments import check_function, check_list, check_number, check_text, check_whole, shown
from ..devices import check_devices, nothing_left_behind, put, record_transfers, synchronize, to_host
from ..devices.memory import MOST_BYTES
from ..measuring import repeated, repeats_in, seconds_of
from ..words import name_of


@dataclass
class Measurement:
    """One row: bandwidths in GB/s (10⁹ bytes), ``seconds`` the median of ``repeats``, with least and most.

    ``correct`` says that the sums were checked; it is None for "none", which sums
    nothing. ``steps`` and ``bytes_sent_per_device`` are None for a library, which
    does not tell them.
    """

    algorithm: str
    devices: int
    bytes: int
    seconds: float
    seconds_min: float
    seconds_max: float
    repeats: int
    algbw: float
    busbw: float
    bytes_sent_per_device: list
    steps: int
    correct: bool

    as_dict = asdict


def measure(allreduce, devices, algorithm, nbytes, steps=None, budget=0.3):
    """Time ``allreduce(data, algorithm)`` for float32 arrays of ``nbytes`` bytes on ``devices``; a `Measurement`.

    All devices are synchronised before and after each repeat; a first, unmeasured
    one warms up, and its result is checked against the exact sum. There are as many
    repeats as ``budget`` seconds hold: five at least, a thousand at most.

    Raises RuntimeError if the sum is wrong.
    """
    check_function("allreduce", allreduce)
    devices = check_devices(devices)
    if not callable(algorithm):
        check_text("algorithm", algorithm)
    check_bytes(nbytes)
    check_number("budget", budget, least=0)
    with nothing_left_behind(devices):
        return _measure(allreduce, devices, algorithm, nbytes, steps, budget)


def _measure(allreduce, devices, algorithm, nbytes, steps, budget):
    k, n = len(devices), nbytes // 4
    values = [value_of(i, n) for i in range(k)]
    data = [put(value, device) for value, device in zip(values, devices, strict=True)]
    with record_transfers() as transfers:
        allreduce(data, algorithm)
    correct = None
    if algorithm != "none":
        total = np.sum(values, axis=0)
        correct = all(np.array_equal(to_host(array), total) for array in data)
        if not correct:
            raise RuntimeError(f"allreduce {algorithm!r} of {nbytes} bytes on {k} devices gave a wrong sum")
    for array in data:
        array.fill(0)  # or repeated sums would overflow

    def once():
        return seconds_of(lambda: allreduce(data, algorithm), lambda: synchronize(devices))

    seconds = repeated(once, repeats_in(budget, once()))
    sent = [sum(t.nbytes for t in transfers if t.source == str(device)) for device in devices]
    return row_of(algorithm, k, nbytes, seconds, None if steps is None else sent, steps, correct)


def value_of(i, n):
    """What device i has at first: n whole numbers as float32, whose sums over any devices are exact."""
    return (np.arange(n, dtype=np.int32) % 61 + 7 * i).astype(np.float32)


def row_of(algorithm, k, nbytes, seconds, sent, steps, correct):
    """The `Measurement` of an allreduce on k devices whose repeats took so many ``seconds``."""
    median = statistics.median(seconds)
    algbw = nbytes / median / 1e9
    return Measurement(
        algorithm=name_of(algorithm) if callable(algorithm) else algorithm,
        devices=k,
        bytes=nbytes,
        seconds=median,
        seconds_min=min(seconds),
        seconds_max=max(seconds),
        repeats=len(seconds),
        algbw=algbw,
        busbw=algbw * 2 * (k - 1) / k,
        bytes_sent_per_device=sent,
        steps=steps,
        correct=correct,
    )


def check_bytes(nbytes):
    """Raise ValueError unless an array can have so many bytes."""
    check_whole("a size in bytes", nbytes, least=4, most=MOST_BYTES)


def check_rows(rows):
    """The list of rows. Raises ValueError unless there are some, all `Measurement`."""
    rows = check_list("rows", rows, of="measurements, as measure_allreduce makes them")
    if not rows or not all(hasattr(row, "algorithm") and hasattr(row, "seconds") for row in rows):
        raise ValueError(f"rows are {shown(rows)}; give a list of measurements, as measure_allreduce makes them")
    return rows


UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def parse_size(text):
    """Bytes of "512", "4K", "64M" or "1.5G" (K is 1024), a multiple of 4.

    Raises ValueError for anything else, less than 4, or more than any machine has.
    """
    check_text("size", text)
    found = re.fullmatch(r"([0-9]{1,20}(?:\.[0-9]{1,9})?)([KMGT]?)B?", text.strip().upper())
    nbytes = int(float(found[1]) * UNITS[found[2]]) if found else 0
    if not 4 <= nbytes <= MOST_BYTES:
        raise ValueError(f"size {shown(text)}: give bytes, at least 4 and at most 1024T, such as 512, 4K or 1.5G")
    return nbytes // 4 * 4
