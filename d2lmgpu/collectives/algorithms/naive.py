"""The textbook's allreduce: everything goes to device 0 and back.

            1                     1
            ↓ add                 ↑ copy
       2 →  0  ← 3           2 ←  0  → 3

    step 1 … k-1      device i sends all n elements to device 0, which adds them
    step k … 2k-2     device 0 sends the sum to device i

Steps: 2(k-1), with one transfer each, because device 0 can add only one message at a time, and the textbook's loop
sends only one at a time. Bytes: device 0 receives (k-1)·n and sends (k-1)·n: the more devices there are, the longer the
queue at device 0.

Source: Dive into Deep Learning, "Training on Multiple GPUs", ``allreduce``.
"""

from ...base.arguments import plain_numbers
from ..actions import Transfer


@plain_numbers
def naive(k, n):
    """The schedule for k devices and n elements."""
    reduce = [[Transfer(i, 0, 0, n, "add")] for i in range(1, k)]
    broadcast = [[Transfer(0, i, 0, n, "copy")] for i in range(1, k)]
    return reduce + broadcast
