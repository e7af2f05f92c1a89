"""The arrays that belong to what forward keeps for backward: a device with a memory limit counts them."""

import numpy as np

from ...devices.cpu import memory_of

PACKAGE = __name__.split(".")[0]


def owned_arrays(cache, papers):
    """The plain arrays that own the memory of a cache, each once, without scratch ``papers``.

    A cache is an object of the kernels, or the lists and tuples that layers keep if they compute as they are written.
    """
    found, seen, rest = {}, set(), [cache]
    shared = {id(array) for paper in papers.values() for array in paper}
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
