"""Who is there: all processes tell each other something, and who does not come is named."""

import time

from .communicator import HangError, most_tags
from .ending import end, lives_on

PATIENCE = 120.0
"""Seconds for which a process waits for another, unless told otherwise."""

GLANCE = 0.001
"""Seconds between two looks at what has arrived."""


_unsent = []
"""Messages of those that gave up: their memory, until they are away."""


def rendezvous(world, here, patience, where="d2l.cluster()"):
    """What each process has to tell, in order of rank; ``here`` is what this one tells. All call it in the same order.

    Ends all of them if one does not come ``where`` all meet for ``patience`` seconds; raises HangError in a process
    that lives on. The messages have the largest tags of the communicator, which may be one that a program uses, too.
    """
    come, withdrawn = most_tags(world), most_tags(world) - 1
    others = [rank for rank in range(world.size) if rank != world.rank]
    sent, found = [world.isend(here, rank, come) for rank in others], {world.rank: here}
    give_up = time.monotonic() + patience
    while len(found) < world.size or not done(sent):
        for rank in others:
            if rank not in found and world.iprobe(rank, come):
                found[rank] = world.recv(source=rank, tag=come)
                give_up = time.monotonic() + patience
            if rank in found and world.iprobe(rank, withdrawn):
                del found[rank]
                world.recv(source=rank, tag=withdrawn)
        if time.monotonic() > give_up:
            if lives_on():
                _unsent.extend([*sent, *(world.isend(None, rank, withdrawn) for rank in others)])
            _give_up(world, found, patience, where)
        time.sleep(GLANCE)
    return [found[rank] for rank in range(world.size)]


def done(requests):
    """Whether all are done; each is looked at, or MPI would not see to it."""
    return sum(not request.Test() for request in requests) == 0


def _give_up(world, found, patience, where):
    missing = " and ".join(f"rank {rank}" for rank in range(world.size) if rank not in found)
    text = f"{missing} did not come to {where} within {patience:g} s, where rank {world.rank} waits"
    if lives_on():
        raise HangError(text)
    if world.rank == min(found):
        end(world, [f"{text}; the job ends"])
    time.sleep(1)  # the lowest speaks for all
    end(world, [])
