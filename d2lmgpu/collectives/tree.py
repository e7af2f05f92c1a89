"""The tree allreduce: binomial reduction to device 0, then a binomial broadcast.

    k = 8     step 1      1→0   3→2   5→4   7→6     add
              step 2      2→0         6→4           add
              step 3      4→0                       add
              step 4 … 6  the same backwards        copy

With every step the number of devices that still hold something new halves.

Steps: 2⌈log₂ k⌉, few even for many devices, each with all n elements. Bytes:
device 0 receives and sends ⌈log₂ k⌉·n. Good for short messages, where latency
is everything; for long ones the ring sends less.

Source: Thakur, Rabenseifner and Gropp 2005, "Optimization of Collective
Communication Operations in MPICH" (binomial tree).
"""

from ..language.actions import Transfer


def tree(k, n):
    """The schedule for k devices and n elements."""
    return _reduce(k, n) + broadcast(k, n)


def broadcast(k, n):
    """Device 0's n elements to all k devices, in ⌈log₂ k⌉ steps."""
    return [[Transfer(t.destination, t.source, 0, n, "copy") for t in step] for step in reversed(_reduce(k, n))]


def _reduce(k, n):
    steps = []
    distance = 1
    while distance < k:
        senders = range(distance, k, 2 * distance)
        steps.append([Transfer(i, i - distance, 0, n, "add") for i in senders])
        distance *= 2
    return steps
