"""The textbook's exercise 3: different parts are aggregated on different devices.

Device c is the hub of chunk c. All hubs work at the same time, so no single device's wire carries everything. In step
s of the first half, device i sends to device i + s (modulo k), and in step s of the second half to device i - s:

    k = 3      step 1 (add)      step 2 (add)      step 3 (copy)     step 4 (copy)
    device 0   chunk 1 → 1       chunk 2 → 2       chunk 0 → 2       chunk 0 → 1
    device 1   chunk 2 → 2       chunk 0 → 0       chunk 1 → 0       chunk 1 → 2
    device 2   chunk 0 → 0       chunk 1 → 1       chunk 2 → 1       chunk 2 → 0

Steps: 2(k-1), as in the textbook's allreduce, but with n/k elements each. Bytes: each device sends k-1 chunks to their
hubs and its own finished chunk to k-1 others, that is 2(k-1)/k·n, as little as in a ring. But every device talks to
every other device, so the algorithm needs a network in which all pairs are equally near.

Source: Dive into Deep Learning, "Training on Multiple GPUs", exercise 3, and
"Parameter Servers" (Li et al. 2014).
"""

from ..actions import Transfer, chunk_bounds, sent_back


def sharded(k, n):
    """The schedule for k devices and n elements."""
    bounds = chunk_bounds(n, k)
    return gather_at_hubs(range(k), bounds, range(k)) + spread_from_hubs(range(k), bounds, range(k))


def gather_at_hubs(members, bounds, hubs):
    """Add up every member's share of chunk c on device ``hubs[c]``.

    ``members``: device numbers, with those of all hubs. ``bounds``: (start, stop) of each chunk. In step s, a member
    sends to the device that comes s positions after it, if that is a hub.
    """
    members, steps = list(members), []
    chunk_of = dict(zip(hubs, bounds, strict=True))
    for s in range(1, len(members)):
        pairs = zip(members, members[s:] + members[:s], strict=True)
        steps.append([Transfer(member, hub, *chunk_of[hub], "add") for member, hub in pairs if hub in chunk_of])
    return steps


def spread_from_hubs(members, bounds, hubs):
    """Send chunk c from device ``hubs[c]`` to every member: the way back of `gather_at_hubs`."""
    return sent_back(gather_at_hubs(members, bounds, hubs))
