"""Who is there: all processes tell each other something, and who does not come is named."""

import time

from .ending import end

TAG = 17
"""Of these messages among those of MPI's communicator of all processes, which nothing else here uses."""

GLANCE = 0.001
"""Seconds between two looks at what has arrived."""


def roll_call(world, here, patience, where="d2l.cluster()"):
    """What each process has to tell, in order of rank; ``here`` is what this one tells. All call it in the same order.

    Ends all of them if one does not come ``where`` all meet for ``patience`` seconds.
    """
    sent = [world.isend(here, rank, TAG) for rank in range(world.size) if rank != world.rank]
    found = {world.rank: here}
    give_up = time.monotonic() + patience
    while len(found) < world.size or not done(sent):
        for rank in range(world.size):
            if rank not in found and world.iprobe(rank, TAG):
                found[rank] = world.recv(source=rank, tag=TAG)
                give_up = time.monotonic() + patience
        if time.monotonic() > give_up:
            _give_up(world, found, patience, where)
        time.sleep(GLANCE)
    return [found[rank] for rank in range(world.size)]


def done(requests):
    """Whether all are done; each is looked at, or MPI would not see to it."""
    return sum(not request.Test() for request in requests) == 0


def _give_up(world, found, patience, where):
    missing = " and ".join(f"rank {rank}" for rank in range(world.size) if rank not in found)
    if world.rank == min(found):
        text = f"{missing} did not come to {where} within {patience:g} s, where rank {world.rank} waits"
        end(world, [f"{text}; the job ends"])
    time.sleep(1)  # the lowest speaks for all
    end(world, [])
