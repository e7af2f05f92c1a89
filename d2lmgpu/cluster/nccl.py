"""Allreduces that the libraries MPI and NCCL provide; they are chosen in the same way as this package's algorithms.

NCCL moves the data between the cards, over NVLink, InfiniBand or whatever else connects them. MPI only brings NCCL's
unique id from rank 0 to the others; then each device joins NCCL's communicator, with its number in the cluster as its
rank.

Source: the NVIDIA NCCL documentation, "Creating a Communicator", with a process or a thread for each device.
"""

import functools

import numpy as np

from ..base.text import listed
from ..collectives.nccl import add_call, all_reduce_with, check_nccl_dtype, told_by_nccl
from ..devices import DeviceError
from ..devices.cpu import libc
from ..devices.discovery import identities_of_cards
from ..devices.records import span
from .communicator import Communicator
from .rendezvous import rendezvous

M_ARENA_MAX = -8
"""The value of this constant in glibc's malloc.h."""


def share_one_heap():
    """Ask glibc to let threads that start from now on allocate from the main thread's heap (one arena for all).

    For each allreduce MPI allocates as much memory as the array takes. A thread with a heap of its own gets this memory
    from the operating system each time, which made allreduces of 64 MB take 2.5 times as long.
    """
    libc("mallopt", M_ARENA_MAX, 1)


def all_reduce(communicator, flat):
    """Sum flat plain arrays of the virtual devices of all processes, in place, by MPI_Allreduce.

    Runs on one of this process's devices. MPI chooses the algorithm, and therefore the order of the additions.

    Raises ValueError for a dtype that MPI cannot add.
    """
    total = flat[0]
    if total.dtype.char not in "fdbhilqBHILQ":  # float32, float64 and the integers
        raise ValueError(f"allreduce 'mpi': MPI cannot add arrays of {total.dtype}; use 'ring'")
    with span("allreduce"), np.errstate(invalid="ignore"):
        for array in flat[1:]:
            np.add(total, array, out=total)
        communicator.all_reduce(total)
        for array in flat[1:]:
            np.copyto(array, total)


def check_nccl(cluster):
    """Raise DeviceError unless NCCL can sum over the devices of a `Cluster`; all processes call it together.

    The first call for a cluster makes NCCL's communicators.
    """
    others = [place for place in cluster.places if not place.device.startswith("gpu")]
    if others:
        raise DeviceError(f"allreduce 'nccl' needs GPUs everywhere, but there is {others[0]}; use 'ring' or 'mpi'")
    _nccl_communicators(cluster)


def add_nccl(batch, cluster, data):
    """Add to a batch the in-place sum, over the cluster, of the arrays of this process's GPUs or of their comm streams.

    Raises ValueError for a dtype that NCCL does not support.
    """
    devices, kind = [array.device for array in data], check_nccl_dtype(data[0].dtype)
    communicators, communicator = _nccl_communicators(cluster)
    call = communicators, [array.raw for array in data], kind, devices
    add_call(batch, devices, _all_reduce, communicator, *call)


def _all_reduce(communicator, communicators, arrays, kind, devices):
    """Sum the arrays, and wait until NCCL is done, so that the process's watch sees the wait; runs on the devices."""
    with communicator.wait_in("NCCL's allReduce"):
        all_reduce_with(communicators, arrays, kind, devices)
        for device in devices:
            device.finish()


@functools.lru_cache(maxsize=16)
def _nccl_communicators(cluster):
    """NCCL's communicator for each device of this process, and a `Communicator` that tells the watch of their waits."""
    unique_id = error = None
    try:
        with told_by_nccl() as library:
            unique_id = library.get_unique_id() if cluster.rank == 0 else None
    except DeviceError as reason:  # raised in all processes
        error = str(reason)
    cards = identities_of_cards()
    here = unique_id, [cards[device.card] for device in cluster.mine], error
    present = rendezvous(cluster.world, here, cluster.patience, "allreduce 'nccl'")
    for rank, (*_, error) in enumerate(present):
        if error:
            raise DeviceError(f"{error} (rank {rank})")
    each = [card for _, cards, _ in present for card in cards]
    if len(set(each)) < len(each):
        twice = listed(place for place, card in zip(cluster.places, each, strict=True) if each.count(card) > 1)
        raise DeviceError(f"allreduce 'nccl' needs a card for each device, but {twice} share cards; use 'ring'")
    communicator = Communicator(None, cluster.watch.heard)
    cluster.watch.communicators.append(communicator)
    joined = [
        device.submit(_join, len(cluster), present[0][0], number, communicator)
        for number, device in enumerate(cluster.mine, cluster.first)
    ]
    return [task.result() for task in joined], communicator


def _join(k, unique_id, number, communicator):
    """Return the NCCL communicator of device ``number`` of k, once all devices have called this; runs on its thread."""
    with communicator.wait_in("ncclCommInitRank"), told_by_nccl() as library:
        return library.NcclCommunicator(k, unique_id, number)
