"""ZeRO: data parallelism without redundant copies on the devices.

With Adam, data parallelism holds four numbers for each of n parameters on each of k devices: the parameter, its
gradient, and two numbers of the optimiser's state. But a device can update only one k-th of the parameters, and receive
the others when they have been updated. Then device i *owns* elements i·n/k to (i+1)·n/k of each stage's parameters:

            holds between steps         sends for one micro-batch, in elements
    data    n + state·n                 2(k-1)/k·n    allreduce the gradients
    zero1   n + state·n/k               2(k-1)/k·n    reduce-scatter the gradients, update, all-gather the parameters
    zero2   n + state·n/k               2(k-1)/k·n    the same, stage by stage; the rest of the gradients is freed
    zero3   n/k + state·n/k             3(k-1)/k·n    parameters are gathered for each forward and for each backward

An allreduce is a reduce-scatter and an all-gather, so zero1 sends no more than data parallelism. During a step, zero1
holds n gradients. zero2 and zero3 hold n/k gradients and those of the stage that is going backward; besides its own
parameters, zero3 holds those of only one stage. With m micro-batches, zero2 sends (m+1)(k-1)/k·n elements, and zero3
sends 3m(k-1)/k·n. A stage has as many layers as possible, but not many more parameters than the largest layer: smaller
stages would save almost no memory, and each stage costs an exchange.

Source: Rajbhandari et al. 2020, "ZeRO: memory optimizations toward training trillion parameter models"; PyTorch calls
zero3 "fully sharded data parallel".
"""

from ...base.arguments import plain
from ...collectives import all_gather, reduce_scatter
from ...collectives.actions import Transfer, chunk_bound, place
from ...networks import LENET
from ..plan import Compute, Part, Plan, full_range
from ..stages import by_largest, cut, in_buckets
from .compose import drop_empty
from .data import in_turn


def zero1(k, micro_batches=1, network=LENET, buckets=False):
    """The plan for k devices with ``micro_batches`` each and sharded optimiser state.

    ``buckets``: exchange gradients in buckets, as in data.py.
    """
    zero = _Zero(k, micro_batches, in_buckets(network) if buckets else cut(network, 1))
    for what, s, j in in_turn(0, zero.micro_batches, len(zero.stages)):
        zero.compute(what, s, j)
    for s in reversed(zero.each):
        zero.collective(reduce_scatter, ("grads", s))
        zero.update(s)
        zero.collective(all_gather, ("params", s))
    return zero.plan("zero1", network)


def zero2(k, micro_batches=1, network=LENET):
    """The plan for k devices with ``micro_batches`` each, and sharded optimiser state and gradients."""
    zero = _Zero(k, micro_batches, by_largest(network))
    for j in range(zero.micro_batches):
        for s in zero.each:
            zero.compute("F", s, j)
        for s in reversed(zero.each):
            zero.backward_and_reduce(s, j)
    for s in zero.each:
        zero.update(s)
    for s in zero.each:
        zero.collective(all_gather, ("params", s))
    return zero.plan("zero2", network)


def zero3(k, micro_batches=1, network=LENET):
    """The plan for k devices with ``micro_batches`` each, and sharded optimiser state, gradients and parameters."""
    zero = _Zero(k, micro_batches, by_largest(network))
    for j in range(zero.micro_batches):
        for s in zero.each:
            zero.collective(all_gather, ("params", s))
            zero.compute("F", s, j)
        for s in reversed(zero.each):
            zero.collective(all_gather, ("params", s))
            zero.backward_and_reduce(s, j)
    for s in zero.each:
        zero.update(s)
    return zero.plan("zero3", network, whole=False)


class _Zero:
    """An unfinished plan for k devices, which all do the same at the same time, each with its own micro-batches."""

    def __init__(self, k, micro_batches, stages):
        self.k, self.micro_batches = plain((k, micro_batches))
        self.stages, self.each, self.steps = stages, range(len(stages)), []

    def own(self, s, device):
        """The elements of stage s that a device owns."""
        return chunk_bound(self.stages[s].params, self.k, device)

    def compute(self, what, s, j, into=None):
        """Add F or B of every device's micro-batch number j."""
        self.steps.append([Compute(what, i, s, i * self.micro_batches + j, into) for i in range(self.k)])

    def collective(self, algorithm, value):
        """Add a collective in which all k devices exchange all elements of a value."""
        n = self.stages[value[1]].params
        self.steps += drop_empty(place(algorithm(self.k, n), range(self.k), value=value))

    def backward_and_reduce(self, s, j):
        """Add B and a reduce-scatter. Each device adds its part of the sum to its own gradients, and frees the rest."""
        if self.k == 1:
            self.compute("B", s, j)
            return
        whole = "grads", s, j
        self.compute("B", s, j, whole)
        self.collective(reduce_scatter, whole)
        kept = [Transfer(i, i, *self.own(s, i), "add", whole, ("grads", s)) for i in range(self.k)]
        self.steps += drop_empty([kept])

    def update(self, s):
        """Let each device update its own elements, if it has any."""
        owners = [i for i in range(self.k) if self.own(s, i)[0] < self.own(s, i)[1]]
        self.steps.append([Compute("update", i, s) for i in owners])

    def plan(self, name, network, whole=True):
        """The finished plan; ``whole``: a device holds all parameters between steps, and not only its own."""

        def part(s, device):
            own = self.own(s, device)
            return Part(s, full_range(self.stages[s]) if whole else own, own)

        layout = tuple(tuple(part(s, i) for s in self.each) for i in range(self.k))
        return Plan(name, network, self.stages, self.k * self.micro_batches, layout, self.steps)
