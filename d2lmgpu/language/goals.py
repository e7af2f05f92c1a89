"""The goals of collectives: what devices must hold at the end.

allreduce         every device: the sum over all devices
reduce_scatter    device i: the sum over all devices in chunk i
all_gather        every device: each chunk i as device i had it
broadcast         every device: what the root had
all_to_all        device j: for each i, block i·k + j of the k·k blocks, as device i had it
"""

from .actions import chunk_bound


def _all_gather(k, n, root):
    return [(device, *chunk_bound(n, k, owner), 1 << owner) for owner in range(k) for device in range(k)]


def _all_to_all(k, n, root):
    return [(j, *chunk_bound(n, k * k, i * k + j), 1 << i) for i in range(k) for j in range(k)]


GOALS = {
    "allreduce": lambda k, n, root: [(device, 0, n, (1 << k) - 1) for device in range(k)],
    "reduce_scatter": lambda k, n, root: [(device, *chunk_bound(n, k, device), (1 << k) - 1) for device in range(k)],
    "all_gather": _all_gather,
    "broadcast": lambda k, n, root: [(device, 0, n, 1 << root) for device in range(k)],
    "all_to_all": _all_to_all,
}
"""Functions of k devices, n elements and the root that return lists of (device, start, stop, shares).

Elements start to stop on the device must be the sum of the shares, an int whose bit i stands for device i's share.
"""
