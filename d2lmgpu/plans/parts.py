"""Cut some stages of a plan into parts: an action on such a stage becomes several actions, one for each part.

F 0                           F 0, F 1, F 2
B 0                           B 2, B 1, B 0
elements a to b of grads 0    the same elements, in grads 0, grads 1 and grads 2
"""

import itertools

from ..language.actions import Transfer, together
from ..language.plan import Part, stage_of


def in_parts(plan, stages):
    """The plan with these stages cut into parts, each with one batch norm layer and no parameters after it.

    Raises ValueError for a stage that is split by its units and cannot be cut.
    """
    pieces = [_pieces(plan, s) if s in stages else [stage] for s, stage in enumerate(plan.stages)]
    if all(len(each) == 1 for each in pieces):
        return plan
    first = list(itertools.accumulate(map(len, pieces), initial=0))
    edges = [list(itertools.accumulate((piece.params for piece in each), initial=0)) for each in pieces]

    def within(s, bounds):
        """Divide elements (start, stop) of a stage among its parts: pairs (number of the part, bounds in it)."""
        for number, (a, b) in enumerate(itertools.pairwise(edges[s]), first[s]):
            start, stop = (min(max(edge, a), b) - a for edge in bounds)
            yield number, (start, stop)

    def renamed(value, number):
        return None if value is None else (value[0], number, *value[2:])

    def part_of(transfer, number, start, stop):
        value, target = renamed(transfer.value, number), renamed(transfer.target, number)
        return transfer._replace(value=value, target=target, start=start, stop=stop)

    def parts_of(action):
        """The lists of actions that replace an action, to be done one list after the other."""
        if isinstance(action, Transfer):
            kind, s = action.value[:2]
            bounds = action.start, action.stop
            own = [(first[s + 1] - 1, bounds)] if kind in ("y", "dy") else within(s, bounds)
            return [[part_of(action, number, *bounds) for number, bounds in own if bounds[0] < bounds[1]]]
        s, numbers = action.stage, list(range(first[action.stage], first[action.stage + 1]))
        if action.what == "update":
            state = next(part.state for part in plan.layout[action.device] if part.stage == s)
            return [[action._replace(stage=number) for number, (a, b) in [one] if a < b] for one in within(s, state)]
        order = numbers if action.what in "FW" else numbers[::-1]
        return [[action._replace(stage=number, into=renamed(action.into, number))] for number in order]

    def parts_held(part):
        both = zip(within(part.stage, part.params), within(part.stage, part.state), strict=True)
        return [Part(number, params, state) for (number, params), (_, state) in both]

    steps = []
    for step in plan.steps:
        steps += together(*map(parts_of, step))
    layout = tuple(tuple(itertools.chain(*map(parts_held, own))) for own in plan.layout)
    stages = tuple(itertools.chain(*pieces))
    return plan._replace(stages=stages, layout=layout, steps=[step for step in steps if step])


def _pieces(plan, s):
    """The parts of a stage: a new part begins at each layer with parameters that comes after batch norm."""
    stage, starts, has_norm = plan.stages[s], [plan.stages[s].first], False
    for i in range(stage.first, stage.stop):
        layer = plan.network[i]
        if layer.shapes and has_norm:
            starts.append(i)
        has_norm = layer.channels > 0 or (has_norm and not layer.shapes)
    if len(starts) > 1 and stage.split:
        raise ValueError(
            f"the plan {plan.name}: stage {s} is split by {stage.split} and cannot be cut after batch norm"
        )
    if len(starts) == 1:
        return [stage]
    return [stage_of(plan.network, a, b) for a, b in zip(starts, [*starts[1:], stage.stop], strict=True)]
