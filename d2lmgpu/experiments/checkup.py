"""Find out what works on this machine, by trying everything that the program relies on, on each device.

A program tries these things by itself when it first uses a device, and falls back to something slower where one of them
does not work. Here all of them are tried at once, so that you can see what to expect from a new machine.
"""

import contextlib
import io
import itertools

import numpy as np

from ..cluster import as_cluster
from ..collectives import allreduce
from ..devices import DeviceError, cpu, find_gpus, put, to_host
from ..devices.gpu import GPU
from ..devices.probes import forget_probes, probe, probes
from ..kernels.cuda import PRECISIONS, TENSOR_CORES, graphs_work
from ..networks import kernels_work
from ..training.make_runner import why_not_one_graph

_LENGTH = 1003
"""The number of elements of the arrays that are summed."""


def check_machine():
    """Try everything on all GPUs and on two virtual devices; return a list of `devices.probes.Probe`.

    It raises no errors: the list says what failed and why.
    """
    forget_probes()
    with contextlib.redirect_stderr(io.StringIO()):  # the list says what the notes would say
        gpus = [gpu for gpu in map(_try_card, range(find_gpus()[0])) if gpu is not None]
        if gpus:
            gpus[0].make_current()
        for pair in itertools.combinations(gpus, 2):
            _try_together(pair)
            probe(" and ".join(map(str, pair)), "a sum over both", "", lambda pair=pair: _try_sum(pair, "ring"))
        if len(gpus) > 2:
            _try_together(gpus)
        if len(gpus) > 1:
            probe(", ".join(map(str, gpus)), "NCCL", "", lambda: _try_sum(gpus, "nccl"))
        cpus = [cpu(0), cpu(1)]
        kernels_work("cpu")
        probe("cpu(0) and cpu(1)", "a sum over both", "", lambda: _try_sum(cpus, "ring"))
        return probes()


def _try_card(card):
    """Try what a GPU does on its own; return the device, or None if it cannot be used at all.

    This device is used for nothing else, so failures, even between two cards, do not affect the device that `gpu`
    returns.
    """
    name, made = f"gpu({card})", []

    if not probe(name, "a stream of its own", "", lambda: made.append(GPU(card, card).set_up())):
        return None
    for task in made[0].submit(_try_precisions, made[0]), made[0].submit(graphs_work):
        if task.exception():  # it failed before anything could be tried
            probe(name, "work in its queue", "", task.result)
    return made[0]


def _try_precisions(device):
    """Try the kernels in each precision that the device has; runs on the device."""
    for precision, kind in PRECISIONS.items():
        if kind is None or device.compute_capability >= TENSOR_CORES:
            kernels_work("gpu", precision)


def _try_together(gpus):
    """Try what training on several GPUs needs: peer access and, if they have it, a graph over all of them."""
    with contextlib.suppress(DeviceError):  # if nothing works between two GPUs, their sum will show it
        why_not_one_graph(as_cluster(gpus))


def _try_sum(devices, algorithm):
    """Sum arrays over devices, twice; raise RuntimeError if a sum is wrong."""
    for n in (_LENGTH, 100 * _LENGTH):
        values = [np.random.default_rng(i).integers(0, 1000, n).astype(np.float32) for i in range(len(devices))]
        arrays = [put(value, device) for value, device in zip(values, devices, strict=True)]
        allreduce(arrays, algorithm)
        for array in arrays:
            if not np.array_equal(to_host(array), sum(values)):
                raise RuntimeError(f"the sum of {n} elements on {array.device} is wrong")
