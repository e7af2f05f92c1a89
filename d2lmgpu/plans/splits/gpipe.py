"""GPipe: all micro-batches go forward, then all of them go back.

Device s has stage s. While device 1 computes micro-batch 0, device 0 already computes micro-batch 1. For four stages,
four micro-batches, and a backward that takes as long as a forward:

    device 0    F0 F1 F2 F3 .  .  .  .  .  .  B0 B1 B2 B3
    device 1    .  F0 F1 F2 F3 .  .  .  .  B0 B1 B2 B3
    device 2    .  .  F0 F1 F2 F3 .  .  B0 B1 B2 B3
    device 3    .  .  .  F0 F1 F2 F3 B0 B1 B2 B3

Each device waits in k-1 of m+k-1 forward slots, and in as many backward slots. So the *bubble* is (k-1)/(m+k-1) of the
time if all stages cost the same. Memory: every device holds the caches of all m micro-batches. Bytes: device s sends y
to the next device and dy to the previous one, once for each example.

Source: Huang et al. 2019, "GPipe: efficient training of giant neural networks using pipeline parallelism".
"""

from ...networks import LENET
from .compose import compose
from .cut import cut


def gpipe(k, micro_batches=4, network=LENET, costs=None):
    """The plan for k devices. ``costs``: those of the layers (see `cut`). Raises ValueError for too few layers."""
    return compose(gpipe_order(k, micro_batches), micro_batches, network, cut(network, k, costs), "gpipe")


def gpipe_order(k, micro_batches):
    """For each device, its computations in order."""
    each = range(micro_batches)
    return [[("F", s, m) for m in each] + [("B", s, m) for m in each] for s in range(k)]
