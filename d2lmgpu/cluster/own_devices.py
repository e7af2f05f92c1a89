"""Which devices does each process take? A GPU each where there are GPUs, as MATLAB's parallel workers do.

    host a, cards X and Y    rank 0 ► X    rank 1 ► Y    rank 2 ► none, and does not compute
    host b, no cards         rank 3 ► none, and does not compute
    no host has any          every rank ► cpu(0)

Processes of a host see the same cards, or, where a batch system has divided these among them, each its own; so cards
are told apart by their places on the bus. Lower ranks choose first.
"""

import socket

from ..devices import DeviceError, cpu, gpu, try_gpu
from ..devices.discovery import places_of_cards
from .rendezvous import rendezvous
from .supervisor import tell


class NoDeviceError(DeviceError):
    """This process has no GPU of its own, while others have: it does not compute."""


def own_devices(world, count, patience):
    """This process's devices, ``count`` of them if there are so many, and the communicator of all that have some.

    ``world``: MPI's of all processes, None for one alone. Raises NoDeviceError in a process that is left without.
    """
    if world is None:
        return [try_gpu(i) for i in range(count)], None
    here = socket.gethostname(), places_of_cards()
    present = rendezvous(world, here, patience)
    if not any(cards for _, cards in present):
        return [cpu(i) for i in range(count)], world
    shares = share_cards(present, count)
    mine = shares[world.rank]
    everybody = world if all(shares) else world.Split(bool(mine), world.rank)
    if not mine:
        found = f"{len(here[1])} GPUs, all of them taken by lower ranks" if here[1] else "no GPU"
        raise NoDeviceError(
            f"rank {world.rank} ({here[0]}) does not compute: it finds {found}, and others have some; start as many "
            "processes as there are GPUs, or tell which devices to take, such as --devices cpu:0"
        )
    tell(f"rank {everybody.rank}")
    return [gpu(i) for i in mine], everybody


def share_cards(present, count):
    """For each process the numbers of the cards that it takes, among those that it sees: ``count`` at most.

    ``present``: of each process its host, and the places of the cards that it sees.
    """
    taken, shares = set(), []
    for host, cards in present:
        mine = [i for i, card in enumerate(cards) if (host, card) not in taken][:count]
        taken |= {(host, cards[i]) for i in mine}
        shares.append(mine)
    return shares
