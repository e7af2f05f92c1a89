"""How a process of a cluster begins: how it was started, how it finds the others, and which devices it takes.

Each process takes a GPU of its own where there are GPUs, as MATLAB's parallel workers do:

    host a, cards X and Y    rank 0 ► X    rank 1 ► Y    rank 2 ► none, and does not compute
    host b, no cards         rank 3 ► none, and does not compute
    no host has any          every rank ► cpu(0)

Processes of a host see the same cards, or each its own, if a batch system has divided them. So cards are told apart by
their places on the bus. Lower ranks choose first.
"""

import os
import re
import socket
import sys

from ..arguments import in_a_clone
from ..devices import DeviceError, cpu, gpu, try_gpu
from ..devices.discovery import places_of_cards
from .library import share_one_heap
from .rendezvous import rendezvous
from .supervisor import LAUNCHERS, supervise, tell


def started_together():
    """The number of processes that were started together, and the variable that says so (None for a single one)."""
    for name, rank in LAUNCHERS.items():
        if rank in os.environ and re.fullmatch("[0-9]{1,9}", os.environ.get(name, "")) and int(os.environ[name]) > 1:
            return int(os.environ[name]), name
    return 1, None


def begin_together():
    """Prepare one of several processes, before its devices' threads begin; returns whether it is one of several."""
    several = started_together()[0] > 1
    if several:
        supervise()
        share_one_heap()
    return several


_world = None
"""The communicator that `find_world` has made."""


def find_world(patience):
    """A communicator of all processes, for this package's messages alone; None for a process that was started alone.

    All processes call it. At the first call the supervisor ends the job if MPI does not find all of them within
    ``patience`` seconds, and this process does so if not all come here.

    Raises DeviceError where several were started, but there is no mpi4py, or they do not find each other.
    """
    global _world
    count, name = started_together()
    if count == 1 and "mpi4py.MPI" not in sys.modules:
        return None
    tell(f"patience {patience}")
    if _world is not None:
        return _world
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: there is no MPI library
        raise DeviceError(
            f"cluster: {count} processes were started together ({name}), but cannot talk to each other: {error}; "
            f"{in_a_clone('cluster')}"
        ) from error
    world = MPI.COMM_WORLD
    if world.size == 1 and count > 1:
        raise DeviceError(
            f"cluster: {count} processes were started together ({name}), but each finds itself alone; start them with "
            f"the mpiexec of the MPI that mpi4py uses here ({_library(MPI)}), or with srun --mpi=pmi2 or --mpi=pmix"
        )
    if world.size > 1 and MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise DeviceError(
            f"cluster: this MPI ({_library(MPI)}) lets only one thread send and receive; devices have several"
        )
    tell("together")
    if world.size > 1:
        rendezvous(world, None, patience)  # names a process that does not come; Dup would wait for ever
        _world = world.Dup()
    return _world


def _library(MPI):
    return " ".join(MPI.Get_library_version().split("\n")[0].split())


class NoDeviceError(DeviceError):
    """This process has no GPU of its own, while others have: it does not compute."""


def own_devices(world, count, patience):
    """This process's devices, at most ``count``, and the communicator of all processes that have some.

    ``world``: MPI's communicator of all processes, None for one alone. Raises NoDeviceError in a process for which
    there is no device.
    """
    if world is None:
        return [try_gpu(i) for i in range(count)], None
    here = socket.gethostname(), places_of_cards()
    present = rendezvous(world, here, patience)
    if not any(cards for _, cards in present):
        return [cpu(i) for i in range(count)], world
    shares = share_cards(present, count)
    mine = shares[world.rank]
    computing = world if all(shares) else world.Split(bool(mine), world.rank)
    if not mine:
        found = f"{len(here[1])} GPUs, all of them taken by lower ranks" if here[1] else "no GPU"
        raise NoDeviceError(
            f"rank {world.rank} ({here[0]}) does not compute: it finds {found}, and others have some; start as many "
            "processes as there are GPUs, or tell which devices to take, such as --devices cpu:0"
        )
    tell(f"rank {computing.rank}")
    return [gpu(i) for i in mine], computing


def share_cards(present, count):
    """For each process the numbers of the cards that it takes, at most ``count``, among those that it sees.

    ``present``: for each process its host, and the places of the cards that it sees.
    """
    taken, shares = set(), []
    for host, cards in present:
        mine = [i for i, card in enumerate(cards) if (host, card) not in taken][:count]
        taken |= {(host, cards[i]) for i in mine}
        shares.append(mine)
    return shares
