"""How many examples each device gets: equal parts, or parts in proportion to loads."""

import numpy as np

from ..collectives import chunk_bounds


def shard_bounds(n, k, loads=None):
    """Split n examples over k devices, evenly or by ``loads`` (k numbers): a pair (start, stop) for each device."""
    return chunk_bounds(n, k) if loads is None else load_bounds(n, loads)


def load_bounds(n, loads):
    """Split n examples in proportion to ``loads``: a pair (start, stop) for each.

    Each part is its exact share rounded down; the examples left over go to the
    parts that lost most by rounding (the largest-remainder method).
    """
    shares = n * np.asarray(loads, float) / np.sum(loads)
    sizes = np.floor(shares).astype(int)
    neediest = np.argsort(sizes - shares, kind="stable")
    sizes[neediest[: n - sizes.sum()]] += 1
    stops = np.cumsum(sizes).tolist()
    return list(zip([0, *stops[:-1]], stops, strict=True))


def most_examples(batch_size, k, loads=None):
    """For each device a number of examples that its shard of at most ``batch_size`` never exceeds."""
    if loads is None:
        return [-(-batch_size // k)] * k
    shares = batch_size * np.asarray(loads, float) / np.sum(loads)
    return [min(batch_size, int(share) + 1) if share else 0 for share in shares]


def check_loads(loads, k):
    """The loads as an array of k floats; ValueError unless they are finite, none negative and not all 0."""
    loads = np.asarray(loads, float)
    if loads.shape != (k,) or not np.isfinite(loads).all() or (loads < 0).any() or loads.sum() == 0:
        raise ValueError(f"loads {loads.tolist()}: give {k} numbers, one for each device, none below 0 and not all 0")
    return loads
