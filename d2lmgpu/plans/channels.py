"""The textbook's layer-wise partitioning: each device has some of the channels of every layer.

All devices compute each layer for all examples, each its part of the outputs (*columns* of the weights), and gather
what the others have before the next layer. The gradient of a layer's input is a sum over the outputs, of which each
device has its own: the sums of its units are what goes back to a device.

    channels         conv1 columns | gather | conv2 columns | gather | dense1 columns | gather | dense2 columns | gather
    channel-pairs    conv1 columns          | conv2 rows    | sum    | dense1 columns          | dense2 rows    | sum

After columns the next layer can be cut in *rows*: device i takes its own part of the inputs, as it is, and computes a
share of every output. So there is one exchange for two layers forward, and one backward: half as many. What follows
the sum, up to the next columns, all devices compute alike, as they do the loss.

Bytes from each device for one example, with y_s the layers' outputs as they are exchanged, if there are as many units:

    channels         (k-1)/k · Σ 2·y_s, of which the logits count once: each is gathered, and its gradient scattered
    channel-pairs    (k-1)/k · Σ 2·(y_s after rows, before what follows it, + inputs of columns other than the images)

For LeNet 8,626·(k-1)/k elements an example in 7 exchanges, and 9,720 in 3: after rows what is summed are outputs before
they are pooled. Pairs save bytes where the layer between is wide, and waiting where messages are short.

Memory: parameters, gradients, the optimiser's state, and a layer's outputs are spread over the devices. The
inputs of columns are on each device, and of a convolution all patches of them.

Source: Zhang et al., Dive into Deep Learning, "Training on Multiple GPUs", "Splitting the Problem"; Krizhevsky,
Sutskever and Hinton 2012, "ImageNet Classification with Deep Convolutional Neural Networks"; Krizhevsky 2014, "One
weird trick for parallelizing convolutional neural networks". Pairs: Shoeybi et al. 2019, "Megatron-LM: training
multi-billion parameter language models using model parallelism".
"""

import itertools

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
    """The plan for k devices, with layers in pairs of columns and rows; an odd last one has columns."""
    return by_channels("channel-pairs", 1, k, micro_batches, network)


def columns(network):
    """Stages of `channels`: each layer with weights and what follows it, and the loss alone."""
    edges = itertools.pairwise([*blocks(network, has_weights), len(network)])
    stages = [stage_of(network, a, b, "columns") for a, b in edges]
    return *stages, stage_of(network, len(network), len(network))


def pairs(network):
    """Stages of `channel_pairs`: columns, rows, what follows without weights, and so on, and the loss alone."""
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


def by_channels(name, copies, k, micro_batches, network, algorithm="ring"):
    """The plan ``name`` of `STAGES` for ``copies`` times k devices; a copy has so many micro-batches.

    Device c·k + i has part i of copy c. ``algorithm``: the allreduce of gradients among copies.
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
    """In each copy the y or dy of stage s that some have made gets to all that need it."""
    schedule, values = _exchange(kind, s, stages, network, k), [(kind, s, c * micro_batches + j) for c in range(copies)]
    return together(*(place(schedule, range(c * k, (c + 1) * k), value=value) for c, value in enumerate(values)))


def _exchange(kind, s, stages, network, k):
    """The schedule of what is made by some for all: y of stage s by itself, dy of it by the next stage; or []."""
    made, used = (s, s + 1) if kind == "y" else (s + 1, s)
    splits, units = splits_of(network, stages), units_of_outputs(network, stages)[s]
    if splits[made] is None or k == 1:
        return []
    are_parts = splits[made].what == ("columns" if kind == "y" else "rows")
    to_parts = stages[used].split == ("rows" if kind == "y" else "columns")
    return _schedule(k, units, 0 if are_parts else min(k, splits[made].units), not to_parts)


def _schedule(k, units, shares, spread):
    """Each device collects its units of the first ``shares`` devices' shares, and with ``spread`` sends them to all.

    If there is one share only, the device that had it needs nothing.
    """
    hubs, steps = (range(k), chunk_bounds(units, k), range(k)), []
    if shares:
        steps += [[t for t in step if t.source < shares] for step in gather_at_hubs(*hubs)]
    if spread:
        steps += [[t for t in step if t.destination > 0 or shares != 1] for step in spread_from_hubs(*hubs)]
    return without_nothing(steps)
