"""The goals of collectives: what devices must hold at the end.

allreduce         every device: the sum over all devices
reduce_scatter    device i: the sum over all devices in chunk i
all_gather        every device: each chunk i as device i had it
"""

from .actions import chunk_bound

GOALS = {
    "allreduce": lambda k, n: [(device, 0, n, (1 << k) - 1) for device in range(k)],
    "reduce_scatter": lambda k, n: [(device, *chunk_bound(n, k, device), (1 << k) - 1) for device in range(k)],
    "all_gather": lambda k, n: [(i, *chunk_bound(n, k, owner), 1 << owner) for owner in range(k) for i in range(k)],
}
"""Functions of k devices and n elements that return lists of (device, start, stop, shares).

Elements start to stop on the device must be the sum of the shares, an int whose bit i stands for device i's share.
"""
