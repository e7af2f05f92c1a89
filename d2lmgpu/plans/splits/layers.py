"""The textbook's network partitioning: each device has some of the layers, and they work one after the other.

    device 0    F0 .  .  B0 F1 .  .  B1
    device 1    .  F0 B0 .  .  F1 B1 .

Only one of k devices works at a time; pipelines improve on this. But the memory for parameters, gradients, optimiser
state and caches is spread over the devices, so a network may be k times as large. The caches of only one micro-batch
are held at a time. Bytes: device s sends y to the next device and dy to the previous one, once for each example.

Source: Zhang et al., Dive into Deep Learning, "Training on Multiple GPUs", "Splitting the Problem"; on where to
cut, Mirhoseini et al. 2017, "Device Placement Optimization with Reinforcement Learning".
"""

from ...networks import LENET
from .compose import compose
from .cut import cut


def layers(k, micro_batches=1, network=LENET, costs=None):
    """The plan for k devices. ``costs``: those of the layers (see `cut`). Raises ValueError for too few layers."""
    return compose(layers_order(k, micro_batches), micro_batches, network, cut(network, k, costs), "layers")


def layers_order(k, micro_batches):
    """For each device, its computations in order."""
    return [[(what, s, m) for m in range(micro_batches) for what in "FB"] for s in range(k)]
