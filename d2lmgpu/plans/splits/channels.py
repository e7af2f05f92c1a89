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
from ...collectives.actions import chunk_bounds, in_parallel, place
from ...collectives.algorithms.sharded import gather_at_hubs, spread_from_hubs
from ...networks import LENET
from ..plan import Compute, Part, Plan, full_range, stage_of
from ..stages import blocks, has_weights, splits_of, units_of_outputs
from .compose import drop_empty, placed_allreduce


def channels(k, micro_batches=1, network=LENET):
    """The plan for k devices, each with some channels of every layer."""
    return copies_of_channels(1, k, micro_batches, network)


def columns(network):
    """The stages of `channels`: each begins with a layer that has weights. The loss is a stage of its own."""
    edges = itertools.pairwise([*blocks(network, has_weights), len(network)])
    stages = [stage_of(network, a, b, "columns") for a, b in edges]
    return *stages, stage_of(network, len(network), len(network))


@plain_numbers
def copies_of_channels(copies, k, micro_batches, network, algorithm="ring"):
    """The plan for ``copies`` times k devices; each copy has ``micro_batches`` micro-batches.

    Device c·k + i has part i of copy c. ``algorithm``: the allreduce that sums the gradients of the copies.
    """
    stages = columns(network)
    parts = [
        [full_range(stage) if split is None else split.part(k, i) for i in range(k)]
        for stage, split in zip(stages, splits_of(network, stages), strict=True)
    ]
    devices = range(copies * k)
    units = units_of_outputs(network, stages)
    layout = tuple(tuple(Part(s, own[i % k], own[i % k]) for s, own in enumerate(parts)) for i in devices)
    steps = []
    for j in range(micro_batches):
        for s in range(len(stages)):
            if s:
                gathered = _gathered(k, units[s - 1])
                steps += _in_each_copy(gathered, "y", s - 1, copies, k, j, micro_batches)
            steps.append([Compute("F", i, s, i // k * micro_batches + j) for i in devices])
        for s in reversed(range(len(stages))):
            if s < len(stages) - 2:  # the loss makes all of its dy
                summed = _summed(k, units[s], min(k, units[s + 1]))
                steps += _in_each_copy(summed, "dy", s, copies, k, j, micro_batches)
            steps.append([Compute("B", i, s, i // k * micro_batches + j) for i in devices])
    for s in reversed(range(len(stages))):
        steps += in_parallel(
            *(placed_allreduce(algorithm, devices[i::k], ("grads", s), part) for i, part in enumerate(parts[s]))
        )
        steps.append([Compute("update", i, s) for i in devices if parts[s][i % k][0] < parts[s][i % k][1]])
    title = "channels" if copies == 1 else f"data={copies},channels={k}"
    return Plan(title, network, stages, copies * micro_batches, layout, [step for step in steps if step])


def _in_each_copy(schedule, kind, s, copies, k, j, micro_batches):
    """The ``schedule`` for the y or dy of stage s, in each copy for its own micro-batch number j."""
    values = [(kind, s, c * micro_batches + j) for c in range(copies)]
    return in_parallel(*(place(schedule, range(c * k, (c + 1) * k), value=value) for c, value in enumerate(values)))


def _gathered(k, units):
    """Each device sends its own units to all."""
    return drop_empty(spread_from_hubs(range(k), chunk_bounds(units, k), range(k)))


def _summed(k, units, shares):
    """Each device sums its own units over the ``shares`` that the first devices have made."""
    steps = gather_at_hubs(range(k), chunk_bounds(units, k), range(k))
    return drop_empty([t for t in step if t.source < shares] for step in steps)
