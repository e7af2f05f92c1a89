"""Rabenseifner's allreduce: each step halves the amount that is exchanged, until later steps double it again.

    k = 4, chunks 0 1 2 3     step 1 (add)          step 2 (add)      step 3, 4 (copy)
    device 0                  sends 2 3 to 2        sends 1 to 1      the way back:
    device 1                  sends 2 3 to 3        sends 0 to 0      the finished part
    device 2                  sends 0 1 to 0        sends 3 to 3      doubles with
    device 3                  sends 0 1 to 1        sends 2 to 2      every step

Two partners split the range that they share in two; each keeps one half and sends
the other. After log₂ k steps device i holds the finished chunk i (recursive
halving: a reduce-scatter); then the same partners exchange their finished chunks
(recursive doubling: an all-gather).

Steps: 2 log₂ k. Bytes: each device sends n/2 + n/4 + … + n/k in each of the two phases, 2(k-1)/k·n in all, as little as
in the ring, but in far fewer steps. If k is not a power of two, the devices beyond the largest power of two hand in
their shares before the first step and get the result after the last: two more steps, of n elements each.

Source: Rabenseifner 2004, "Optimization of Collective Reduction Operations".
"""

from ...base.arguments import plain_numbers
from ..actions import Transfer, chunk_bounds, sent_back
from .recursive_doubling import fold, largest_power_of_two, powers_of_two


@plain_numbers
def halving_doubling(k, n):
    """The schedule for k devices and n elements."""
    p = largest_power_of_two(k)
    bounds = chunk_bounds(n, p)
    halving = [
        [Transfer(i, i ^ distance, *_part(bounds, i ^ distance, distance), "add") for i in range(p)]
        for distance in reversed(powers_of_two(p))
    ]
    return fold(k, p, n, halving + sent_back(halving[::-1]))


def _part(bounds, device, count):
    """The range of ``count`` chunks, aligned to multiples of ``count``, that holds the device's own chunk."""
    first = device // count * count
    return bounds[first][0], bounds[first + count - 1][1]
