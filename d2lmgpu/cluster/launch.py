"""How a process of a cluster begins: how it was started, how it finds the others, and which devices it takes.

Where there are GPUs, each process takes GPUs of its own, as MATLAB's parallel workers do. With one device each:

    host a, cards X and Y    rank 0 ► X    rank 1 ► Y    rank 2 ► none, and does not compute
    host b, no cards         rank 3 ► none, and does not compute
    no host has a card       every rank ► cpu(0)

The processes on one host all see the same cards, unless a batch system has divided the cards among them; then each
process sees only its own. Processes in containers may see one card under two hosts' names, or two hosts' cards under
one name. So each card is recognised by its own identity (`identities_of_cards`). Lower ranks choose first.
"""

import contextlib
import os
import signal
import socket
import sys

from ..base.packages import in_a_clone, optional
from ..devices import DeviceError, cpu, gpu, try_gpu
from ..devices.discovery import identities_of_cards
from .nccl import share_one_heap
from .rendezvous import rendezvous
from .watchdog import LAUNCHERS


def started_together():
    """The number of processes started together, and the environment variable that gives it (None for a single one)."""
    for name, rank in LAUNCHERS.items():
        if rank in os.environ and os.environ.get(name, "").isdecimal() and int(os.environ[name]) > 1:
            return int(os.environ[name]), name
    return 1, None


def begin_together():
    """If this process is one of several, prepare it before its devices' threads start; return whether it is."""
    several = started_together()[0] > 1
    if several:
        share_one_heap()
    return several


_START = 30.0
"""Seconds that MPI may take to begin, even if the patience is shorter."""

_world = None
"""The communicator that `find_world` made; None before, and in a process that was started alone."""


@contextlib.contextmanager
def alarm(after):
    """A signal ends the process if the block takes longer than ``after`` seconds, even if Python's lock is held."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, after)
    try:
        yield
    finally:
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)


def find_world(patience):
    """A communicator of all processes, for this package's messages alone; None for a process that was started alone.

    All processes call this. At the first call, SIGALRM ends this process if MPI has not connected all of them after
    ``patience`` seconds (at least `_START`), and this process ends the job if another one does not get here in time.

    Raises DeviceError if several processes were started, but there is no MPI, or it does not connect them, or it does
    not let several threads call it at the same time.
    """
    global _world
    count, name = started_together()
    if count == 1 and "mpi4py.MPI" not in sys.modules:
        return None
    if _world is not None:
        return _world
    with alarm(max(patience, _START)):
        MPI, why = optional("mpi4py.MPI")
    if MPI is None:
        raise DeviceError(
            f"cluster: {count} processes were started together ({name}), but cannot talk to each other: mpi4py.MPI "
            f"{why}; {in_a_clone('cluster')}"
        )
    world, library = MPI.COMM_WORLD, " ".join(MPI.Get_library_version().split("\n")[0].split())
    if world.size == 1 and count > 1:
        raise DeviceError(
            f"cluster: {count} processes were started together ({name}), but each finds itself alone; start them with "
            f"the mpiexec of the MPI that mpi4py uses here ({library}), or with srun --mpi=pmi2 or --mpi=pmix"
        )
    if world.size > 1 and MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise DeviceError(
            f"cluster: this MPI ({library}) does not let several threads call it at the same time "
            "(MPI_THREAD_MULTIPLE), as devices' threads do"
        )
    if world.size > 1:
        rendezvous(world, None, patience)  # reports a missing process; Dup alone would wait for it for ever
        _world = world.Dup()
    return _world


class NoDeviceError(DeviceError):
    """This process has no GPU of its own while others have one, so it does not compute."""


def own_devices(world, count, patience):
    """This process's devices, at most ``count``, and the communicator of all processes that have devices.

    ``world``: MPI's communicator of all processes, None if this process was started alone. Raises NoDeviceError in a
    process for which there is no device.
    """
    if world is None:
        return [try_gpu(i) for i in range(count)], None
    here = identities_of_cards()
    present = rendezvous(world, here, patience)
    if not any(present):
        return [cpu(i) for i in range(count)], world
    shares = share_cards(present, count)
    mine = shares[world.rank]
    computing = world if all(shares) else world.Split(bool(mine), world.rank)  # which all processes must call
    if not mine:
        found = f"{len(here)} GPUs, all of them taken by lower ranks" if here else "no GPU"
        raise NoDeviceError(
            f"rank {world.rank} ({socket.gethostname()}) does not compute: it finds {found}, and others have some; "
            "start as many processes as there are GPUs, or tell which devices to take, such as --devices cpu:0"
        )
    return [gpu(i) for i in mine], computing


def share_cards(present, count):
    """For each process, the numbers of the cards that it takes, at most ``count``, among those that it sees.

    ``present``: for each process, the identities of the cards that it sees.
    """
    taken, shares = set(), []
    for cards in present:
        mine = [i for i, card in enumerate(cards) if card not in taken][:count]
        taken |= {cards[i] for i in mine}
        shares.append(mine)
    return shares
