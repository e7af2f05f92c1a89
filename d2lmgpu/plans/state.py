"""The optimiser's state of a plan as a whole: gathered from the devices that hold parts of it, and given back.

So a checkpoint of it is that of any other split, and of the walk.
"""

import math

import numpy as np

from ..arguments import check_list, check_shape
from ..devices import DeviceArray, put, to_host
from .plan import all_of, shapes_of
from .split import numbered, splits_of, views


def whole_state(execution):
    """For each of the optimiser's states a flat array on the host, with a number for each parameter, in their order.

    Of a `Cluster` all processes call it, and get the same.
    """
    plan, state = execution.plan, []
    for i in range(_count(execution)):
        flats = [np.zeros(stage.params, execution.dtype) for stage in plan.stages]
        for store in execution.stores:
            for s, arrays in store.state.items():
                flats[s][slice(*store.parts[s].state)] = to_host(DeviceArray(arrays[i], store.device))
        if execution.across is not None:
            flats = execution.across.completed(flats, "state")
        state.append(np.concatenate([array.reshape(-1) for array in _in_shapes(flats, plan)]))
    return state


def give_back(execution, state):
    """Put what `whole_state` gave where it belongs. Raises ValueError for anything else."""
    plan = execution.plan
    shapes = [shape for stage in plan.stages for shape in shapes_of(stage, plan.network)]
    sizes = [math.prod(shape) for shape in shapes]
    for i, whole in enumerate(check_list("the optimiser's state", state, of="flat arrays", length=_count(execution))):
        check_shape("the optimiser's state", whole, (sum(sizes),))
        arrays = np.split(whole, np.cumsum(sizes)[:-1])
        flats = numbered_stages([array.reshape(shape) for array, shape in zip(arrays, shapes, strict=True)], plan)
        for store in execution.stores:
            for s, arrays in store.state.items():
                part = flats[s][slice(*store.parts[s].state)]
                DeviceArray(arrays[i], store.device)[...] = put(part, store.device)


def _in_shapes(flats, plan):
    """Each stage's elements as arrays in the shapes of the parameters."""
    splits = splits_of(plan.network, plan.stages)
    for stage, split, flat in zip(plan.stages, splits, flats, strict=True):
        yield from views(flat, split, shapes_of(stage, plan.network), all_of(stage))


def numbered_stages(arrays, plan):
    """For each stage the elements of its parameters, of which ``arrays`` are a list, as a flat array."""
    rest, flats, none = iter(arrays), [], np.zeros(0, arrays[0].dtype)
    for stage, split in zip(plan.stages, splits_of(plan.network, plan.stages), strict=True):
        own = [next(rest) for _ in shapes_of(stage, plan.network)]
        flats.append(numbered(own, split, np) if own else none)
    return flats


def _count(execution):
    """How many arrays like the parameters the optimiser has."""
    return execution.optimizer.states
