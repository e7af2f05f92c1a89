"""Three allreduces in which devices at distances 1, 2, 4, … exchange messages, so that few steps are needed.

`tree`: a binomial reduction to device 0, then a binomial broadcast. Each step of the reduction halves the number of
devices that hold sums still to be passed on:

    k = 8     step 1      1→0   3→2   5→4   7→6     add
              step 2      2→0         6→4           add
              step 3      4→0                       add
              step 4 … 6  the same backwards        copy

Steps: 2⌈log₂ k⌉, but each transfer has all n elements. Bytes: device 0 receives and sends ⌈log₂ k⌉·n. The tree is good
for short messages, whose time is mostly latency; for long ones, the ring sends less.

`recursive_doubling`: in step s, devices at distance 2ˢ⁻¹ exchange everything they have.

    k = 4     step 1     0 ↔ 1    2 ↔ 3     all n elements, added on both sides
              step 2     0 ↔ 2    1 ↔ 3

After s steps, each device holds the sum of the arrays of 2ˢ devices. Both partners add the same two numbers, so their
sums have the same bits. Steps: log₂ k, the fewest possible. Bytes: each device sends log₂ k · n, so this allreduce,
too, suits short messages.

`halving_doubling`, Rabenseifner's allreduce: each step halves the amount that is exchanged, until later steps double it
again.

    k = 4, chunks 0 1 2 3     step 1 (add)          step 2 (add)      step 3, 4 (copy)
    device 0                  sends 2 3 to 2        sends 1 to 1      the way back:
    device 1                  sends 2 3 to 3        sends 0 to 0      the finished part
    device 2                  sends 0 1 to 0        sends 3 to 3      doubles with
    device 3                  sends 0 1 to 1        sends 2 to 2      every step

Two partners split the range that they share in two; each keeps one half and sends the other. After log₂ k steps device
i holds the finished chunk i (recursive halving: a reduce-scatter); then the same partners exchange their finished
chunks (recursive doubling: an all-gather). Steps: 2 log₂ k. Bytes: each device sends n/2 + n/4 + … + n/k in each of the
two phases, 2(k-1)/k·n in all, as little as in the ring, but in far fewer steps.

If k is not a power of two, the last two algorithms need two more steps, of n elements each: each device beyond the
largest power of two hands in its share before the first step, and gets the result after the last.

Sources: Thakur, Rabenseifner and Gropp 2005, "Optimization of Collective Communication Operations in MPICH";
Rabenseifner 2004, "Optimization of Collective Reduction Operations".
"""

from ...base.arguments import plain_numbers
from ..actions import Transfer, chunk_bounds, reversed_copies


@plain_numbers
def tree(k, n):
    """The binomial tree's schedule for k devices and n elements."""
    reduction = [[Transfer(i, i - d, 0, n, "add") for i in range(d, k, 2 * d)] for d in _powers_of_two(k)]
    return reduction + reversed_copies(reduction)


@plain_numbers
def recursive_doubling(k, n):
    """The schedule for k devices and n elements in which everything is exchanged in each step."""
    p = _largest_power_of_two(k)
    return _fold(k, p, n, [[Transfer(i, i ^ d, 0, n, "add") for i in range(p)] for d in _powers_of_two(p)])


@plain_numbers
def halving_doubling(k, n):
    """Rabenseifner's schedule for k devices and n elements."""
    p = _largest_power_of_two(k)
    bounds = chunk_bounds(n, p)
    halving = [
        [Transfer(i, i ^ distance, *_part(bounds, i ^ distance, distance), "add") for i in range(p)]
        for distance in reversed(_powers_of_two(p))
    ]
    return _fold(k, p, n, halving + reversed_copies(halving))


def _part(bounds, device, count):
    """The range of ``count`` chunks, aligned to multiples of ``count``, that holds the device's own chunk."""
    first = device // count * count
    return bounds[first][0], bounds[first + count - 1][1]


def _largest_power_of_two(k):
    """The largest power of two that is at most k."""
    return 1 << (k.bit_length() - 1)


def _powers_of_two(k):
    """The powers of two, 1, 2, 4, …, that are less than k."""
    return [1 << i for i in range((k - 1).bit_length())]


def _fold(k, p, n, steps):
    """The steps for p devices, extended to k: devices p … k-1 hand in their shares first and get the result last."""
    if p == k:
        return steps
    hand_in = [Transfer(i, i - p, 0, n, "add") for i in range(p, k)]
    hand_out = [Transfer(i - p, i, 0, n, "copy") for i in range(p, k)]
    return [hand_in, *steps, hand_out]
