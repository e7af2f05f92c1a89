"""Before a plan is replayed: where its values are cut into pieces, and in which step each is mentioned last."""

import itertools

from .moves import cuts_of
from .plan import norms_of, uses_of
from .split import ROWS, norm_part, units_of_outputs


def kind_of(value):
    """What values are cut alike: params and grads of a stage, or its y and dy; of moments and sums each."""
    names = {"params": "elements", "grads": "elements", "y": "units", "dy": "units"}
    return names.get(value[0], value[0]), value[1]


def edges_of(plan, columns, parts, splits):
    """By kind where values are cut."""
    units, edges, about = units_of_outputs(plan.network, plan.stages), {}, {}
    for s, stage in enumerate(plan.stages):
        edges["elements", s], edges["units", s] = {0, stage.params}, {0, units[s] or 1}
        for kind in ROWS:
            edges[kind, s] = {*norm_part(kind, norms_of(stage, plan.network), None, None)}
    for s, part in itertools.chain(*(own.items() for own in parts)):
        edges["elements", s] |= {*part.params, *part.state}
        if splits[s] is not None:
            edges["units", s - (splits[s].what == "rows")] |= {*splits[s].units_of(part.params)}
            for kind in ROWS:
                edges[kind, s] |= {*norm_part(kind, norms_of(plan.stages[s], plan.network), splits[s], part.params)}
    for each in itertools.chain(*(moves for _, moves in columns)):
        about.setdefault(kind_of(each.value), []).append(each)
    return {kind: cuts_of([about.get(kind, [])], found) for kind, found in edges.items()}


def last_mentioned(columns):
    """By the number of a step the values that no later step is about; but moments have a use when all is done."""
    last = {}
    for number, (computes, moves) in enumerate(columns, 1):
        last |= {value: number for each in moves for value in (each.value, each.target) if value[0] != "moments"}
        for compute in computes:
            used = itertools.chain(*uses_of(compute))
            last |= {value: number for value in used if value[0] != "moments"}
    ends = {}
    for value, number in last.items():
        ends.setdefault(number, []).append(value)
    return ends
