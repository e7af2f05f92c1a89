"""ZeRO: data parallelism in which no device keeps what another keeps already.

With Adam, data parallelism holds four numbers for each of n parameters on every one of k devices: the parameter, its
gradient, two of the optimiser's state. But a device can update one k-th of the parameters, and get the others
updated. Each device then *owns* elements i·n/k to (i+1)·n/k of the parameters, of each stage:

            holds between steps         sends, of n elements for one micro-batch
    data    n + state·n                 2(k-1)/k·n    allreduce the gradients
    zero1   n + state·n/k               2(k-1)/k·n    reduce-scatter the gradients, update, all-gather the parameters
    zero2   n + state·n/k               2(k-1)/k·n    the same, stage by stage; the rest of the gradients is freed
    zero3   n/k + state·n/k             3(k-1)/k·n    parameters are gathered for each forward, and for each backward

An allreduce is a reduce-scatter and an all-gather, so that zero1 sends no more than data parallelism. During a step,
zero1 holds n gradients, zero2 n/k and those of the stage that goes backward, zero3 likewise one stage's parameters.
With m micro-batches zero2 sends (m+1)(k-1)/k·n, zero3 3m(k-1)/k·n. A stage is a layer that has parameters, and what
follows.

Source: Rajbhandari et al. 2020, "ZeRO: memory optimizations toward training trillion parameter models"; zero3 is what
PyTorch calls "fully sharded data parallel".
"""

import functools

from ..collectives import all_gather, reduce_scatter
from ..language.actions import chunk_bound
from ..language.plan import Action, Part, Plan, all_of
from ..networks import LENET
from .compose import alone, collective, frozen
from .cut import blocks, cut
from .data import in_turn


def zero1(k, micro_batches=1, network=LENET):
    """The plan for k devices with ``micro_batches`` each, whose optimiser state is sharded."""
    stages = cut(network, 1)
    layout, actions = [], []
    for device in range(k):
        own = chunk_bound(stages[0].params, k, device)
        layout.append((Part(0, all_of(stages[0]), all_of(stages[0]), own),))
        end = [*_collective("grads", 0, stages, k), *_update(0, own), *_collective("params", 0, stages, k)]
        actions.append((*alone(device, in_turn(device, micro_batches, 1), 1), *end, Action("free", 0, value="grads")))
    return Plan("zero1", network, stages, k * micro_batches, tuple(layout), tuple(actions))


def zero2(k, micro_batches=1, network=LENET):
    """The plan for k devices with ``micro_batches`` each, whose optimiser state and gradients are sharded."""
    stages = cut(network, len(blocks(network)))
    layout, actions = [], []
    for device in range(k):
        own = [chunk_bound(stage.params, k, device) for stage in stages]
        layout.append(tuple(Part(s, all_of(stage), own[s], own[s]) for s, stage in enumerate(stages)))
        todo = []
        for action in alone(device, in_turn(device, micro_batches, len(stages)), len(stages)):
            todo.append(action)
            if action.what == "B":
                todo += _reduced(action.stage, stages, own, k)
        for s in range(len(stages)):
            todo += [*_update(s, own[s]), *_collective("params", s, stages, k), Action("free", s, value="grads")]
        actions.append(tuple(todo))
    return Plan("zero2", network, stages, k * micro_batches, tuple(layout), tuple(actions))


def zero3(k, micro_batches=1, network=LENET):
    """The plan for k devices with ``micro_batches`` each, whose state, gradients and parameters are sharded."""
    stages = cut(network, len(blocks(network)))
    layout, actions = [], []
    for device in range(k):
        own = [chunk_bound(stage.params, k, device) for stage in stages]
        layout.append(tuple(Part(s, own[s], own[s], own[s]) for s in range(len(stages))))
        todo = []
        for action in alone(device, in_turn(device, micro_batches, len(stages)), len(stages)):
            s = action.stage
            if action.what not in "FB":
                todo.append(action)
                continue
            todo += [*_collective("params", s, stages, k), action]
            todo += [Action("free", s, value="params", part=own[s])] if k > 1 else []
            todo += _reduced(s, stages, own, k) if action.what == "B" else []
        for s in range(len(stages)):
            todo += [*_update(s, own[s]), Action("free", s, value="grads")]
        actions.append(tuple(todo))
    return Plan("zero3", network, stages, k * micro_batches, tuple(layout), tuple(actions))


def _reduced(s, stages, own, k):
    """After a backward: each device gets the sum of its own part of the gradients, and frees the rest."""
    if k == 1:
        return []
    return [*_collective("grads", s, stages, k), Action("free", s, value="grads", part=own[s])]


def _collective(value, s, stages, k):
    """Reduce-scatter of grads, all-gather of params, among all k devices; none for one."""
    algorithm = {"grads": reduce_scatter, "params": all_gather}[value]
    return collective(value, s, range(k), _schedule(algorithm, k, stages[s].params))


@functools.lru_cache
def _schedule(algorithm, k, n):
    return frozen(algorithm(k, n))


def _update(s, own):
    """The update of a device's own part, unless that is empty."""
    return [Action("update", s)] if own[0] < own[1] else []
