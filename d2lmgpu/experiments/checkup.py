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


def check_machine():
    """Try everything on all GPUs and on two virtual devices; return a list of `devices.probes.Probe`.

    The list says what failed and why. What is called here without using its result is tried with `probe`, which notes
    the outcome.
    """
    forget_probes()
    with contextlib.redirect_stderr(io.StringIO()):  # the list says what the notes would say
        gpus = [gpu for card in range(find_gpus()[0]) for gpu in _try_card(card)]
        if gpus:
            gpus[0].make_current()
        pairs = list(itertools.combinations(gpus, 2))
        for group in pairs if len(gpus) < 3 else [*pairs, gpus]:
            with contextlib.suppress(DeviceError):  # if nothing works between two GPUs, their sum will show it
                why_not_one_graph(as_cluster(group))
        for pair in pairs:
            probe(" and ".join(map(str, pair)), "a sum over both", "", lambda pair=pair: _try_sum(pair, "ring"))
        if pairs:
            probe(", ".join(map(str, gpus)), "NCCL", "", lambda: _try_sum(gpus, "nccl"))
        kernels_work("cpu")
        probe("cpu(0) and cpu(1)", "a sum over both", "", lambda: _try_sum([cpu(0), cpu(1)], "ring"))
        return probes()


def _try_card(card):
    """Try what a GPU does on its own; return a list of the device, which is empty if it cannot be used at all.

    The device is not the one that `gpu` returns, so that failures, also those with another GPU, leave that one alone.
    """
    made = []
    if probe(f"gpu({card})", "a stream of its own", "", lambda: made.append(GPU(card, card).set_up())):
        made[0].submit(_try_kernels, made[0]).result()
    return made


def _try_kernels(device):
    """Try the kernels in each precision that the device has, and a graph of them; runs in the device's queue."""
    for precision, mixed in PRECISIONS.items():
        if not mixed or device.compute_capability >= TENSOR_CORES:
            kernels_work("gpu", precision)
    graphs_work()


def _try_sum(devices, algorithm):
    """Sum arrays over devices; raise RuntimeError if the sum is wrong."""
    values = [np.random.default_rng(i).integers(0, 1000, 100_003).astype(np.float32) for i in range(len(devices))]
    arrays = [put(value, device) for value, device in zip(values, devices, strict=True)]
    allreduce(arrays, algorithm)
    for array in arrays:
        if not np.array_equal(to_host(array), sum(values)):
            raise RuntimeError(f"the sum on {array.device} is wrong")
