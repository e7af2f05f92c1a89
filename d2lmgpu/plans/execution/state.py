"""Convert parameters and the optimiser's whole state between the layers' arrays and the stages' flat arrays."""

import numpy as np

from ...devices import DeviceArray, put
from ...devices.cpu import memory_of
from ..plan import shapes_of
from ..stages import in_shapes, numbered, splits_of


def gather_state(execution):
    """For each of the optimiser's states, a flat array on the host with one number per parameter, in order.

    These arrays are gathered from the devices that hold parts of them, so a checkpoint is the same with any split, and
    without a split. On a `Cluster`, all processes call this and get the same arrays.
    """
    state = []
    for i in range(execution.optimizer.states):
        arrays = execution._gathered("state", lambda store, s, i=i: store.state[s][i])
        state.append(np.concatenate([array.reshape(-1) for array in arrays]))
    return state


def scatter_state(execution, state):
    """Put a state, as from `gather_state`, back on the devices that hold parts of it."""
    plan = execution.plan
    shapes = [shape for stage in plan.stages for shape in shapes_of(stage, plan.network)]
    for i, whole in enumerate(state):
        flats = numbered_stages(in_shapes(whole, shapes), plan)
        for store in execution.stores:
            for s, arrays in store.state.items():
                part = flats[s][slice(*store.parts[s].state)]
                DeviceArray(arrays[i], store.device)[...] = put(part, store.device)


def numbered_stages(arrays, plan):
    """For each stage, a flat array with the elements of its parameters, which come from the list ``arrays``."""
    rest, flats, none = iter(arrays), [], np.zeros(0, arrays[0].dtype)
    for stage, split in zip(plan.stages, splits_of(plan.network, plan.stages), strict=True):
        own = [next(rest) for _ in shapes_of(stage, plan.network)]
        flats.append(numbered(own, split) if own else none)
    return flats


# The arrays that belong to what forward keeps for backward: a device with a memory limit counts them.


PACKAGE = __name__.split(".")[0]


def owned_arrays(cache, scratch):
    """The plain arrays that own the memory of a cache, each once, without those in ``scratch``.

    A cache is an object of the kernels, or the lists and tuples that layers keep if they compute as they are written.
    """
    found, seen, rest = {}, set(), [cache]
    shared = {id(array) for arrays in scratch.values() for array in arrays}
    while rest:
        one = rest.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if hasattr(one, "nbytes") and not isinstance(one, np.generic):
            one = memory_of(one)
            if id(one) not in shared:
                found[id(one)] = one
        elif isinstance(one, (list, tuple)):
            rest += one
        elif isinstance(one, dict):
            rest += one.values()
        elif hasattr(one, "__dict__") and not isinstance(one, type) and type(one).__module__.startswith(PACKAGE):
            rest.append(vars(one))
    return list(found.values())
