"""Gather a row of numbers from each device in every process.

    device 0, of rank 0    1 2 3                    1 2 3
    device 1, of rank 0    4 5 6   ► allreduce ►    4 5 6    on all of them
    device 2, of rank 1    7 8 9                    7 8 9

Each device's array has the device's own row, and zeros in place of the others. The rows travel as integers with the
same bits: adding a zero does not change these, so every bit of a number arrives.
"""

import functools

import numpy as np

from ..collectives import add_allreduce, allreduce, find_algorithm
from ..devices import DeviceArray, to_host
from ..devices.records import nothing_noted
from ..devices.transfer import result_to_host
from .staging import endpoint


def gather(cluster, rows):
    """Gather the rows of all devices of a `Cluster`, in order: a float64 array of shape (k, m).

    ``rows``: m numbers for each of this process's devices. All processes call this, with the same m.
    """
    rows = np.array(rows, float)
    if cluster.size == 1:
        return rows
    whole = np.zeros((len(cluster), rows.shape[1]))
    cluster.part(whole)[...] = rows
    sum_disjoint(cluster, whole.reshape(-1))
    return whole


def sum_disjoint(cluster, array):
    """Assemble a flat host array, in every process, from the elements of all; each one's ``array`` is zero elsewhere.

    All processes call this.
    """
    if cluster.size > 1:
        bits = array.view(f"i{array.itemsize}")
        each = [bits, *(np.zeros_like(bits) for _ in cluster.mine[1:])]
        arrays = [DeviceArray(own, endpoint(device)) for own, device in zip(each, cluster.mine, strict=True)]
        with nothing_noted():
            allreduce(arrays, cluster.across("ring"))
        array[...] = to_host(arrays[0]).view(array.dtype)


def add_gather(batch, cluster, m, makers):
    """Add to a batch: gather rows of m numbers; ``makers[i]()``, called on this process's device i, makes a row.

    Returns an array for each of this process's devices; `rows_gathered` reads it when the batch is done. A GPU's array
    is on its `Staging`, in the host's memory. These few bytes do not count towards any memory limit.
    """
    arrays = [DeviceArray(np.zeros(len(cluster) * m, np.int64), endpoint(device)) for device in cluster.mine]
    each = zip(cluster.mine, arrays, makers, strict=True)
    for number, (device, array, make) in enumerate(each, cluster.first):
        if array.device is not device:
            made = batch.submit(device, make)
            batch.wait(array.device, made)
            make = functools.partial(getattr, made, "value")
        batch.submit(array.device, _enter, array.raw[number * m : (number + 1) * m], make)
    add_allreduce(batch, arrays, find_algorithm(cluster.across("recursive_doubling")))
    for device, array in zip(cluster.mine, arrays, strict=True):
        if array.device is not device:
            batch.wait(device, batch.record(array.device))  # the GPU's later work waits for the rows
    return arrays


def _enter(place, make):
    """Write the row that ``make()`` returns, as integers with the same bits; runs on a device."""
    place[...] = np.asarray(make(), np.float64).view(np.int64)


def rows_gathered(arrays, cluster):
    """The rows, a float64 array (k, m), from what `add_gather` returned; call this when the batch is done."""
    return result_to_host(arrays[0].raw, arrays[0].device).view(np.float64).reshape(len(cluster), -1)
