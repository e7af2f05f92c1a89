"""The textbook's layer-wise partitioning: each device has some of the channels of every layer.

In each layer, every device computes its own part of the outputs (*columns* of the weights) for all examples. Before the
next layer, it gathers the other parts. In the backward pass, the gradient of a layer's input is a sum over the layer's
outputs, which are spread over the devices. So each device computes a share of this sum, and gets back the complete sums
for its own units.

    conv1 columns | gather | conv2 columns | gather | dense1 columns | gather | dense2 columns | gather

If units divide evenly, each device sends (k-1)/k · Σ 2·y_s elements for one example, where y_s are the layers' outputs
in the form in which they are exchanged, since y_s and its gradient are exchanged; the logits count only once. For
LeNet, this is 8,626·(k-1)/k elements per example, in 7 exchanges.

Memory: parameters, gradients, the optimiser's state, and the layers' outputs are spread over the devices. But every
device holds the complete input of each layer, and if this is a convolution, all its patches.

Source: Zhang et al., Dive into Deep Learning, "Training on Multiple GPUs", "Splitting the Problem"; Krizhevsky,
Sutskever and Hinton 2012, "ImageNet Classification with Deep Convolutional Neural Networks"; Krizhevsky 2014, "One
weird trick for parallelizing convolutional neural networks".
"""

import itertools

from ...base.arguments import plain_numbers
from ...collectives.actions import chunk_bounds, place
from ...collectives.algorithms.sharded import gather_at_hubs, spread_from_hubs
from ...networks import LENET
from ..plan import Compute, Part, Plan, full_range, stage_of
from ..stages import blocks, has_weights, splits_of, units_of_outputs
from .compose import drop_empty


@plain_numbers
def channels(k, micro_batches=1, network=LENET):
    """The plan for k devices, each with some channels of every layer."""
    # A stage begins with a layer that has weights; the loss is a stage of its own.
    edges = itertools.pairwise([*blocks(network, has_weights), len(network)])
    split = [stage_of(network, start, stop, "columns") for start, stop in edges]
    stages = *split, stage_of(network, len(network), len(network))
    units, last = units_of_outputs(network, stages), len(stages) - 1
    parts = [[each.part(k, i) for i in range(k)] for each in splits_of(network, stages)[:last]]
    parts.append([full_range(stages[last])] * k)
    layout = tuple(tuple(Part(s, own[i], own[i]) for s, own in enumerate(parts)) for i in range(k))
    steps = []
    for m in range(micro_batches):
        for s in range(len(stages)):
            if s > 0:
                steps += place(_gathered(k, units[s - 1]), range(k), value=("y", s - 1, m))
            steps.append([Compute("F", i, s, m) for i in range(k)])
        for s in reversed(range(len(stages))):
            if s < last - 1:  # every device computes the whole loss, and so all of the last layer's dy
                makers = min(k, units[s + 1])  # the devices that have units of the next stage
                steps += place(_summed(k, units[s], makers), range(k), value=("dy", s, m))
            steps.append([Compute("B", i, s, m) for i in range(k)])
    for s in reversed(range(len(stages))):
        steps.append([Compute("update", i, s) for i, (start, stop) in enumerate(parts[s]) if start < stop])
    return Plan("channels", network, stages, micro_batches, layout, [step for step in steps if step])


def _gathered(k, units):
    """Each device sends its own units to all."""
    return drop_empty(spread_from_hubs(range(k), chunk_bounds(units, k), range(k)))


def _summed(k, units, makers):
    """Each device sums its own units over the shares that the first ``makers`` devices have made."""
    steps = gather_at_hubs(range(k), chunk_bounds(units, k), range(k))
    return drop_empty([t for t in step if t.source < makers] for step in steps)
