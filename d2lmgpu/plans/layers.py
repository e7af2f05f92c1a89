"""The textbook's network partitioning: each device has some of the layers, and they work one after the other.

    device 0    F0 .  .  B0 F1 .  .  B1
    device 1    .  F0 B0 .  .  F1 B1 .

Only one of k devices works at a time: that is what a pipeline mends. But the memory of parameters, gradients,
optimiser state and caches is spread over the devices: a network may be k times as large, and one micro-batch's
caches are held at a time. Bytes: device s sends y to the next and dy to the device before, once for each example.

Source: Zhang et al., Dive into Deep Learning, "Training on Multiple GPUs", "Splitting the Problem"; on where to
cut, Mirhoseini et al. 2017, "Device Placement Optimization with Reinforcement Learning".
"""

from ..networks import LENET
from .compose import compose
from .cut import cut


def layers(k, micro_batches=1, network=LENET, costs=None):
    """The plan for k devices; ``costs`` of layers as `cut` takes them. ValueError if the network has too few layers."""
    return compose(layers_order(k, micro_batches), micro_batches, network, cut(network, k, costs), "layers")


def layers_order(k, micro_batches):
    """For each device what it computes, in order."""
    return [[(what, s, m) for m in range(micro_batches) for what in "FB"] for s in range(k)]
