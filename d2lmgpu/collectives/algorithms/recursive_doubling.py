"""Recursive doubling: in step s, devices at distance 2ˢ⁻¹ exchange everything they have.

    k = 4     step 1     0 ↔ 1    2 ↔ 3     all n elements, added on both sides
              step 2     0 ↔ 2    1 ↔ 3

After s steps, each device holds the sum of the arrays of 2ˢ devices. Both partners add the same two numbers, so their
sums have the same bits.

Steps: log₂ k, the fewest possible. Bytes: each device sends log₂ k · n, so this allreduce suits short messages. If k is
not a power of two, each device beyond the largest power p first hands its share to a partner, which sends it the result
at the end: two more steps, of n elements each.

Source: Thakur, Rabenseifner and Gropp 2005.
"""

from ...base.arguments import plain_numbers
from ..actions import Transfer


@plain_numbers
def recursive_doubling(k, n):
    """The schedule for k devices and n elements."""
    p = largest_power_of_two(k)
    steps = [[Transfer(i, i ^ distance, 0, n, "add") for i in range(p)] for distance in powers_of_two(p)]
    return fold(k, p, n, steps)


def largest_power_of_two(k):
    """The largest power of two that is at most k."""
    return 1 << (k.bit_length() - 1)


def powers_of_two(k):
    """The powers of two, 1, 2, 4, …, that are less than k."""
    return [1 << i for i in range((k - 1).bit_length())]


def fold(k, p, n, steps):
    """The steps for p devices, extended to k: devices p … k-1 hand in their shares first and get the result last."""
    if p == k:
        return steps
    hand_in = [Transfer(i, i - p, 0, n, "add") for i in range(p, k)]
    hand_out = [Transfer(i - p, i, 0, n, "copy") for i in range(p, k)]
    return [hand_in, *steps, hand_out]
