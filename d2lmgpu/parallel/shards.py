"""How many examples each device gets: equal parts, or parts in proportion to loads."""

import numpy as np

from ..base.arguments import check_name, is_number, plain, shown
from ..collectives import chunk_bounds
from ..collectives.actions import apportioned
from ..devices import put
from ..layers.exact import SUMS


def shard_bounds(n, k, loads=None, granule=1):
    """Split n examples over k devices, evenly or by ``loads`` (k numbers): a pair (start, stop) for each device.

    Parts by loads are `apportioned`. With a ``granule``, parts begin at multiples of it.
    """
    if granule > 1:
        bounds = shard_bounds(-(-n // granule), k, loads)
        return [(min(n, start * granule), min(n, stop * granule)) for start, stop in bounds]
    if loads is None:
        return chunk_bounds(n, k)
    stops = np.cumsum(apportioned(np.asarray(loads, float) / np.sum(loads), n)).tolist()
    return list(zip([0, *stops[:-1]], stops, strict=True))


def granule_of(sums):
    """The size of a granule, in examples: parts begin at multiples of it (see `shard_bounds`).

    Raises ValueError unless ``sums`` is a name in `SUMS`.
    """
    check_name("sums", sums, SUMS)
    return SUMS[sums]


def put_parts(array, bounds, devices):
    """Put the parts (start, stop) of a host array on the devices, one on each."""
    return [put(array[start:stop], device) for (start, stop), device in zip(bounds, devices, strict=True)]


def check_loads(loads, k):
    """The loads as k floats. Raises ValueError if one is negative, or if their sum is not finite or not above 0."""
    numbers = plain(loads)
    fit = type(numbers) is list and len(numbers) == k and all(is_number(load) and load >= 0 for load in numbers)
    if not fit or not 0 < sum(map(float, numbers)) < np.inf:
        raise ValueError(
            f"loads {shown(numbers)}: give {k} numbers, one for each device, none below 0 and not all 0, "
            "with a finite sum"
        )
    return np.array(numbers, float)
