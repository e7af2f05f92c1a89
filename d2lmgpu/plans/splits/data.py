"""Data parallelism as a plan: each device has the whole network and a part of the examples.

    device 0    F0 B0 F1 B1 allreduce update
    device 1    F2 B2 F3 B3 allreduce update

The network is one stage, unless gradients are exchanged in *buckets* of neighbouring layers, each of them as soon as it
is final (Li et al. 2020, PyTorch DDP). Buckets should be large enough to be worth a message, but small enough that the
first is ready early. Device i computes the micro-batches i·m to (i+1)·m - 1 one after the other and adds up their
gradients. Bytes: those of the allreduce; with a ring, each device sends 2(k-1)/k·n elements for n parameters. Memory:
each device holds all n parameters, n gradients, the optimiser's state, and the cache of one micro-batch.

Source: Zhang et al., Dive into Deep Learning, "Training on Multiple GPUs" (parallel/data_parallel.py follows it);
Li et al. 2014, "Scaling Distributed Machine Learning with the Parameter Server".
"""

from collections.abc import Callable

from ...base.arguments import plain_numbers
from ...networks import LENET
from ..stages import cut, in_buckets
from .compose import compose


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
    own = range(device * micro_batches, (device + 1) * micro_batches)
    return [(what, s, m) for m in own for what, s in order]
