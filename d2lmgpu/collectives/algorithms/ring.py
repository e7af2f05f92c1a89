"""The ring allreduce: each device sends only to its right neighbour, all at the same time.

The n elements are cut into k chunks. First the chunks travel round the ring and collect every device's share
(reduce-scatter), then the finished chunks travel round once more (all-gather). For k = 3, each device sends these
chunks to the right:

         0 → 1 → 2            step 1    step 2     step 3    step 4
         ↑_______|            add       add        copy      copy
    device 0 sends            2         1          0         2
    device 1 sends            0         2          1         0
    device 2 sends            1         0          2         1

Chunk c sets out from device c+1 and reaches device c after k-1 steps, when all
k devices have added to it. After k-1 more steps, every device has all chunks.

Steps: 2(k-1). Bytes: each device sends 2(k-1) chunks of n/k elements, that is 2(k-1)/k·n: n for two devices, and never
more than 2n however many devices there are. No allreduce can send less (Patarasuk and Yuan 2009). The price of the ring
is latency: even the sum of a short array takes 2(k-1) times the latency of a message.

`bidirectional_ring` is two rings at the same time, one in each direction; each sums half of the elements:

         0 ⇄ 1 ⇄ 2        first half of the elements:  0 → 1 → 2 → 0
         ⇅_______⇅        second half:                 0 → 2 → 1 → 0

Wires carry data in both directions at once, and one ring uses only one direction. Steps and bytes are those of one
ring, but half of the bytes go in each direction, so where both directions are free, the sum takes half the time.

Sources: Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations"; for two rings,
the decomposition of NVLink servers in Dive into Deep Learning, "Parameter Servers" (Wang et al. 2018, "Blink").
"""

from ...base.arguments import plain_numbers
from ..actions import Transfer, chunk_bounds, in_parallel, place


def ring(k, n):
    """The schedule for k devices and n elements; n need not be a multiple of k, and may be smaller."""
    return reduce_scatter(k, n) + all_gather(k, n)


def bidirectional_ring(k, n):
    """The schedule of two rings for k devices and n elements."""
    (start, middle), (_, stop) = chunk_bounds(n, 2)
    right = ring(k, middle - start)
    left = place(ring(k, stop - middle), members=range(k - 1, -1, -1), start=middle)
    return in_parallel(right, left)


def reduce_scatter(k, n):
    """The first half of the ring: device i ends with the complete sum of chunk i."""
    return _once_round(k, n, -1, "add")


def all_gather(k, n):
    """The second half of the ring: chunk i goes from device i to all others."""
    return _once_round(k, n, 0, "copy")


@plain_numbers
def _once_round(k, n, first, op):
    """In the first step device i sends chunk i + ``first``; then it sends the chunk that it has just received."""
    chunks = chunk_bounds(n, k)
    pairs = [(i, (i + 1) % k) for i in range(k)]  # made once: a million transfers share a thousand numbers
    return [[Transfer(i, right, *chunks[(i + first - step) % k], op) for i, right in pairs] for step in range(k - 1)]
