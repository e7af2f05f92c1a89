"""Before a plan is replayed: where its values are cut into pieces, and in which step each is mentioned last."""

import itertools

import numpy as np

from .check import Sizes
from .plan import norms_of, uses_of
from .split import ROWS, norm_part


def kind_of(value):
    """What values are cut alike: params and grads of a stage, or its y and dy; of moments and sums each."""
    names = {"params": "elements", "grads": "elements", "y": "units", "dy": "units"}
    return names.get(value[0], value[0]), value[1]


def edges_of(plan, columns, parts, splits):
    """By kind where values are cut."""
    sizes, edges = Sizes(plan), {}
    for s in range(len(plan.stages)):
        for value in ("params", s), ("y", s, 0), ("moments", s), ("sums", s):
            edges[kind_of(value)] = {0, sizes.of(value)}
    for s, part in itertools.chain(*(own.items() for own in parts)):
        edges["elements", s] |= {*part.params, *part.state}
        if splits[s] is not None:
            edges["units", s - (splits[s].what == "rows")] |= {*splits[s].units_of(part.params)}
            for kind in ROWS:
                edges[kind, s] |= {*norm_part(kind, norms_of(plan.stages[s], plan.network), splits[s], part.params)}
    for each in itertools.chain(*(moves for _, moves in columns)):
        edges[kind_of(each.value)].update(each.start.tolist(), each.stop.tolist())
    return {kind: np.array(sorted(found), np.int64) for kind, found in edges.items()}


def last_mentioned(columns):
    """By the number of a step the values that no later step is about; but moments have a use when all is done."""
    last = {}
    for number, (computes, moves) in enumerate(columns, 1):
        mentioned = [value for each in moves for value in (each.value, each.target)]
        for compute in computes:
            mentioned += itertools.chain(*uses_of(compute))
        last |= dict.fromkeys(mentioned, number)
    ends = {}
    for value, number in last.items():
        if value[0] != "moments":
            ends.setdefault(number, []).append(value)
    return ends
