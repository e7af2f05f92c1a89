"""Data parallelism as a plan: each device has the whole network and a part of the examples.

For 2 devices with m = 2 micro-batches each:

    device 0    F0 B0 F1 B1 allreduce update
    device 1    F2 B2 F3 B3 allreduce update

The network is one stage, unless gradients are exchanged in *buckets* of neighbouring layers, each of them as soon as it
is final (Li et al. 2020, PyTorch DDP). Buckets should be large enough to be worth a message, but small enough that the
first is ready early. Device i computes the micro-batches i·m to (i+1)·m - 1 one after the other and adds up their
gradients. Bytes: those of the allreduce; with a ring, each device sends 2(k-1)/k·n elements for n parameters. Memory:
each device holds all n parameters, n gradients, the optimiser's state, and the cache of one micro-batch.

In a *product*, not a device but several have a copy of the network: a pipeline or a split by channels, each copy with
its own part of the examples. The devices form a grid, in which a row is a copy, and a column has the same part of each
copy. For 2 copies of 2 stages:

    devices 0 1    micro-batches 0 to m-1     stages 0 1
    devices 2 3    micro-batches m to 2m-1    stages 0 1

Device c·k + s has stage s (or part s of each layer) of copy c. The devices of a column allreduce their gradients.
Bytes: each device sends as much as in its pipeline for its copy's examples; in the allreduce among c copies, it sends
2(c-1)/c times its stage's parameters. Memory: that of the pipeline.

Source: Zhang et al., Dive into Deep Learning, "Training on Multiple GPUs" (parallel/data_parallel.py follows it);
Li et al. 2014, "Scaling Distributed Machine Learning with the Parameter Server"; Narayanan et al. 2021, "Efficient
large-scale language model training on GPU clusters using Megatron-LM", which calls such groups of devices the data,
pipeline and tensor parallel groups.
"""

from collections.abc import Callable

from ...base.arguments import check_name, check_whole, plain_numbers
from ...collectives.actions import Transfer, in_parallel
from ...networks import LENET
from ..plan import Compute, Plan, computed_with
from ..stages import cut, in_buckets
from .channels import channels
from .compose import compose, placed_allreduce
from .pipelines import gpipe, layers, one_f_one_b, zero_bubble


@plain_numbers
def data(k, micro_batches=1, network=LENET, algorithm: str | Callable = "ring", buckets=False):
    """The plan for k devices with ``micro_batches`` each; ``algorithm``: a name in `collectives.ALGORITHMS`.

    ``buckets``: exchange gradients in buckets.
    """
    stages = in_buckets(network) if buckets else cut(network, 1)
    order = [in_turn(i, micro_batches, len(stages)) for i in range(k)]
    return compose(order, k * micro_batches, network, stages, "data", algorithm)


def in_turn(device, micro_batches, stages):
    """The computations of a device with all stages: each micro-batch in turn goes through the stages and back."""
    order = [("F", s) for s in range(stages)] + [("B", s) for s in reversed(range(stages))]
    return [(what, s, device * micro_batches + m) for m in range(micro_batches) for what, s in order]


COPIED = {"layers": layers, "gpipe": gpipe, "1f1b": one_f_one_b, "zero-bubble": zero_bubble, "channels": channels}
"""The plans that can be copied: in all of them, updates come last."""


@plain_numbers
def copies_of(name, copies, k, micro_batches=1, network=LENET, algorithm: str | Callable = "ring"):
    """The plan for ``copies`` times k devices; each copy is the plan ``name`` with ``micro_batches`` micro-batches.

    ``name``: a pipeline, or "channels". ``algorithm``: the allreduce that sums the gradients.

    Raises ValueError if there is no such plan, or if the network has too few layers for it.
    """
    check_name("the plan to copy", name, COPIED)
    check_whole("copies", copies)
    one, steps = COPIED[name](k, micro_batches, network), []
    for step in one.steps:
        if step[0][0] == "update":  # before it, the devices of each column sum their gradients
            columns = [(range(c.device, copies * k, k), c.grads, computed_with(one, c.device, c.stage)) for c in step]
            steps += in_parallel(*(placed_allreduce(algorithm, *column) for column in columns))
        steps.append([_in_copy(copy, action, one) for copy in range(copies) for action in step])
    return Plan(f"data={copies},{name}={k}", network, one.stages, copies * micro_batches, one.layout * copies, steps)


def _in_copy(copy, action, one):
    """An action of the plan ``one`` as a copy does it, with the copy's devices and micro-batches."""
    first, first_micro_batch = copy * one.k, copy * one.micro_batches
    if isinstance(action, Compute):
        m = None if action.micro_batch is None else first_micro_batch + action.micro_batch
        return Compute(action.what, first + action.device, action.stage, m)
    source, destination, start, stop, op, (kind, s, m), _ = action
    return Transfer(first + source, first + destination, start, stop, op, (kind, s, first_micro_batch + m))
