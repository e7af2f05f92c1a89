"""The ring allreduce: each device talks to its right neighbour only, all at the same time.

The n elements are cut into k chunks. First the chunks travel round the ring and
collect every device's share (reduce-scatter), then the finished chunks travel
round once more (all-gather). For k = 3, who sends which chunk to the right:

         0 → 1 → 2            step 1    step 2     step 3    step 4
         ↑_______|            add       add        copy      copy
    device 0 sends            0         2          1         0
    device 1 sends            1         0          2         1
    device 2 sends            2         1          0         2

After k-1 steps device i holds the complete chunk i+1: chunk c set out from
device c and has been to all k devices. After k-1 more, every device has all.

Steps: 2(k-1). Bytes: each device sends 2(k-1) chunks of n/k elements, that is
2(k-1)/k·n: hardly more for many devices than for two, and no allreduce can send
less (Patarasuk and Yuan 2009). Its price is latency: small messages wait 2(k-1)
times for the wire.

Source: Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for
clusters of workstations".
"""

from .schedule import Transfer, chunk_bounds


def ring(k, n):
    """The schedule for k devices and n elements; n need not be divisible by k, nor as large."""
    bounds = chunk_bounds(n, k)

    def send(device, chunk, op):
        return Transfer(device, (device + 1) % k, *bounds[chunk % k], op)

    reduce_scatter = [[send(i, i - step, "add") for i in range(k)] for step in range(k - 1)]
    all_gather = [[send(i, i + 1 - step, "copy") for i in range(k)] for step in range(k - 1)]
    return reduce_scatter + all_gather
