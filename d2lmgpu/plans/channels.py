"""The textbook's layer-wise partitioning: each device has some of the channels of every layer.

In each layer, every device computes its own part of the outputs (*columns* of the weights) for all examples. Before the
next layer, it gathers the other parts. In the backward pass, the gradient of a layer's input is a sum over the layer's
outputs, which are spread over the devices. So each device computes a share of this sum, and gets back the complete sums
for its own units.

    channels         conv1 columns | gather | conv2 columns | gather | dense1 columns | gather | dense2 columns | gather
    channel-pairs    conv1 columns          | conv2 rows    | sum    | dense1 columns          | dense2 rows    | sum

After a layer in columns, the next layer can be cut into *rows*: device i uses its own part of the inputs as it is, and
computes a share of every output. So two layers need one exchange forward and one backward, half as many as before. From
that exchange to the next columns, and for the loss, all devices compute the same.

If units divide evenly, each device sends this many elements for one example, where y_s are the layers' outputs in the
form in which they are exchanged:

    channels         (k-1)/k · Σ 2·y_s, since y_s and its gradient are exchanged; the logits count only once
    channel-pairs    (k-1)/k · Σ 2·(y_s directly after rows + inputs of columns other than the images)

For LeNet, `channels` sends 8,626·(k-1)/k elements per example in 7 exchanges, and `channel_pairs` 9,720·(k-1)/k in 3:
after rows, the outputs are summed before they are pooled, so more elements are sent. Pairs save bytes if the layer
between the exchanges is wide, and waiting time if messages are short.

Memory: parameters, gradients, the optimiser's state, and the layers' outputs are spread over the devices. But every
device holds the complete input of each layer in columns, and if this is a convolution, all its patches.

Source: Zhang et al., Dive into Deep Learning, "Training on Multiple GPUs", "Splitting the Problem"; Krizhevsky,
Sutskever and Hinton 2012, "ImageNet Classification with Deep Convolutional Neural Networks"; Krizhevsky 2014, "One
weird trick for parallelizing convolutional neural networks". Pairs: Shoeybi et al. 2019, "Megatron-LM: training
multi-billion parameter language models using model parallelism".
"""

import itertools

from ..arguments import plain_numbers
from ..collectives.sharded import gather_at_hubs, spread_from_hubs
from ..language.actions import chunk_bounds, place, together
from ..language.plan import Compute, Part, Plan, all_of, stage_of
from ..language.split import has_weights, splits_of, units_of_outputs
from ..networks import LENET
from .compose import allreduce, without_nothing
from .cut import blocks


def channels(k, micro_batches=1, network=LENET):
    """The plan for k devices, each with some channels of every layer."""
    return by_channels("channels", 1, k, micro_batches, network)


def channel_pairs(k, micro_batches=1, network=LENET):
    """The plan for k devices, with layers in pairs of columns and rows; a last layer without a partner has columns."""
    return by_channels("channel-pairs", 1, k, micro_batches, network)


def columns(network):
    """The stages of `channels`: each begins with a layer that has weights. The loss is a stage of its own."""
    edges = itertools.pairwise([*blocks(network, has_weights), len(network)])
    stages = [stage_of(network, a, b, "columns") for a, b in edges]
    return *stages, stage_of(network, len(network), len(network))


def pairs(network):
    """The stages of `channel_pairs`: columns, rows, the layers without weights after them, and so on; then the loss."""
    starts, stages = [*blocks(network, has_weights), len(network)], []
    for i in range(0, len(starts) - 1, 2):
        stages.append(stage_of(network, starts[i], starts[i + 1], "columns"))
        if i + 2 < len(starts):
            rows = starts[i + 1]
            stages.append(stage_of(network, rows, rows + 1, "rows"))
            if rows + 1 < starts[i + 2]:
                stages.append(stage_of(network, rows + 1, starts[i + 2]))
    return *stages, stage_of(network, len(network), len(network))


STAGES = {"channels": columns, "channel-pairs": pairs}


@plain_numbers
def by_channels(name, copies, k, micro_batches, network, algorithm="ring"):
    """The plan ``name`` from `STAGES` for ``copies`` times k devices; each copy has ``micro_batches`` micro-batches.

    Device c·k + i has part i of copy c. ``algorithm``: the allreduce that sums the gradients of the copies.
    """
    stages = STAGES[name](network)
    parts = [
        [all_of(stage) if split is None else split.part(k, i) for i in range(k)]
        for stage, split in zip(stages, splits_of(network, stages), strict=True)
    ]
    devices = range(copies * k)
    layout = tuple(tuple(Part(s, own[i % k], own[i % k]) for s, own in enumerate(parts)) for i in devices)
    steps = []
    for j in range(micro_batches):
        for s in range(len(stages)):
            if s:
                steps += _exchanged("y", s - 1, stages, network, copies, k, j, micro_batches)
            steps.append([Compute("F", i, s, i // k * micro_batches + j) for i in devices])
        for s in reversed(range(len(stages))):
            if s < len(stages) - 1:
                steps += _exchanged("dy", s, stages, network, copies, k, j, micro_batches)
            steps.append([Compute("B", i, s, i // k * micro_batches + j) for i in devices])
    for s in reversed(range(len(stages))):
        steps += together(*(allreduce(algorithm, devices[i::k], ("grads", s), part) for i, part in enumerate(parts[s])))
        steps.append([Compute("update", i, s) for i in devices if parts[s][i % k][0] < parts[s][i % k][1]])
    title = name if copies == 1 else f"data={copies},{name}={k}"
    return Plan(title, network, stages, copies * micro_batches, layout, [step for step in steps if step])


def _exchanged(kind, s, stages, network, copies, k, j, micro_batches):
    """In each copy, send the y or dy of stage s from the devices that make it to all devices that need it."""
    schedule, values = _exchange(kind, s, stages, network, k), [(kind, s, c * micro_batches + j) for c in range(copies)]
    return together(*(place(schedule, range(c * k, (c + 1) * k), value=value) for c, value in enumerate(values)))


def _exchange(kind, s, stages, network, k):
    """The schedule that exchanges y or dy of stage s, or []. The stage itself makes y, and the next stage makes dy."""
    made, used = (s, s + 1) if kind == "y" else (s + 1, s)
    splits, units = splits_of(network, stages), units_of_outputs(network, stages)[s]
    if splits[made] is None or k == 1:
        return []
    are_parts = splits[made].what == ("columns" if kind == "y" else "rows")
    to_parts = stages[used].split == ("rows" if kind == "y" else "columns")
    return _schedule(k, units, 0 if are_parts else min(k, splits[made].units), not to_parts)


def _schedule(k, units, shares, spread):
    """Each device sums its units over the first ``shares`` devices' shares, and with ``spread`` sends the sums to all.

    If there is only one share, the device that made it has everything already.
    """
    hubs, steps = (range(k), chunk_bounds(units, k), range(k)), []
    if shares:
        steps += [[t for t in step if t.source < shares] for step in gather_at_hubs(*hubs)]
    if spread:
        steps += [[t for t in step if t.destination > 0 or shares != 1] for step in spread_from_hubs(*hubs)]
    return without_nothing(steps)
